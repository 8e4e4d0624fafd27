"""Alerts on runs over all their attempts."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.artifacts.alerts.model import Alert
from jaxmon.artifacts.slo.severity import TICKET
from jaxmon.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import counter, eq, gauge_over


_BY = ("job", "run")
# Between two attempts there is no series.
_RECENT, _AROUND = "15m", "1h"
# So much of the window must have been added to the totals: if they have begun anew,
# their differences mean nothing until that, too, is a window ago.
_ADDED = 0.75


def of_runs(limits: Limits) -> Iterator[Alert]:
    """Yield the alerts."""
    yield run_no_progress(limits)
    yield goodput_low(limits)


def run_no_progress(limits: Limits) -> Alert:
    """Alert on a run that restarts again and again, and gets no further."""
    attempts = gauge_over(catalog.RUN_FRUITLESS_ATTEMPTS, "last", _RECENT)
    return Alert(
        name="JaxmonRunNoProgress",
        expr=attempts.max(*_BY) > limits.fruitless_attempts,
        severity=TICKET,
        description="A run restarts again and again without a new step.",
        summary=(
            "Run {{ $labels.run }} of job {{ $labels.job }} is in attempt "
            "{{ $value | humanize }} in a row without a new step."
        ),
    )


def goodput_low(limits: Limits) -> Alert:
    """Alert on a run that spends too little of its wall time on new steps."""
    window = limits.goodput_window
    step = counter(catalog.RUN_SECONDS, eq("activity", "step"))
    whole = counter(catalog.RUN_SECONDS)
    steps = counter(catalog.RUN_STEPS).latest(_RECENT).max(*_BY) > 0

    (productive, spent), (productive_then, spent_then) = (
        (
            step.latest(length, back=back).max(*_BY),
            whole.latest(length, back=back).max(*_BY, "activity").sum(*_BY),
        )
        for length, back in ((_RECENT, ""), (_AROUND, window))
    )
    added = (spent - spent_then) > durations.seconds(window) * _ADDED
    share = (productive - productive_then) / added
    return Alert(
        name="JaxmonGoodputLow",
        # A run that marks no steps has no goodput.
        expr=share.and_(steps, *_BY) < limits.goodput,
        for_=limits.goodput_for,
        severity=TICKET,
        description="A run spends little of its time on steps that last.",
        summary=(
            "Run {{ $labels.run }} of job {{ $labels.job }} spent "
            f"{{{{ $value | humanizePercentage }}}} of the last {window} on new steps."
        ),
    )
