"""What the speed of a program depends on besides the program: versions and machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.configuration import DEBUGGING
from jaxmon.host import disclosure


# Environment variables that change what XLA makes of a program, or how it runs.
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
_VARIABLES = ("NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS")
# Settings that change how fast programs are or calls of them: off, unless a user
# turns them on, and the other way round.
_ON = (
    *(*DEBUGGING, "jax_check_tracer_leaks", "jax_log_compiles"),
    *("jax_explain_cache_misses", "jax_no_tracing", "jax_disable_most_optimizations"),
    *("jax_enable_x64", "jax_default_matmul_precision", "jax_enable_pgle"),
)
_OFF = ("jax_cpu_enable_async_dispatch",)
_LONGEST = 500


def versions(
    jax: Any, *, environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> dict[str, str]:
    """
    Return versions, machine, devices and flags by name, in display order.

    What is unknown is absent; devices are, until the program has initialised its
    backends. Takes about a millisecond: it reads small files under *root*.
    """
    environ = os.environ if environ is None else environ
    found = {
        "jax": str(jax.__version__),
        "jaxlib": backends.version() or "",
        "python": platform.python_version(),
        "processor": _processor(root),
        "cores": str(len(os.sched_getaffinity(0))),
        "driver": driver(root),
        **{name: disclosure.flags(environ.get(name, "")) for name in _FLAGS},
        **{name: environ.get(name, "") for name in _VARIABLES},
        **dict(_settings(jax.config)),
    }
    # Only the program initialises backends.
    if backends.initialised(jax):
        devices = jax.local_devices()
        found["platform"] = jax.default_backend()
        found["device"] = devices[0].device_kind
        found["devices"] = str(len(devices))
    return {name: value[:_LONGEST] for name, value in found.items() if value}


def _settings(config: Any) -> Iterator[tuple[str, str]]:
    """Yield settings that differ from their defaults; not every release has all."""
    # Some are no attributes.
    values = config.values
    for name in _ON:
        yield name, str(getattr(config, name, values.get(name)) or "")
    for name in _OFF:
        yield name, "" if values.get(name, True) else "False"


def _processor(root: Path) -> str:
    for line in start_of(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def driver(root: Path) -> str:
    """Return the version of NVIDIA's kernel module, if it is loaded."""
    return start_of(root / "sys/module/nvidia/version").strip()


def start_of(path: Path, most: int = 4096) -> str:
    """Return the first *most* characters of the file at *path*; none if unreadable."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""


_WORK = bytes(1 << 18)


def calibration_work() -> None:
    """Do it: a fifth of a millisecond, without the interpreter's lock."""
    sha256(_WORK).digest()
