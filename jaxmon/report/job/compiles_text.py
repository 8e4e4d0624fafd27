"""The words for what ranks of a job compiled in vain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxmon.formats.layout import INDENT, duration, wrapped
from jaxmon.report.job.compiles import Cause, Wasted
from jaxmon.report.job.words import numbers, short, who


_MOST_NUMBERS = 1000
_WRITER = "process 0 alone writes to it."
_ADVICE = {
    Cause.DIRECTORIES: "Give all ranks the same JAX_COMPILATION_CACHE_DIR, on a file "
    f"system that all hosts share: {_WRITER}",
    Cause.LOCAL: "JAX_COMPILATION_CACHE_DIR is on a disk of each host ({place}): put "
    f"it on a file system that all hosts share, since {_WRITER}",
    Cause.KEYS: "No directory helps: this JAX makes the keys of the cache from the "
    "process's own part of the topology (jax-ml/jax#40940), so only process 0 finds "
    "what it wrote.",
    Cause.NO_CACHE: "Set JAX_COMPILATION_CACHE_DIR, on a file system that all hosts "
    f"share: {_WRITER}",
    Cause.UNKNOWN: "`jaxmon explain` on their hosts says what keeps the persistent "
    "cache from hitting.",
}


def lines(found: Wasted | None, width: int) -> Iterator[str]:
    """Yield *found* in lines of at most *width* columns."""
    if found is not None:
        yield from wrapped(said(found), width, first=INDENT, rest=INDENT * 2)
        yield from wrapped(advice(found), width, first=INDENT * 2, rest=INDENT * 2)


def said(found: Wasted) -> str:
    """Return who compiled what, and what that took."""
    more = found.functions - 1
    what = short(found.function) + (f" and {more:,} more" if more else "")
    spent = f"{duration(found.longest)} each, at most"
    if len(found.numbers) == 1:
        spent = duration(found.longest)
    whole = f"; {duration(found.seconds)} in all" if len(found.numbers) > 1 else ""
    if found.cause is Cause.NO_CACHE:
        return (
            f"{who(found)} compiled {what} again after the restart, for {spent}"
            f"{whole}: there is no persistent cache"
        )
    return (
        f"{who(found)} compiled {what}, which {numbers(found.loaded)} loaded from the "
        f"persistent cache, for {spent}{whole}"
    )


def advice(found: Wasted) -> str:
    """Return what to do about it."""
    return _ADVICE[found.cause].format(place=found.place)


def document(found: Wasted | None) -> dict[str, Any] | None:
    """Return *found* as JSON types."""
    if found is None:
        return None
    return {
        "verdict": said(found),
        "action": advice(found),
        "cause": found.cause.value,
        "ranks": found.numbers[:_MOST_NUMBERS],
        "number": len(found.numbers),
        "loaded": found.loaded[:_MOST_NUMBERS],
        "function": found.function,
        "functions": found.functions,
        "seconds": found.seconds,
        "longest_seconds": found.longest,
    }
