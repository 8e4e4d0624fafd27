"""Device memory by source line, and growth between snapshots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from jaxmon.agent.jaxlink.source_lines import UNKNOWN, SourceLine, SourceLineFinder
from jaxmon.agent.memory import pprof
from jaxmon.clocks import wall_time
from jaxmon.facts import memory as facts
from jaxmon.facts.record import encoded
from jaxmon.sources import display_path


Kind = Literal["buffer", "executable"]
Clock = Callable[[], float]

_TABLE_LINES = 20


@dataclass(frozen=True, slots=True)
class Line:
    """
    The memory held by one source line of the program on one device.

    Attributes:
        file: path, relative to the working directory if below it.
        line: line number; 0 if unknown.
        function: qualified name of the function.
        device: id of the local device; ``""`` for executables.
        kind: ``"buffer"`` for arrays, ``"executable"`` for compiled programs.
        bytes: live bytes, as the device allocated them.
        arrays: live buffers, or executables. An array has one on each device.
    """

    file: str
    line: int
    function: str
    device: str
    kind: Kind
    bytes: int
    arrays: int


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """
    Live memory by the source line that allocated it.

    Attributes:
        time: Unix timestamp of the snapshot.
        lines: source lines, most bytes first.
    """

    time: float
    lines: tuple[Line, ...]

    @property
    def bytes(self) -> int:
        """Total size in bytes of all live buffers on all devices."""
        return sum(line.bytes for line in self.lines if line.kind == "buffer")

    @property
    def arrays(self) -> int:
        """Number of live buffers on all devices."""
        return sum(line.arrays for line in self.lines if line.kind == "buffer")

    def growth_since(self, earlier: MemoryProfile) -> tuple[Line, ...]:
        """
        Return the lines whose memory changed since *earlier*.

        ``bytes`` and ``arrays`` are differences; largest growth first.
        """
        before = {_key(line): line for line in earlier.lines}
        after = {_key(line): line for line in self.lines}
        grown = [
            Line(
                *key,
                after[key].bytes if key in after else 0,
                after[key].arrays if key in after else 0,
            )
            for key in {**after, **before}
        ]
        grown = [_minus(line, before.get(_key(line))) for line in grown]
        return _sorted(line for line in grown if line.bytes or line.arrays)

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the lines as JSON types, summed over devices, most bytes first."""
        return [encoded(one) for one in held(self.lines, limit)]

    def __str__(self) -> str:
        found = held(self.lines, _TABLE_LINES)
        head = f"{self.bytes:,} bytes in {self.arrays:,} live arrays"
        # Not every platform reports the size of programs.
        return "\n".join([head, *(_text(one) for one in found if one.bytes)])


def read(
    data: bytes,
    sites: SourceLineFinder,
    device_ids: dict[str, str],
    *,
    clock: Clock = wall_time,
) -> MemoryProfile:
    """
    Return the profile in *data*; see `jaxmon.agent.memory.pprof.read`.

    Args:
        data: what `jax.profiler.device_memory_profile` returns.
        sites: finds the user's line in a stack.
        device_ids: id of each device by its name in JAX.
        clock: returns the Unix time.
    """
    profile = pprof.read(data)
    found = [sites.of(stack) for stack in profile.stacks]
    sums: defaultdict[tuple[SourceLine, str, str], list[int]] = defaultdict(
        lambda: [0, 0]
    )
    for count, size, kind, device, stack in profile.samples:
        total = sums[found[stack], device, kind]
        total[0] += size
        total[1] += count
    paths = {file: display_path(file) for file in {site.file for site, _, _ in sums}}
    lines = (
        Line(
            paths[site.file],
            site.line,
            site.function,
            device_ids.get(device, device),
            cast("Kind", kind),
            size,
            count,
        )
        for (site, device, kind), (size, count) in sums.items()
    )
    return MemoryProfile(clock(), _sorted(lines))


def held(lines: Iterable[Line], limit: int | None = None) -> tuple[facts.Line, ...]:
    """Return what *lines* hold, summed over devices, most bytes first."""
    sums: dict[tuple[str, int, str, str], list[int]] = {}
    for line in lines:
        key = (line.file, line.line, line.function, line.kind)
        total = sums.setdefault(key, [0, 0])
        total[0] += line.bytes
        total[1] += line.arrays
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    return tuple([facts.Line(*key, *sizes) for key, sizes in ordered[:limit]])


def place(line: facts.Line) -> str:
    """Return where *line* is, as text."""
    if line.file == UNKNOWN.file:
        return "unknown"
    return f"{line.place} ({line.function})"


def _key(line: Line) -> tuple[str, int, str, str, Kind]:
    return line.file, line.line, line.function, line.device, line.kind


def _minus(line: Line, earlier: Line | None) -> Line:
    if earlier is None:
        return line
    size, count = line.bytes - earlier.bytes, line.arrays - earlier.arrays
    return Line(*_key(line), size, count)


def _sorted(lines: Iterable[Line]) -> tuple[Line, ...]:
    # A stable order for ties.
    return tuple(sorted(lines, key=lambda line: (-line.bytes, _key(line))))


def _text(line: facts.Line) -> str:
    what = "programs" if line.kind == "executable" else "arrays"
    return f"{line.bytes:>16,} {line.arrays:>9,} {what:8} {place(line)}"
