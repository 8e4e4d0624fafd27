"""
What dashboards show of many processes, recorded: sums, extremes and quantiles by
service or host.

A graph over six hours evaluates its query 720 times for each viewer. Of 1,000 processes
that is minutes of CPU; of what was recorded of them, milliseconds. What is recorded has
no function, device or worker to choose: those are for boards about one service.
"""

from __future__ import annotations

from jaxmon.host.formats import durations
from jaxmon_alerts.overviews import hosts, services
from jaxmon_alerts.overviews.model import Windows
from jaxmon_alerts.slo.recording import RuleGroup


# Grafana draws a series for five minutes after its last sample.
_GROUPS = (
    ("", "1m", (*services.OFTEN, *hosts.OFTEN)),
    ("-hosts", "2m", (*hosts.PROCESSES, *hosts.ACCELERATORS)),
    ("-slow", "4m", (*services.SELDOM, *hosts.SELDOM, *services.COLLECTIVES)),
)
OVERVIEWS = tuple(overview for _, _, series in _GROUPS for overview in series)


def overview_groups(scale: float) -> list[RuleGroup]:
    """Return the rules; *scale* divides windows and intervals, names keep them."""
    windows = Windows.scaled(scale)
    return [
        RuleGroup(
            f"jaxmon-overviews{suffix}",
            durations.scaled(interval, scale),
            tuple(overview.rule(windows) for overview in series),
        )
        for suffix, interval, series in _GROUPS
    ]
