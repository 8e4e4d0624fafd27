"""
In what the ranks of a job differ: versions, devices, flags, settings, cache, programs.

All processes of a job have to compile the same programs. Those that are set up in
another way, as on a host with an old image, compile others, which hang, are slow, or
compute something else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from jaxmon.facts.rank import Rank
from jaxmon.host.formats.layout import INDENT, counted
from jaxmon.job.model import DeviatingRanks, SetupDifference
from jaxmon.job.waiting import devices
from jaxmon.job.words import MOST_NUMBERS, advice_lines, point, short, who


# Before the name of a function whose programs differ.
_PROGRAM = "program of "
_PACKAGE = "package "
# What is not among these may be unknown, if it is absent.
_GIVEN = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NCCL_", _PACKAGE)
# In this order, the cause before what follows from it.
_FIRST = ("python", "jax", "jaxlib", "driver", "platform", "device", "devices")
_MOST_VALUES = 3
_DIGITS = 8
_MOST_GROUPS, _MOST_NAMED = 5, 4
_ADVICE = (
    "Start all ranks with the same image, flags and settings: programs that differ "
    "hang, or compute something else."
)

_Values: TypeAlias = Mapping[str, Sequence[Rank]]
"""The ranks that have a value, by value; ``""`` is that of those without one."""


def deviating_ranks(ranks: Sequence[Rank]) -> tuple[DeviatingRanks, ...]:
    """Return those of *ranks* that differ from most others, the fewest first."""
    present = [rank for rank in ranks if not rank.ended]
    found: defaultdict[tuple[int, ...], list[SetupDifference]] = defaultdict(list)
    by_number: dict[int, Rank] = {rank.index or 0: rank for rank in present}
    for name, values in (*_setups(present), *_programs(present)):
        for numbers, difference in _odd(name, values):
            found[numbers].append(difference)
    odd = [
        DeviatingRanks(
            numbers, tuple(by_number[number] for number in numbers), tuple(differences)
        )
        for numbers, differences in found.items()
    ]
    return tuple(sorted(odd, key=lambda group: (len(group.numbers), group.numbers)))


def _odd(
    name: str, values: _Values
) -> Iterator[tuple[tuple[int, ...], SetupDifference]]:
    """Yield the ranks that differ from most in the value of *name*."""
    if len(values) < 2:  # noqa: PLR2004 - all have the same
        return
    groups = {
        value: tuple(sorted(rank.index or 0 for rank in some))
        for value, some in values.items()
    }
    # Of two halves, that with the first rank.
    usual = min(groups, key=lambda value: (-len(groups[value]), groups[value]))
    others = {value: some for value, some in groups.items() if value != usual}
    if len(others) <= _MOST_VALUES:
        for value, some in others.items():
            yield some, SetupDifference(name, value, usual)
        return
    every = tuple(sorted(number for some in others.values() for number in some))
    yield every, SetupDifference(name, "", usual, len(others))


def _setups(ranks: Iterable[Rank]) -> Iterator[tuple[str, _Values]]:
    """Yield the values of each name in which setups differ, the causes first."""
    # Few differ, however many ranks there are.
    alike: defaultdict[tuple[tuple[str, str], ...], list[Rank]] = defaultdict(list)
    keys: dict[int, tuple[tuple[str, str], ...]] = {}
    for rank in ranks:
        if rank.setup:
            if id(rank.setup) not in keys:
                keys[id(rank.setup)] = tuple(sorted(rank.setup.items()))
            alike[keys[id(rank.setup)]].append(rank)
    if len(alike) < 2:  # noqa: PLR2004 - all have the same
        return
    found: defaultdict[str, defaultdict[str, list[Rank]]]
    found = defaultdict(lambda: defaultdict(list))
    setups = [(dict(key), some) for key, some in alike.items()]
    names = {name for setup, _ in setups for name in setup}
    for setup, some in setups:
        for name in names:
            if name in setup or name.startswith(_GIVEN):
                found[name][setup.get(name, "")] += some
    yield from sorted(found.items(), key=lambda item: _place(item[0]))


def _place(name: str) -> tuple[int, str]:
    place = _FIRST.index(name) if name in _FIRST else len(_FIRST)
    return place, name


def _programs(ranks: Sequence[Rank]) -> Iterator[tuple[str, _Values]]:
    """Yield the latest programs of functions on all devices; parts may run others."""
    everywhere = devices(ranks)
    found: defaultdict[str, defaultdict[str, list[Rank]]]
    found = defaultdict(lambda: defaultdict(list))
    for rank in ranks:
        for function in rank.functions:
            if function.fingerprint and function.devices == everywhere:
                found[function.name][function.fingerprint].append(rank)
    for name, values in sorted(found.items()):
        if len(values) > 1:
            yield f"{_PROGRAM}{name}", _settled(name, values)


def _settled(name: str, values: _Values) -> _Values:
    """Return *values* of ranks with as many programs as most: others may follow."""
    numbers: dict[int, int | None] = {
        id(rank): function.programs
        for some in values.values()
        for rank in some
        for function in rank.functions
        if function.name == name
    }
    usual = Counter(numbers.values()).most_common(1)[0][0]
    settled = {
        value[:_DIGITS]: [rank for rank in some if numbers[id(rank)] == usual]
        for value, some in values.items()
    }
    return {value: some for value, some in settled.items() if some}


def lines(odd: Sequence[DeviatingRanks], width: int) -> Iterator[str]:
    """Yield *odd* in lines of at most *width* columns, one or two dozens at most."""
    for group in odd[:_MOST_GROUPS]:
        text = f"differs: {who(group)} has {sentence(group)}"
        if len(group.numbers) > 1:
            text = f"differ: {who(group)} have {sentence(group)}"
        yield from point(text, width)
    if (left := len(odd) - _MOST_GROUPS) > 0:
        yield f"{INDENT}and {counted(left, 'further group')} of ranks that differ"
    if odd:
        yield from advice_lines(_ADVICE, width)


def sentence(odd: DeviatingRanks) -> str:
    """Return in what *odd* differ from most others."""
    found = [_clause(difference) for difference in odd.differences[:_MOST_NAMED]]
    if (left := len(odd.differences) - _MOST_NAMED) > 0:
        found.append(f"and {counted(left, 'more difference')}")
    return "; ".join(found)


def document(odd: Sequence[DeviatingRanks]) -> list[dict[str, Any]]:
    """Return *odd* as JSON types."""
    return [
        {
            "ranks": group.numbers[:MOST_NUMBERS],
            "number": len(group.numbers),
            "verdict": f"{who(group)}: {sentence(group)}",
            "differences": [
                {
                    "name": of.name,
                    "value": of.value if of.values == 1 else None,
                    "others": of.usual,
                    "values": of.values,
                }
                for of in group.differences
            ],
        }
        for group in odd
    ]


def _clause(difference: SetupDifference) -> str:
    name = difference.name.removeprefix("package ")
    if name.startswith(_PROGRAM):
        function = short(name.removeprefix(_PROGRAM))
        name = f"another program of {function}:"
    if difference.values > 1:
        return (
            f"{difference.values:,} values of {name.rstrip(':')}, others "
            f"{difference.usual or 'none'}"
        )
    value, usual = difference.value or "not set", difference.usual or "not set"
    return f"{name} {value}, others {usual}"
