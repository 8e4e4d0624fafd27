"""The reader of memory profiles: what it reads, and what it survives."""

import gzip
import random
import tracemalloc
from collections.abc import Iterable

import pytest

from jaxmon.agent.jaxlink.source_lines import SourceLine
from jaxmon.agent.memory import profile as pprof
from jaxmon.agent.memory.profile import HeapSample, ProfileError


def varint(value: int) -> bytes:
    """Return *value* as a protocol buffer spells numbers."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    """Return a field that holds a number."""
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes | str) -> bytes:
    """Return a field that holds a text or a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def packed(field: int, values: Iterable[int]) -> bytes:
    """Return a repeated field of numbers, packed."""
    return text(field, b"".join(map(varint, values)))


STRINGS = (
    *("", "allocations", "count", "space", "bytes", "kind", "buffer", "device"),
    *("cpu:0", "f", "a.py", "g", "b.py"),
)
KIND = text(3, number(1, 5) + number(2, 6))
DEVICE = text(3, number(1, 7) + number(2, 8))


def profile(
    *samples: bytes, strings: Iterable[str] = STRINGS, extra: bytes = b""
) -> bytes:
    """Return a profile of *samples* over two functions."""
    return b"".join(
        [
            text(1, number(1, 1) + number(2, 2)),
            text(1, number(1, 3) + number(2, 4)),
            *(text(2, sample) for sample in samples),
            text(4, number(1, 1) + text(4, number(1, 1) + number(2, 10))),
            text(4, number(1, 2) + text(4, number(1, 2) + number(2, 300))),
            text(5, number(1, 1) + number(2, 9) + number(4, 10)),
            text(5, number(1, 2) + number(2, 11) + number(4, 12)),
            *(text(6, string) for string in strings),
            extra,
        ]
    )


SAMPLE = packed(1, [1, 2]) + packed(2, [3, 4096]) + KIND + DEVICE
STACK = (SourceLine("a.py", 10, "f"), SourceLine("b.py", 300, "g"))


def test_a_profile_is_read():
    """Values, labels and stacks come out, innermost frame first."""
    found = pprof.samples_of(gzip.compress(profile(SAMPLE)))

    assert list(found.samples) == [HeapSample(3, 4096, "buffer", "cpu:0", 0)]
    assert list(found.stacks) == [STACK]


def test_values_are_found_by_their_units():
    """Which value is the size is read, not assumed; so is a sign."""
    swapped = list(STRINGS)
    swapped[2], swapped[4] = swapped[4], swapped[2]
    found = pprof.samples_of(profile(packed(2, [3, -1]), strings=swapped))

    assert found.samples[0][:2] == (-1, 3)


def test_unknown_fields_are_skipped():
    """Fields that a later pprof may add, of every type, change nothing."""
    later = (
        number(99, 1 << 63)
        + text(98, b"\xff" * 300)
        + varint(97 << 3 | 1)
        + bytes(8)
        + varint(96 << 3 | 5)
        + bytes(4)
    )
    found = pprof.samples_of(profile(SAMPLE + later, extra=later))

    assert list(found.samples) == [HeapSample(3, 4096, "buffer", "cpu:0", 0)]
    assert list(found.stacks) == [STACK]


@pytest.mark.parametrize("data", [b"", gzip.compress(b"")], ids=["bytes", "gzip"])
def test_nothing_is_an_empty_profile(data):
    """No bytes: no samples."""
    assert list(pprof.samples_of(data).samples) == []


BROKEN = {
    "ends in a number": b"\x80",
    "ends in a text": b"\x32\x05abc",
    "a length beyond everything": b"\x32" + varint(1 << 62),
    "a number of eleven bytes": b"\x08" + b"\x80" * 10 + b"\x01",
    "a group": b"\x0b\x0c",
    "a number in place of a sample": number(2, 7),
    "expected a number, found text": profile(SAMPLE, extra=text(5, text(1, "x"))),
    "a place that is nowhere": profile(packed(1, [77]) + packed(2, [1, 1])),
    "a name that is nowhere": profile(SAMPLE, strings=STRINGS[:9]),
    "no values": profile(KIND),
    "of time, not of memory": text(1, number(2, 1)) + text(2, b"") + text(6, "") * 2,
    "cut gzip": gzip.compress(profile(SAMPLE))[:-9],
    "no gzip": b"\x1f\x8b" + bytes(20),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_damage_is_an_error_of_ours(data):
    """What is no profile is said to be none, by one exception."""
    with pytest.raises(ProfileError, match="profile"):
        pprof.samples_of(data)


def test_a_small_file_cannot_become_a_large_one():
    """A gzip bomb ends where the limit is."""
    bomb = gzip.compress(bytes(pprof.MAX_BYTES + 1))
    assert len(bomb) < pprof.MAX_BYTES // 500

    with pytest.raises(ProfileError, match="larger than"):
        pprof.samples_of(bomb)


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_end_soon_and_small(seed):
    """Any input gives a profile or our exception, in proportionate memory."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    whole = profile(*[SAMPLE] * 20)
    tracemalloc.start()
    try:
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 8)):
                at = chance.randrange(len(data))
                match chance.randrange(4):
                    case 0:
                        del data[at:]
                    case 1:
                        data[at : at + chance.randrange(9)] = b""
                    case 2:
                        data[at:at] = chance.randbytes(chance.randrange(20))
                    case _:
                        data[at] = chance.randrange(256)
                data = data or bytearray(whole)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                found = pprof.samples_of(bytes(data))
            except ProfileError:
                pass
            else:
                assert len(found.samples) <= len(data)
            assert tracemalloc.get_traced_memory()[1] - before < 200_000
    finally:
        tracemalloc.stop()
