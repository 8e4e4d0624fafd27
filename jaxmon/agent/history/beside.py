"""What happened beside a slowdown, when it began: not its cause, but where to look."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from jaxmon import catalog
from jaxmon.exposition.families import Family


# Seconds before the first slow time, and after, in which something is beside it.
_BEFORE, _AFTER = 60.0, 30.0
_MOST = 3
_MOST_WAITING = 0.15
_HARMLESS = ("gpu_idle", "none", "applications_clocks_setting")


def compiled(compiles: Iterable[tuple[float, str]], since: float) -> Iterator[str]:
    """
    Yield which functions were compiled then.

    Args:
        compiles: Unix time and function of each.
        since: Unix time of the first slow time.
    """
    found = {name for time, name in compiles if _is_beside(time, since)}
    if found:
        yield f"{_named(sorted(found))} {_were(found)} compiled"


def started(others: Iterable[tuple[str, float]], since: float) -> Iterator[str]:
    """
    Yield which programs began to run then.

    Args:
        others: name and Unix time of the first sample, of each other program.
        since: Unix time of the first slow time.
    """
    found = {name for name, began in others if _is_beside(began, since)}
    if found:
        yield f"{_named(sorted(found))} began to run"


def crowded(before: float | None, now: float | None) -> Iterator[str]:
    """Yield whether threads wait longer for processors, as fractions of the time."""
    if now is not None and now > (before or 0.0) + _MOST_WAITING:
        earlier = "" if before is None else f", {before:.0%} before"
        yield f"threads here wait for a processor {now:.0%} of the time{earlier}"


def throttled(read: Callable[[], Iterable[Family]]) -> Iterator[str]:
    """Yield why GPUs of this process run at lower clocks, if the driver is read."""
    reasons = {
        match[1]
        for family in read()
        if family.metric is catalog.GPU_CLOCK_EVENT_ACTIVE
        for series, value in family.samples
        if value and (match := re.search('reason="([^"]*)"', series))
    }
    if found := sorted(reasons.difference(_HARMLESS)):
        yield f"the GPU is throttled ({', '.join(found)})"


def _is_beside(time: float, since: float) -> bool:
    return -_BEFORE <= time - since <= _AFTER


def _named(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _were(names: set[str]) -> str:
    return "was" if len(names) == 1 else "were"
