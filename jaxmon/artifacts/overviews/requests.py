"""Requests, queues and batches of a service."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.overviews.model import Overview
from jaxmon.promql import eq, events, gauge, histogram, ne


_BY = ("job", "route")
_SUCCESS = eq("outcome", "success")


REQUESTS = Overview(
    "job",
    catalog.REQUESTS,
    "rate5m",
    lambda window: window.per_second(events.REQUESTS.within(window.recent)).sum(
        *_BY, "outcome", "start"
    ),
)
REQUEST_SECONDS = Overview(
    "job",
    catalog.REQUEST_SECONDS,
    "increase5m",
    lambda window: (
        histogram(catalog.REQUEST_SECONDS, _SUCCESS, eq("start", "warm"))
        .buckets(*_BY, "start", window=window.recent)
        .or_(
            histogram(
                catalog.REQUEST_SECONDS, _SUCCESS, ne("start", "warm"), rare=True
            ).buckets(*_BY, "start", window=window.recent, known=window.known)
        )
    ),
)
REQUESTS_IN_PROGRESS = Overview(
    "job",
    catalog.REQUESTS_IN_PROGRESS,
    "sum",
    lambda _: gauge(catalog.REQUESTS_IN_PROGRESS).sum(*_BY),
)
REQUEST_OLDEST = Overview(
    "job",
    catalog.REQUEST_OLDEST_SECONDS,
    "max",
    lambda _: gauge(catalog.REQUEST_OLDEST_SECONDS).max(*_BY),
)
QUEUE_DEPTH = Overview(
    "job",
    catalog.QUEUE_DEPTH,
    "sum",
    lambda _: gauge(catalog.QUEUE_DEPTH).sum("job", "queue"),
)
BATCH_FILL = Overview(
    "job",
    catalog.BATCH_FILL_RATIO,
    "mean5m",
    lambda window: histogram(catalog.BATCH_FILL_RATIO).mean(*_BY, window=window.recent),
)

OFTEN = (
    *(REQUESTS, REQUEST_SECONDS, REQUESTS_IN_PROGRESS, REQUEST_OLDEST),
    *(QUEUE_DEPTH, BATCH_FILL),
)
