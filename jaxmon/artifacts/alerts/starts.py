"""Recently started processes."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts.model import PROCESS
from jaxmon.artifacts.promql import Expr, gauge
from jaxmon.artifacts.slo import durations


def youngest(within: str, *, restarts: float, hour: str) -> Expr:
    """
    Return the age of the youngest process of each job that has one.

    Args:
        within: age below which a process is young.
        restarts: of one process within *hour*; more count as a crash loop.
        hour: one hour, scaled.
    """
    started = gauge(catalog.PROCESS_START_TIME_SECONDS)
    # Only agents have runtime information: a new sidecar is no new process.
    age = (promql.time() - started).and_(gauge(catalog.RUNTIME_INFO), *PROCESS)
    young = age < durations.seconds(within)
    changes = promql.gauge_changes(catalog.PROCESS_START_TIME_SECONDS, hour)
    return young.min("job").unless(changes.max("job") > restarts)
