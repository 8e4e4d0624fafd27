"""
Accelerators of this host, and whether their libraries can be reached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue

from jaxmon.doctor.finding import Finding


AREA = "devices"

_NVML_SECONDS = 10.0
_GOOGLE, _PROCESSING = "0x1ae0", "0x12"


def check(
    root: Path = Path("/"), package: Callable[[str], bool] | None = None
) -> Iterator[Finding]:
    """
    Yield what is to be said about GPUs and TPUs. No device is started.

    Args:
        root: where ``proc`` and ``sys`` are.
        package: tells whether a module can be imported.
    """
    package = package or (lambda name: find_spec(name) is not None)
    gpu = (root / "proc/driver/nvidia/version").exists()
    tpu = _has_tpu(root)
    if gpu:
        yield from _nvidia(package)
    if tpu:
        yield from _tpu(package)
    if not gpu and not tpu:
        text = "no NVIDIA driver and no TPU: programs run on the CPU"
        yield Finding(AREA, "ok", text)


def _nvidia(package: Callable[[str], bool]) -> Iterator[Finding]:
    if not any(package(f"jax_cuda{major}_plugin") for major in (12, 13)):
        text = "an NVIDIA driver is loaded, but JAX has no CUDA plugin"
        advice = "pip install 'jax[cuda13]' (or cuda12), or JAX runs on the CPU"
        yield Finding(AREA, "warning", text, advice)
    if not package("pynvml"):
        text = "nvidia-ml-py is missing: the sidecar shows no GPUs"
        yield Finding(AREA, "warning", text, "pip install 'jaxmon[nvidia]'")
        return
    yield _nvml()


def _nvml() -> Finding:
    """
    Ask NVML for its devices, on a thread: a dead driver answers to nobody.
    """
    answer: SimpleQueue[Finding] = SimpleQueue()
    thread = threading.Thread(target=lambda: answer.put(_ask_nvml()), daemon=True)
    thread.start()
    try:
        return answer.get(timeout=_NVML_SECONDS)
    except Empty:
        text = f"NVML gives no answer within {_NVML_SECONDS:g} s"
        advice = "the driver hangs; see dmesg for Xid errors and reset the GPU"
        return Finding(AREA, "failure", text, advice)


def _ask_nvml() -> Finding:
    import pynvml  # noqa: PLC0415 - 70 ms, and often not there

    try:
        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            driver = pynvml.nvmlSystemGetDriverVersion()
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        text = f"NVML cannot be used: {error}"
        advice = "in a container, pass the devices and libraries in (NVIDIA runtime)"
        return Finding(AREA, "failure", text, advice)
    driver = driver.decode() if isinstance(driver, bytes) else driver
    text = f"NVIDIA driver {driver}, GPUs: {count}"
    return Finding(AREA, "ok" if count else "warning", text)


def _has_tpu(root: Path) -> bool:
    """
    Tell whether a PCI device is one of Google's accelerators.
    """
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
