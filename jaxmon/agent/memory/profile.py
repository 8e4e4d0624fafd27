"""
Device memory by source line, and growth between snapshots.

What `jax.profiler.device_memory_profile` returns is pprof's protocol buffer. Only what
a memory profile uses is read; unknown fields are skipped. An invalid length, index or
nesting is an error; time and memory are in proportion to the input, at most
`MAX_BYTES`.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from jaxmon.agent.jaxlink.source_lines import SourceLine, SourceLineFinder
from jaxmon.clocks import wall_time
from jaxmon.errors import JaxmonError, WireError
from jaxmon.facts import memory as facts
from jaxmon.facts.record import encoded
from jaxmon.host.formats import protobuf as wire
from jaxmon.host.formats.protobuf import Value
from jaxmon.host.sources import display_path


MAX_BYTES = 64 << 20
"""Maximum size of a decompressed profile: a million different stacks."""

# Field numbers: of the profile, then of its messages.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_TYPE_UNIT = 2
_SAMPLE_LOCATIONS, _SAMPLE_VALUES, _SAMPLE_LABEL = 1, 2, 3
_LABEL_NAME, _LABEL_TEXT = 1, 2
_LOCATION_ID, _LOCATION_LINE = 1, 4
_LINE_FUNCTION, _LINE_NUMBER = 1, 2
_FUNCTION_ID, _FUNCTION_NAME, _FUNCTION_FILE = 1, 2, 4


class ProfileError(JaxmonError):
    """The data is not a memory profile."""


class HeapSample(NamedTuple):
    """Live allocations that share size, kind, stack and, for buffers, device."""

    allocations: int
    size: int
    kind: str
    device: str
    stack: int


class HeapProfile(NamedTuple):
    """Samples in the order of the file, and the stacks they share, innermost first."""

    samples: Sequence[HeapSample]
    stacks: Sequence[tuple[SourceLine, ...]]


def samples_of(data: bytes) -> HeapProfile:
    """
    Return the profile in *data*, compressed or not, 4 µs per sample; `ProfileError` if
    it is corrupt, or larger than `MAX_BYTES`.
    """
    try:
        return _HeapReader(_decompressed(data)).profile()
    except (IndexError, KeyError, TypeError, WireError, zlib.error) as error:
        # Truncation, an index out of range, a number instead of text.
        msg = f"not a memory profile, or corrupt: {error!r}"
        raise ProfileError(msg) from error


def _decompressed(data: bytes) -> bytes:
    if data[:2] != b"\x1f\x8b":
        raw = data
    else:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        raw = stream.decompress(data, MAX_BYTES + 1)
        if not stream.eof and len(raw) <= MAX_BYTES:
            msg = "the compressed memory profile is truncated"
            raise ProfileError(msg)
    if len(raw) > MAX_BYTES:
        msg = f"the memory profile is larger than {MAX_BYTES} bytes"
        raise ProfileError(msg)
    return raw


class _HeapReader:
    def __init__(self, raw: bytes) -> None:
        kinds = _SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING
        found: dict[int, list[memoryview]] = {kind: [] for kind in kinds}
        for number, value in wire.fields(raw):
            if number in found:
                found[number].append(_message(value))
        self._types = found[_SAMPLE_TYPE]
        self._samples = found[_SAMPLE]
        self._strings = found[_STRING]
        self._functions = dict(map(self._function, found[_FUNCTION]))
        self._locations = dict(map(self._location, found[_LOCATION]))
        self._labels: dict[bytes, tuple[str, str]] = {}

    def profile(self) -> HeapProfile:
        count_at, size_at = self._places()
        samples: list[HeapSample] = []
        stacks: list[tuple[SourceLine, ...]] = []
        numbers: dict[tuple[Value, ...], int] = {}
        for raw in self._samples:
            places: list[Value] = []
            values: list[int] = []
            labels = {"kind": "buffer", "device": ""}
            for number, value in wire.fields(raw):
                if number == _SAMPLE_LOCATIONS:
                    places.append(value)
                elif number == _SAMPLE_VALUES:
                    values += wire.packed(value)
                elif number == _SAMPLE_LABEL:
                    name, text = self._label(bytes(_message(value)))
                    labels[name] = text
            key = tuple(places)
            stack = numbers.get(key)
            if stack is None:
                stack = numbers[key] = len(stacks)
                stacks.append(self._stack(key))
            samples.append(
                HeapSample(
                    _signed(values[count_at]),
                    _signed(values[size_at]),
                    labels["kind"],
                    labels["device"],
                    stack,
                )
            )
        return HeapProfile(samples, stacks)

    def _places(self) -> tuple[int, int]:
        units = [self._text(*_numbers(raw, _TYPE_UNIT)) for raw in self._types]
        if "count" not in units or "bytes" not in units:
            if not self._samples:
                return 0, 0
            msg = f"a profile of {', '.join(units) or 'nothing'}, not of memory"
            raise ProfileError(msg)
        return units.index("count"), units.index("bytes")

    def _stack(self, places: tuple[Value, ...]) -> tuple[SourceLine, ...]:
        frames: list[SourceLine] = []
        for place in places:
            for number in wire.packed(place):
                frames += self._locations[number]
        return tuple(frames)

    def _function(self, raw: memoryview) -> tuple[int, tuple[str, str]]:
        identity, name, file = _numbers(
            raw, _FUNCTION_ID, _FUNCTION_NAME, _FUNCTION_FILE
        )
        return identity, (self._text(file), self._text(name))

    def _location(self, raw: memoryview) -> tuple[int, tuple[SourceLine, ...]]:
        identity = 0
        frames: list[SourceLine] = []
        for number, value in wire.fields(raw):
            if number == _LOCATION_ID:
                identity = _int(value)
            elif number == _LOCATION_LINE:
                function, at = _numbers(_message(value), _LINE_FUNCTION, _LINE_NUMBER)
                file, name = self._functions[function]
                frames.append(SourceLine(file, at, name))
        return identity, tuple(frames)

    def _label(self, raw: bytes) -> tuple[str, str]:
        if raw not in self._labels:
            name, text = _numbers(raw, _LABEL_NAME, _LABEL_TEXT)
            self._labels[raw] = self._text(name), self._text(text)
        return self._labels[raw]

    def _text(self, index: int) -> str:
        # Index 0 is the empty text, even without a table.
        return wire.text(self._strings[index]) if index else ""


def _numbers(data: bytes | memoryview, *wanted: int) -> list[int]:
    """Return the numbers in the *wanted* fields, of each the last, 0 if omitted."""
    found = dict(wire.fields(data))
    return [_int(found.get(number, 0)) for number in wanted]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _int(value: Value) -> int:
    if isinstance(value, int):
        return value
    msg = "expected a number, found text"
    raise TypeError(msg)


def _message(value: Value) -> memoryview:
    if isinstance(value, memoryview):
        return value
    msg = "expected text, found a number"
    raise TypeError(msg)


Kind = Literal["buffer", "executable"]
Clock = Callable[[], float]

_TABLE_LINES = 20


@dataclass(frozen=True, slots=True)
class AllocationLine:
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
    lines: tuple[AllocationLine, ...]

    @property
    def bytes(self) -> int:
        """Total size in bytes of all live buffers on all devices."""
        return sum(line.bytes for line in self.lines if line.kind == "buffer")

    @property
    def arrays(self) -> int:
        """Number of live buffers on all devices."""
        return sum(line.arrays for line in self.lines if line.kind == "buffer")

    def growth_since(self, earlier: MemoryProfile) -> tuple[AllocationLine, ...]:
        """Return how lines changed since *earlier*, largest growth first."""
        growth = {_key(line): [line.bytes, line.arrays] for line in self.lines}
        for line in earlier.lines:
            total = growth.setdefault(_key(line), [0, 0])
            total[0] -= line.bytes
            total[1] -= line.arrays
        return _sorted(AllocationLine(*key, *n) for key, n in growth.items() if any(n))

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the lines as JSON types, summed over devices, most bytes first."""
        return [encoded(line) for line in held(self.lines, limit)]

    def __str__(self) -> str:
        found = held(self.lines, _TABLE_LINES)
        head = f"{self.bytes:,} bytes in {self.arrays:,} live arrays"
        # Not every platform reports the size of programs.
        return "\n".join([head, *(_text(line) for line in found if line.bytes)])


def read(
    data: bytes,
    sites: SourceLineFinder,
    device_ids: dict[str, str],
    *,
    clock: Clock = wall_time,
) -> MemoryProfile:
    """Return the profile in *data*, with the ids of devices for JAX's names."""
    profile = samples_of(data)
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
        AllocationLine(
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


def held(
    lines: Iterable[AllocationLine], limit: int | None = None
) -> tuple[facts.Line, ...]:
    """Return what *lines* hold, summed over devices, most bytes first."""
    sums: dict[tuple[str, int, str, str], list[int]] = {}
    for line in lines:
        key = (line.file, line.line, line.function, line.kind)
        total = sums.setdefault(key, [0, 0])
        total[0] += line.bytes
        total[1] += line.arrays
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    return tuple([facts.Line(*key, *sizes) for key, sizes in ordered[:limit]])


def _key(line: AllocationLine) -> tuple[str, int, str, str, Kind]:
    return line.file, line.line, line.function, line.device, line.kind


def _sorted(lines: Iterable[AllocationLine]) -> tuple[AllocationLine, ...]:
    # A stable order for ties.
    return tuple(sorted(lines, key=lambda line: (-line.bytes, _key(line))))


def _text(line: facts.Line) -> str:
    what = "programs" if line.kind == "executable" else "arrays"
    return f"{line.bytes:>16,} {line.arrays:>9,} {what:8} {line}"
