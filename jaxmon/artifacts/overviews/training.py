"""Loops, activities and logged values of a training job."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.overviews.model import PROCESS, Overview
from jaxmon.promql import counter, eq, events, gauge, histogram


_BY = ("job", "loop")
_NAMED = ("job", "name")


STEPS = Overview(
    "job",
    catalog.STEPS,
    "rate5m",
    lambda window: counter(catalog.STEPS).rate(window.recent).sum(*_BY),
)
STEP_SECONDS = Overview(
    "job",
    catalog.STEP_SECONDS,
    "increase5m",
    lambda window: histogram(catalog.STEP_SECONDS).buckets(*_BY, window=window.recent),
)
STEP_MEAN = Overview(
    "job",
    catalog.STEP_SECONDS,
    "mean5m",
    # None where no step was made.
    lambda window: (
        histogram(catalog.STEP_SECONDS).mean(*_BY, window=window.recent) >= 0
    ),
)
DATA_WAIT = Overview(
    "job",
    catalog.DATA_WAIT_SECONDS,
    "ratio5m",
    lambda window: (
        counter(catalog.DATA_WAIT_SECONDS).rate(window.recent).sum(*_BY)
        / (histogram(catalog.STEP_SECONDS).sum.rate(window.recent).sum(*_BY) > 0)
    ),
)
STEP_AGE = Overview(
    "job",
    catalog.STEP_AGE_SECONDS,
    "max",
    lambda _: gauge(catalog.STEP_AGE_SECONDS).max(*_BY),
)
ACTIVITY = Overview(
    "job",
    catalog.TIME_SECONDS,
    "rate5m",
    lambda window: (
        counter(catalog.TIME_SECONDS).rate(window.recent).sum("job", "activity")
    ),
)
# Of processes in a loop: a server waits for requests.
WAITING = Overview(
    "job",
    catalog.WALL_SECONDS,
    "max_rate5m",
    lambda window: (
        counter(catalog.WALL_SECONDS)
        .rate(window.recent)
        .sum(*PROCESS, "state")
        .and_(gauge(catalog.STEP_AGE_SECONDS), *PROCESS)
        .max("job", "state")
    ),
)
CHECKPOINT_AGE = Overview(
    "job",
    catalog.ACTIVITY_AGE_SECONDS,
    "checkpoint_min",
    lambda _: gauge(catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint")).min(
        "job"
    ),
)
ITEMS = Overview(
    "job",
    catalog.ITEMS,
    "rate5m",
    lambda window: counter(catalog.ITEMS).rate(window.recent).sum(*_BY, "item"),
)
VALUE = Overview(
    "job", catalog.VALUE, "avg", lambda _: gauge(catalog.VALUE).avg(*_NAMED)
)
NONFINITE = Overview(
    "job",
    catalog.NONFINITE_OUTPUTS,
    "max",
    lambda _: gauge(catalog.NONFINITE_OUTPUTS).max(*_NAMED),
)
NONFINITE_RUN = Overview(
    "job",
    catalog.VALUE_NONFINITE_RUN,
    "max",
    lambda _: gauge(catalog.VALUE_NONFINITE_RUN).max(*_NAMED),
)
SPIKES = Overview(
    "job",
    catalog.VALUE_SPIKES,
    "increase5m",
    lambda window: events.SPIKES.within(window.recent).sum(*_NAMED),
)

OFTEN = (
    *(STEPS, STEP_SECONDS, STEP_MEAN, DATA_WAIT, STEP_AGE, ACTIVITY, WAITING),
    *(CHECKPOINT_AGE, ITEMS),
    *(VALUE, NONFINITE, NONFINITE_RUN, SPIKES),
)
