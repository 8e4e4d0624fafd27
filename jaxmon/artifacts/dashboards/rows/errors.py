"""Errors of calls, and starts of processes."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter


def oncall() -> Row:
    """Return what fails, and what starts over."""
    # Also of a function whose first call fails: its series begin at 1.
    errors = counter(catalog.ERRORS, *q.FUNCTION).mishaps()
    # Long enough for a process that is kept waiting before it may start again.
    starts = promql.gauge_changes(catalog.PROCESS_START_TIME_SECONDS, "10m", *q.PROCESS)
    return Row(
        6,
        "Errors and restarts",
        (
            Panel(
                id=501,
                title="Errors by kind",
                kind="timeseries",
                text="Exceptions that left a jitted call, within an interval of the "
                "graph. oom: see device memory; nan and invalid_argument: see the "
                "input; internal: see the driver.",
                targets=(Target(errors.sum("kind"), "{{kind}}"),),
                width=8,
                no_value="No error",
                stacked="normal",
                alerts=("JaxmonOutOfMemory",),
            ),
            Panel(
                id=502,
                title="Errors by function",
                kind="timeseries",
                text="The ten functions that raise most, within an interval of the "
                "graph.",
                targets=(Target(errors.sum("function").topk(10), "{{function}}"),),
                width=8,
                no_value="No error",
            ),
            Panel(
                id=503,
                title="Starts of processes",
                kind="timeseries",
                text="Processes that started anew in a slot within ten minutes, on the "
                "twenty hosts with most. Several: a crash loop; see the log.",
                targets=(
                    Target(
                        starts.sum("job", "instance").topk(20),
                        "{{job}} {{instance}}",
                    ),
                ),
                width=8,
            ),
        ),
    )


def debug() -> Row:
    """Return which function fails how."""
    raised = counter(catalog.ERRORS, *q.FUNCTION)
    by = ("function", "kind")
    return Row(
        17,
        "Errors",
        (
            Panel(
                id=1701,
                title="Errors by function and kind",
                kind="table",
                text="Exceptions within the chosen time. Their messages are in the log "
                "of the process.",
                # Also of a function whose first call fails: its series begin at 1.
                targets=(Target(raised.mishaps("$__range").sum(*by), "Errors"),),
                labels=by,
                no_value="No error",
                sort="Errors",
            ),
            Panel(
                id=1702,
                title="Errors over time",
                kind="timeseries",
                text="Exceptions within an interval of the graph. What fails together "
                "began together: compare with starts of processes, and with other "
                "functions.",
                targets=(
                    Target(raised.mishaps().sum(*by).topk(10), "{{function}} {{kind}}"),
                ),
                alerts=("JaxmonOutOfMemory",),
            ),
        ),
    )
