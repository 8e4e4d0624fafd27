"""
In what the ranks of a job differ: versions, devices, flags, settings, cache, programs;
and what some compiled although the first had it from the persistent cache.

All processes of a job have to compile the same programs. Those that are set up in
another way, as on a host with an old image, compile others, which hang, are slow, or
compute something else. The first start cannot avoid that all compile: only process 0
writes to the cache. At the next one all can load them, if they read the same directory;
those that compile keep the others waiting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from jaxmon.facts.rank import Rank, SharedFunction
from jaxmon.host.formats.layout import duration
from jaxmon.job import model
from jaxmon.job.model import MissCause
from jaxmon.job.waiting import devices
from jaxmon.job.words import (
    MOST_NUMBERS,
    advice_lines,
    agreeing,
    chosen,
    numbers,
    point,
    rest,
    short,
    who,
)
from jaxmon.limits import Limits


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
_VERBS = ("differs", "has")
_ADVICE = (
    "Start all ranks with the same image, flags and settings: programs that differ "
    "hang, or compute something else."
)

_Values: TypeAlias = Mapping[str, Sequence[Rank]]
"""The ranks that have a value, by value; ``""`` is that of those without one."""


def deviating_ranks(ranks: Sequence[Rank]) -> tuple[model.DeviatingRanks, ...]:
    """Return those of *ranks* that differ from most others, the fewest first."""
    present = [rank for rank in ranks if not rank.ended]
    found: defaultdict[tuple[int, ...], list[model.SetupDifference]] = defaultdict(list)
    by_number: dict[int, Rank] = {rank.index or 0: rank for rank in present}
    for name, values in (*_setups(present), *_programs(present)):
        for several, difference in _odd(name, values):
            found[several].append(difference)
    odd = [
        model.DeviatingRanks(
            several, tuple(by_number[number] for number in several), tuple(differences)
        )
        for several, differences in found.items()
    ]
    return tuple(sorted(odd, key=lambda group: (len(group.numbers), group.numbers)))


def _odd(
    name: str, values: _Values
) -> Iterator[tuple[tuple[int, ...], model.SetupDifference]]:
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
            yield some, model.SetupDifference(name, value, usual)
        return
    every = tuple(sorted(number for some in others.values() for number in some))
    yield every, model.SetupDifference(name, "", usual, len(others))


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
    found = defaultdict[str, defaultdict[str, list[Rank]]](lambda: defaultdict(list))
    setups = [(dict(key), some) for key, some in alike.items()]
    names = {name for setup, _ in setups for name in setup}
    for setup, some in setups:
        for name in names:
            if name in setup or name.startswith(_GIVEN):
                found[name][setup.get(name, "")] += some
    for name in (*_FIRST, *sorted(found.keys() - set(_FIRST))):
        if name in found:
            yield name, found[name]


def _programs(ranks: Sequence[Rank]) -> Iterator[tuple[str, _Values]]:
    """Yield the latest programs of functions on all devices; parts may run others."""
    everywhere = devices(ranks)
    found = defaultdict[str, defaultdict[str, list[Rank]]](lambda: defaultdict(list))
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


def lines(odd: Sequence[model.DeviatingRanks], width: int) -> Iterator[str]:
    """Yield *odd* in lines of at most *width* columns, one or two dozens at most."""
    for group in odd[:_MOST_GROUPS]:
        differ, have = (agreeing(verb, len(group.numbers)) for verb in _VERBS)
        yield from point(f"{differ}: {who(group)} {have} {sentence(group)}", width)
    for line in rest(odd, _MOST_GROUPS, "further group"):
        yield f"{line} of ranks that differ"
    if odd:
        yield from advice_lines(_ADVICE, width)


def sentence(odd: model.DeviatingRanks) -> str:
    """Return in what *odd* differ from most others."""
    found = [_clause(difference) for difference in odd.differences[:_MOST_NAMED]]
    more = rest(odd.differences, _MOST_NAMED, "more difference", "")
    return "; ".join([*found, *more])


def document(odd: Sequence[model.DeviatingRanks]) -> list[dict[str, Any]]:
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


def _clause(difference: model.SetupDifference) -> str:
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


_WRITER = 0
_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"))
_LOCAL |= {"overlay", "tmpfs", "ramfs"}

_WRITTEN = "process 0 alone writes to it."
_CACHE_ADVICE = {
    MissCause.DIRECTORIES: "Give all ranks the same JAX_COMPILATION_CACHE_DIR, on a "
    f"file system that all hosts share: {_WRITTEN}",
    MissCause.LOCAL: "JAX_COMPILATION_CACHE_DIR is on a disk of each host ({place}): "
    f"put it on a file system that all hosts share, since {_WRITTEN}",
    MissCause.KEYS: "No directory helps: this JAX makes the keys of the cache from the "
    "process's own part of the topology (jax-ml/jax#40940), so only process 0 finds "
    "what it wrote.",
    MissCause.NO_CACHE: "Set JAX_COMPILATION_CACHE_DIR, on a file system that all "
    f"hosts share: {_WRITTEN}",
    MissCause.UNKNOWN: "`jaxmon explain` on their hosts says what keeps the persistent "
    "cache from hitting.",
}


def repeated(ranks: Sequence[Rank], limits: Limits) -> model.RepeatedCompiles | None:
    """Return what *ranks* compiled in vain, `None` if it is little by *limits*."""
    least = limits.rank_repeated_seconds
    present = [rank for rank in ranks if not rank.ended]
    spent: defaultdict[int, float] = defaultdict(float)
    of_functions: defaultdict[str, float] = defaultdict(float)
    loaders: set[int] = set()
    for name, some in _alike(present).items():
        # It is the one that writes: what it loaded, all could have loaded. At the first
        # start a rank that is late loads what this one has just written.
        most = next((of.loaded for rank, of in some if rank.index == _WRITER), 0)
        for rank, of in some:
            missed = most - of.loaded
            if of.loaded >= most > 0:
                loaders.add(rank.index or 0)
            elif missed > 0 and of.compiled >= missed:
                seconds = of.compile_seconds * missed / of.compiled
                spent[rank.index or 0] += seconds
                of_functions[name] += seconds
    if spent:
        cause, place = _cause(present, set(spent))
    elif _are_restarted(present):
        # Without evidence that others loaded it, it has to be worth a cache.
        least = max(least, limits.rank_uncached_seconds)
        for name, some in _alike(present).items():
            for rank, of in some:
                spent[rank.index or 0] += of.compile_seconds
                of_functions[name] += of.compile_seconds
        cause, place = MissCause.NO_CACHE, ""
    longest = max(spent.values(), default=0.0)
    age = max((rank.observed_seconds for rank in present), default=0.0)
    # What compiling took days ago is of no interest.
    if not spent or longest < max(least, limits.rank_repeated_share * age):
        return None
    numbers = tuple(sorted(spent))
    return model.RepeatedCompiles(
        numbers,
        tuple(rank for rank in present if rank.index in spent),
        tuple(sorted(loaders - set(numbers))),
        max(of_functions, key=lambda name: of_functions[name]),
        len(of_functions),
        sum(spent.values()),
        longest,
        cause,
        place,
    )


def _alike(ranks: Sequence[Rank]) -> dict[str, list[tuple[Rank, SharedFunction]]]:
    found: defaultdict[tuple[str, str, int], list[tuple[Rank, SharedFunction]]]
    found = defaultdict(list)
    for rank in ranks:
        for of in rank.functions:
            if (times := of.compiled + of.loaded) > 0 and of.fingerprint:
                found[of.name, of.fingerprint, times].append((rank, of))
    usual: dict[str, list[tuple[Rank, SharedFunction]]] = {}
    for (name, _, _), some in found.items():
        if len(some) > max(len(usual.get(name, ())), 1):
            usual[name] = some
    return usual


def _cause(ranks: Sequence[Rank], late: set[int]) -> tuple[MissCause, str]:
    if _have_own_keys(ranks):
        return MissCause.KEYS, ""
    setups = {id(rank.setup): rank.setup for rank in ranks}.values()
    places = {
        (setup.get("jax_compilation_cache_dir"), setup.get("cache_file_system"))
        for setup in setups
        if setup
    }
    if len({directory for directory, _ in places}) > 1:
        return MissCause.DIRECTORIES, ""
    kinds = {kind for _, kind in places if kind}
    # Ranks of one host read the same directory.
    hosts = {rank.host for rank in ranks if rank.index in late}
    others = {rank.host for rank in ranks if rank.index not in late}
    if kinds and kinds <= _LOCAL and not hosts & others:
        return MissCause.LOCAL, min(kinds)
    return MissCause.UNKNOWN, ""


def _have_own_keys(ranks: Sequence[Rank]) -> bool:
    return len({rank.key_part for rank in ranks if rank.key_part}) > 1


def _are_restarted(ranks: Sequence[Rank]) -> bool:
    """Return whether the job was started before, and no rank has a cache to help."""
    # All would compile, but for the first, and that would wait for the others.
    if not ranks or _have_own_keys(ranks):
        return False
    return all(
        rank.restarts and rank.setup and not rank.setup.get("jax_compilation_cache_dir")
        for rank in ranks
    )


def compile_lines(found: model.RepeatedCompiles | None, width: int) -> Iterator[str]:
    """Yield *found* in lines of at most *width* columns."""
    if found is not None:
        yield from point(_compile_sentence(found), width)
        yield from advice_lines(advice(found), width)


def _compile_sentence(found: model.RepeatedCompiles) -> str:
    more = found.functions - 1
    what = short(found.function) + (f" and {more:,} more" if more else "")
    spent = f"{duration(found.longest)} each, at most"
    if len(found.numbers) == 1:
        spent = duration(found.longest)
    whole = f"; {duration(found.seconds)} in all" if len(found.numbers) > 1 else ""
    if found.cause is MissCause.NO_CACHE:
        return (
            f"{who(found)} compiled {what} again after the restart, for {spent}"
            f"{whole}: there is no persistent cache"
        )
    return (
        f"{who(found)} compiled {what}, which {numbers(found.loaded)} loaded from the "
        f"persistent cache, for {spent}{whole}"
    )


def advice(found: model.RepeatedCompiles) -> str:
    """Return what to do about it."""
    return _CACHE_ADVICE[found.cause].format(place=found.place)


def compile_document(found: model.RepeatedCompiles | None) -> dict[str, Any] | None:
    """Return *found* as JSON types."""
    if found is None:
        return None
    return {
        "verdict": _compile_sentence(found),
        "action": advice(found),
        "cause": found.cause.value,
        "ranks": found.numbers[:MOST_NUMBERS],
        "number": len(found.numbers),
        "loaded": found.loaded[:MOST_NUMBERS],
        **chosen(found, "function functions seconds"),
        "longest_seconds": found.longest,
    }
