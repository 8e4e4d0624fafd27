"""The groups of rules that record what dashboards show of many processes."""

from __future__ import annotations

from jaxmon.artifacts.overviews import (
    accelerators,
    alerting,
    collectives,
    flops,
    functions,
    processes,
    requests,
    training,
    use,
)
from jaxmon.artifacts.overviews.model import Windows
from jaxmon.artifacts.slo.rules import Group
from jaxmon.formats import durations


# Grafana draws a series for five minutes after its last sample.
_GROUPS = (
    ("", "1m", (*requests.OFTEN, *training.OFTEN, *flops.OFTEN, *processes.OFTEN)),
    (
        "-hosts",
        "2m",
        (*processes.HOSTS, *accelerators.HOSTS, *use.HOSTS, *alerting.HOSTS),
    ),
    ("-slow", "4m", (*functions.SELDOM, *accelerators.SELDOM, *collectives.SELDOM)),
)
OVERVIEWS = tuple(one for _, _, series in _GROUPS for one in series)


def overview_groups(scale: float) -> list[Group]:
    """Return the rules; *scale* divides windows and intervals, names keep them."""
    windows = Windows.scaled(scale)
    return [
        Group(
            f"jaxmon-overviews{suffix}",
            durations.scaled(interval, scale),
            tuple(one.rule(windows) for one in series),
        )
        for suffix, interval, series in _GROUPS
    ]
