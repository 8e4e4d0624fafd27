"""The groups of rules that record what dashboards show of many processes."""

from __future__ import annotations

from jaxmon.artifacts.overviews import (
    accelerators,
    functions,
    processes,
    requests,
    training,
    use,
)
from jaxmon.artifacts.overviews.model import Windows
from jaxmon.artifacts.slo import durations
from jaxmon.artifacts.slo.rules import Group


_OFTEN = (
    *requests.OFTEN,
    *training.OFTEN,
    *processes.OFTEN,
    *accelerators.OFTEN,
    *use.OFTEN,
)
_SELDOM = (*functions.SELDOM, *accelerators.SELDOM)
OVERVIEWS = (*_OFTEN, *_SELDOM)


def overview_groups(scale: float) -> list[Group]:
    """Return the rules; *scale* divides windows and intervals, names keep them."""
    windows = Windows.scaled(scale)
    return [
        Group(
            f"jaxmon-overviews{suffix}",
            durations.scaled(interval, scale),
            tuple(one.rule(windows) for one in series),
        )
        for suffix, interval, series in (("", "1m", _OFTEN), ("-slow", "2m", _SELDOM))
    ]
