"""NVML library lifecycle: load, initialise, shut down."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

from jaxmon_exporter.collecting import CollectorUnavailable
from jaxmon_exporter.collectors.nvidia.device import DRIVER, Nvml


DRIVER_MISMATCH = "driver_mismatch"
INIT_FAILED = "init_failed"
_NOT_FOUND = "library_not_found"
_ADVICE = {
    _NOT_FOUND: (
        "libnvidia-ml.so.1 not found: no NVIDIA driver on this host, or none passed "
        "into this container"
    ),
    "driver_not_loaded": "the NVIDIA kernel driver is not loaded",
    DRIVER_MISMATCH: (
        "the driver was upgraded under this process; restart the exporter or, if that "
        "does not help, load the new kernel module, as a reboot does"
    ),
    INIT_FAILED: (
        "NVML initialisation failed; if the container lost its devices, recreate it"
    ),
}


class NvmlSession:
    """
    A collector's use of NVML, which counts its users: each collector has its own.

    Args:
        collector: its name, for advice.

    Attributes:
        nvml: pynvml while NVML is initialised, else `None`.
    """

    def __init__(self, collector: str) -> None:
        self.nvml: Nvml = None
        self._collector = collector

    def open(self) -> Nvml:
        """
        Return NVML, initialised if it was not.

        Raises:
            CollectorUnavailable: no driver, no pynvml, or NVML cannot be initialised.
        """
        if self.nvml is not None:
            return self.nvml
        if not driver_is_here():
            raise CollectorUnavailable(_NOT_FOUND, _ADVICE[_NOT_FOUND])
        try:
            import pynvml  # noqa: PLC0415 - 3 MB, and most hosts need none of it
        except ModuleNotFoundError as error:
            if error.name != "pynvml":  # there, and broken
                raise
            message = (
                "the nvidia-ml-py package is missing; install it with pip install "
                f"'jaxmon[nvidia]', or use --disable {self._collector}"
            )
            reason = "not_installed"
            raise CollectorUnavailable(reason, message) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise unavailable(error, INIT_FAILED) from error
        self.nvml = pynvml
        return pynvml

    def close(self) -> None:
        """Shut NVML down if it is initialised; the next `open` initialises it again."""
        nvml, self.nvml = self.nvml, None
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def driver_is_here() -> bool:
    """Return whether the driver's library can be loaded, as by pynvml."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def unavailable(error: Any, otherwise: str = "driver_error") -> CollectorUnavailable:
    """
    Return the driver failure that an NVML error means.

    Args:
        error: raised by pynvml.
        otherwise: the reason if NVML's code is not about the driver.
    """
    reason = DRIVER.get(error.value, otherwise)
    advice = _ADVICE.get(reason, "NVML will be re-initialised")
    return CollectorUnavailable(reason, f"{error}: {advice}")
