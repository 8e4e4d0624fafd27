"""What the devices hold, and what moves between them and the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def place(file: str, line: int) -> str:
    """Return file and line, as far as they are known."""
    return f"{file}:{line}" if file and line else file


@dataclass(frozen=True, slots=True)
class Device:
    """
    A device and its memory in bytes; `None` if JAX does not report it.

    Attributes:
        live_bytes_peak: most bytes in live arrays in any snapshot.
    """

    device: str = ""
    kind: str = ""
    in_use: float | None = None
    peak: float | None = None
    limit: float | None = None
    pool: float | None = None
    largest_free_block: float | None = None
    largest_allocation: float | None = None
    live_arrays: int | None = None
    live_bytes: float | None = None
    live_bytes_peak: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What the devices hold."""

    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A source line that holds device memory."""

    file: str = ""
    line: int = 0
    function: str = ""
    bytes: float = 0.0
    arrays: int = 0
    growth_bytes: float = 0.0

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        return place(self.file, self.line)


@dataclass(frozen=True, slots=True)
class Leak:
    """
    Device memory that kept growing, and the lines that hold it.

    Attributes:
        full_in_seconds: when it fills the device at that pace; `None` if unknown.
    """

    device: str = ""
    growth_bytes: float = 0.0
    seconds: float = 0.0
    full_in_seconds: float | None = None
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The bytes of a device in the snapshot that had most, and what held most."""

    device: str = ""
    bytes: float = 0.0
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocations:
    """
    Device memory by source line.

    Attributes:
        time: Unix time of the last snapshot, `None` if there was none.
        seconds: from the first to the last snapshot, the period of the growth.
        lines: of all devices, in the last snapshot.
        peaks: of single devices.
    """

    time: float | None = None
    seconds: float = 0.0
    lines: tuple[Line, ...] = ()
    peaks: tuple[MemoryPeak, ...] = ()
    leaks: tuple[Leak, ...] = ()

    def peak_of(self, device: str) -> MemoryPeak:
        """Return the peak of *device*, empty if it is unknown."""
        return next(
            (one for one in self.peaks if one.device == device), MemoryPeak(device)
        )


@dataclass(frozen=True, slots=True)
class Transfer:
    """A source line that moves data between host and device."""

    file: str = ""
    line: int = 0
    direction: str = ""
    how: str = ""
    count: int = 0
    bytes: float = 0.0
    seconds: float = 0.0

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        return place(self.file, self.line)


@dataclass(frozen=True, slots=True)
class Transfers:
    """
    What moves between host and device.

    Attributes:
        lines: the source lines that transfer.
        arguments: bytes of NumPy arguments in a call, by function.
    """

    arguments: Mapping[str, float] = field(default_factory=dict)
    lines: tuple[Transfer, ...] = ()
