"""Accelerators of this host, and whether their libraries can be reached."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from jaxmon.doctor import gpus
from jaxmon.doctor.finding import Finding


AREA = gpus.AREA

_GOOGLE, _PROCESSING = "0x1ae0", "0x12"


def check(
    root: Path = Path("/"),
    package: Callable[[str], bool] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Finding]:
    """
    Yield what is to be said about GPUs and TPUs. No device is started.

    Args:
        root: where ``proc`` and ``sys`` are.
        package: tells whether a module can be imported.
        environ: of the program.
    """
    package = package or (lambda name: find_spec(name) is not None)
    gpu = (root / "proc/driver/nvidia/version").exists()
    tpu = _has_tpu(root)
    if gpu:
        yield from gpus.check(package, environ)
    if tpu:
        yield from _tpu(package)
    if not gpu and not tpu:
        text = "no NVIDIA driver and no TPU: programs run on the CPU"
        yield Finding(AREA, "ok", text)
    yield from _platforms(environ.get("JAX_PLATFORMS", ""), gpu=gpu, tpu=tpu)


def _platforms(wanted: str, *, gpu: bool, tpu: bool) -> Iterator[Finding]:
    """Yield where JAX_PLATFORMS asks for what is not here, or leaves out what is."""
    names = {name.strip() for name in wanted.lower().split(",")} - {""}
    if not names:
        return
    for name, here, what in (("cuda", gpu, "NVIDIA driver"), ("tpu", tpu, "TPU")):
        if name in names and not here:
            text = f"JAX_PLATFORMS={wanted}, but there is no {what}: JAX will not start"
            yield Finding(AREA, "warning", text, "run this where the program will run")
    for known, here, what in (({"cuda", "gpu"}, gpu, "GPUs"), ({"tpu"}, tpu, "TPU")):
        if here and not names & known:
            text = f"JAX_PLATFORMS={wanted}: programs will not use the {what}"
            yield Finding(AREA, "warning", text, "unset it, and JAX takes what is here")


def _has_tpu(root: Path) -> bool:
    """Tell whether a PCI device is one of Google's accelerators."""
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _GOOGLE and kind.startswith(_PROCESSING):
            return True
    return False


def _tpu(package: Callable[[str], bool]) -> Iterator[Finding]:
    if package("libtpu"):
        yield Finding(AREA, "ok", "a TPU is here, and libtpu")
    else:
        text = "a TPU is here, but libtpu is missing"
        yield Finding(AREA, "warning", text, "pip install 'jax[tpu]'")
    if not package("h2"):
        text = "h2 is missing: the sidecar shows no figures of TPUs"
        yield Finding(AREA, "warning", text, "pip install 'jaxmon[tpu]'")
