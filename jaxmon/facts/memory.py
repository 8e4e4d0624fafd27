"""What the devices hold, and what moves between them and the host."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts.record import NOTHING, Fact


# With less than this available, operations that need megabytes are skipped.
_ROOM_BYTES = 256 << 20


class Placed(Fact):
    """*file* and *line* are of the source, as far as they are known."""

    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file


class Arrays(Fact):
    """Live arrays, and their size in bytes."""

    arrays: int = 0
    bytes: float = 0.0


class Device(Fact):
    """
    A device and its memory in bytes; `None` if JAX does not report it.

    Attributes:
        live_bytes_peak: most bytes in live arrays in any snapshot.
        offloaded_bytes: in arrays that are in the host's memory.
    """

    device: str = ""
    kind: str = ""
    in_use: float | None = None
    peak: float | None = None
    limit: float | None = None
    reserved: float | None = None
    pool: float | None = None
    largest_free_block: float | None = None
    largest_allocation: float | None = None
    live_arrays: int | None = None
    live_bytes: float | None = None
    live_bytes_peak: float | None = None
    offloaded_bytes: float | None = None
    dtypes: Mapping[str, Arrays] = NOTHING


class Memory(Fact):
    """What the devices held at a Unix *time*, `None` if that is unknown."""

    devices: tuple[Device, ...] = ()
    time: float | None = None


class Line(Placed):
    """
    A source line that holds device memory.

    Attributes:
        kind: ``buffer`` for arrays, ``executable`` for compiled programs.
    """

    function: str = ""
    kind: str = ""
    bytes: float = 0.0
    arrays: int = 0
    growth_bytes: float = 0.0
    growth_arrays: int = 0

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self.place} ({self.function})" if self.file else "unknown"


class MemoryHolder(Fact):
    """
    A collection of the program that holds much.

    Attributes:
        name: of the variable or attribute, ``train.History.states``.
        kind: its type, ``list``.
        items: how many it has, and *bytes* of arrays, estimated from some of them.
        adds: lines of the source that add to it, as far as its name shows.
        backlog: whether it is a queue without a maximum that grew while items were
            taken from it.
    """

    name: str = ""
    kind: str = ""
    items: int = 0
    bytes: float = 0.0
    adds: tuple[str, ...] = ()
    backlog: bool = False

    @property
    def where(self) -> str:
        """The line that adds to it, empty if it is not the only one."""
        return self.adds[0] if len(self.adds) == 1 else ""


class HostGrowth(Fact):
    """
    Memory of the process beside arrays of JAX that grew with the calls of a program.

    Attributes:
        calls: those of jitted functions meanwhile.
        full_in_seconds: when it fills the host or container at that pace; `None` if
            unknown.
        holder: what has grown, empty if it was not found.
    """

    growth_bytes: float = 0.0
    seconds: float = 0.0
    calls: int = 0
    full_in_seconds: float | None = None
    holder: MemoryHolder = MemoryHolder()


class HostMemory(Fact):
    """
    Sizes in bytes; `None` if unknown or unlimited. *cgroup* is without file data that
    the kernel would drop, which grows up to any limit and is harmless; *available* is
    without swapping; beyond *cgroup_limit* the kernel kills.
    """

    resident: int | None = None
    virtual: int | None = None
    virtual_limit: int | None = None
    available: int | None = None
    cgroup: int | None = None
    cgroup_limit: int | None = None

    @property
    def room(self) -> int | None:
        """What is left below the tightest limit."""
        pairs = (
            (self.virtual_limit, self.virtual),
            (self.cgroup_limit, self.cgroup),
            (self.available, 0),
        )
        left = [a - b for a, b in pairs if a is not None and b is not None]
        return max(min(left), 0) if left else None

    @property
    def is_tight(self) -> bool:
        """Return whether little memory is available."""
        room = self.room
        return room is not None and room < _ROOM_BYTES


class Leak(Fact):
    """
    Device memory that kept growing, and the lines that hold it.

    Attributes:
        full_in_seconds: when it fills the device at that pace; `None` if unknown.
        calls: those of jitted functions meanwhile, in a program that is still young.
        holder: what keeps the arrays, empty if it was not found.
    """

    device: str = ""
    growth_bytes: float = 0.0
    seconds: float = 0.0
    full_in_seconds: float | None = None
    lines: tuple[Line, ...] = ()
    calls: int = 0
    holder: MemoryHolder = MemoryHolder()


class MemoryPeak(Fact):
    """The bytes of a device in the snapshot that had most, and what held most."""

    device: str = ""
    bytes: float = 0.0
    lines: tuple[Line, ...] = ()


class Allocations(Fact):
    """
    Device memory by source line.

    Attributes:
        time: Unix time of the last snapshot, `None` if there was none.
        seconds: from the first to the last snapshot, the period of the growth.
        bytes: in all live arrays, and *arrays*, their number.
        lines: of all devices, in the last snapshot.
        peaks: of single devices.
        growing: what grows in a program that is young, and is no leak yet.
        host: growth of the rest of the process, if that goes on.
    """

    time: float | None = None
    seconds: float = 0.0
    bytes: float = 0.0
    arrays: int = 0
    lines: tuple[Line, ...] = ()
    peaks: tuple[MemoryPeak, ...] = ()
    leaks: tuple[Leak, ...] = ()
    growing: tuple[Leak, ...] = ()
    host: HostGrowth = HostGrowth()

    def peak_of(self, device: str) -> MemoryPeak:
        """Return the peak of *device*, empty if it is unknown."""
        return next(
            (peak for peak in self.peaks if peak.device == device), MemoryPeak(device)
        )


class Crossings(Fact):
    """How often, how much and for how long something was moved, or waited for."""

    count: int = 0
    bytes: float = 0.0
    seconds: float = 0.0


class Transfer(Placed):
    """A source line that moves data between host and device."""

    direction: str = ""
    how: str = ""
    count: int = 0
    bytes: float = 0.0
    seconds: float = 0.0


class Callback(Fact):
    """How often, and for how long, something was called from a line of the program."""

    place: str = ""
    count: int = 0
    seconds: float = 0.0


class Narrowed(Fact):
    """
    An array of 64 bits that JAX has made one of 32 bits, with other values.

    Attributes:
        place: the line that did so, empty if it is a function that was called with it.
        function: that function.
        dtype: of the array.
        spacing: between numbers of 32 bits, where neighbours become equal; 0 for
            integers.
        share: the fraction of the neighbours that differ, and do not with 32 bits; of
            integers, of those that do not fit.
        asked: whether the program asked for a type, perhaps for this one.
    """

    place: str = ""
    function: str = ""
    dtype: str = ""
    spacing: float = 0.0
    share: float = 0.0
    asked: bool = False


class Transfers(Fact):
    """
    What moves between host and device.

    Attributes:
        directions: transfers by direction, and *waits* for the device without one.
        arguments: bytes of NumPy arguments in a call, by function.
        same: those of arrays that were the same in all sampled calls, likewise.
        lines: the source lines that transfer, longest first.
        callbacks: the lines in jitted functions that call Python.
        profiles: the lines that start or stop profiles of JAX.
        narrowed: arrays that lost values as they were made.
    """

    directions: Mapping[str, Crossings] = NOTHING
    waits: Crossings = Crossings()
    arguments: Mapping[str, float] = NOTHING
    same: Mapping[str, float] = NOTHING
    lines: tuple[Transfer, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    profiles: tuple[Callback, ...] = ()
    narrowed: tuple[Narrowed, ...] = ()
