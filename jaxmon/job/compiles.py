"""
What ranks of a job compiled although the first had it from the persistent cache.

All processes of a job compile the same programs at the same time. The first start
cannot avoid that: only process 0 writes to the cache. At the next one all can load
them, if they read the same directory; those that compile keep the others waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from jaxmon.facts.rank import Rank, SharedFunction
from jaxmon.host.formats.layout import duration
from jaxmon.job.model import MissCause, RepeatedCompiles
from jaxmon.job.words import MOST_NUMBERS, advice_lines, numbers, point, short, who
from jaxmon.limits import Limits


_WRITER = 0
_LOCAL = frozenset(
    (
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"),
        *("overlay", "tmpfs", "ramfs"),
    )
)


_WRITTEN = "process 0 alone writes to it."
_ADVICE = {
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


def repeated(ranks: Sequence[Rank], limits: Limits) -> RepeatedCompiles | None:
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
    return RepeatedCompiles(
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
    """Return functions that several ranks compiled or loaded as often as most have."""
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
    """Return why the ranks that are *late* did not find it, and the file system."""
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


def lines(found: RepeatedCompiles | None, width: int) -> Iterator[str]:
    """Yield *found* in lines of at most *width* columns."""
    if found is not None:
        yield from point(sentence(found), width)
        yield from advice_lines(advice(found), width)


def sentence(found: RepeatedCompiles) -> str:
    """Return who compiled what, and what that took."""
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


def advice(found: RepeatedCompiles) -> str:
    """Return what to do about it."""
    return _ADVICE[found.cause].format(place=found.place)


def document(found: RepeatedCompiles | None) -> dict[str, Any] | None:
    """Return *found* as JSON types."""
    if found is None:
        return None
    return {
        "verdict": sentence(found),
        "action": advice(found),
        "cause": found.cause.value,
        "ranks": found.numbers[:MOST_NUMBERS],
        "number": len(found.numbers),
        "loaded": found.loaded[:MOST_NUMBERS],
        "function": found.function,
        "functions": found.functions,
        "seconds": found.seconds,
        "longest_seconds": found.longest,
    }
