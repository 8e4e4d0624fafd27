"""Errors of calls, and starts of processes."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, table, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.promql import counter


def oncall() -> Row:
    """Return what fails, and what starts over."""
    # Also of a function whose first call fails: its series begin at 1.
    errors = counter(catalog.ERRORS, *q.FUNCTION).mishaps()
    # Long enough for a process that is kept waiting before it may start again.
    starts = promql.gauge_changes(catalog.PROCESS_START_TIME_SECONDS, "10m", *q.PROCESS)
    return row(
        6,
        "Errors and restarts",
        line(
            timeseries(
                501,
                "Errors by kind",
                Target(errors.sum("kind"), "{{kind}}"),
                text="Exceptions that left a jitted call, within an interval of the "
                "graph. oom: see device memory; nan and invalid_argument: see the "
                "input; internal: see the driver.",
                no_value="No error",
                stacked="normal",
                alerts=("JaxmonOutOfMemory",),
            ),
            timeseries(
                502,
                "Errors by function",
                Target(errors.sum("function").topk(10), "{{function}}"),
                text="The ten functions that raise most, within an interval of the "
                "graph.",
                no_value="No error",
            ),
            timeseries(
                503,
                "Starts of processes",
                Target(starts.sum("job", "instance").topk(20), "{{job}} {{instance}}"),
                text="Processes that started anew in a slot within ten minutes, on the "
                "twenty hosts with most. Several: a crash loop; see the log.",
            ),
        ),
    )


def debug() -> Row:
    """Return which function fails how."""
    raised = counter(catalog.ERRORS, *q.FUNCTION)
    by = ("function", "kind")
    return row(
        17,
        "Errors",
        line(
            table(
                1701,
                "Errors by function and kind",
                # Also of a function whose first call fails: its series begin at 1.
                Target(raised.mishaps("$__range").sum(*by), "Errors"),
                text="Exceptions within the chosen time. Their messages are in the log "
                "of the process.",
                labels=by,
                no_value="No error",
                sort="Errors",
            ),
            timeseries(
                1702,
                "Errors over time",
                Target(raised.mishaps().sum(*by).topk(10), "{{function}} {{kind}}"),
                text="Exceptions within an interval of the graph. What fails together "
                "began together: compare with starts of processes, and with other "
                "functions.",
                alerts=("JaxmonOutOfMemory",),
            ),
        ),
    )
