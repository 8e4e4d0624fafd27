"""
What a program says about itself: requests, what they wait in, and loops that train.
"""

from __future__ import annotations

from jaxmon.catalog.model import Metric
from jaxmon.catalog.values import (
    REQUEST_OUTCOMES,
    STARTS,
)


# --- Requests --------------------------------------------------------------------

REQUEST_SECONDS = Metric(
    "jaxmon_request_seconds",
    "histogram",
    "Time from request to response; cold when a compile happened on its behalf.",
    unit="seconds",
    labels=("route", "start"),
    # 0.2 s and 1 s are thresholds of the default SLOs.
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    group="Requests",
    values=(("start", STARTS),),
)
REQUESTS = Metric(
    "jaxmon_requests_total",
    "counter",
    "Requests that ended, by outcome; client_error is the caller's fault.",
    labels=("route", "outcome", "start"),
    group="Requests",
    values=(("outcome", REQUEST_OUTCOMES), ("start", STARTS)),
)
REQUESTS_IN_PROGRESS = Metric(
    "jaxmon_requests_in_progress",
    "gauge",
    "Requests being served now.",
    labels=("route",),
    group="Requests",
)
QUEUE_DEPTH = Metric(
    "jaxmon_queue_depth",
    "gauge",
    "How many wait in a queue of the program.",
    labels=("queue",),
    group="Requests",
)
BATCH_FILL_RATIO = Metric(
    "jaxmon_batch_fill_ratio",
    "histogram",
    "What was asked for of what a batch computes, padding included.",
    unit="ratio",
    labels=("route",),
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 1.0),
    group="Requests",
)

# --- Training --------------------------------------------------------------------

STEP_SECONDS = Metric(
    "jaxmon_step_seconds",
    "histogram",
    "Time from one step of a loop to the next, waiting for data included.",
    unit="seconds",
    labels=("loop",),
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    group="Training",
)
STEPS = Metric(
    "jaxmon_steps_total",
    "counter",
    "Steps of a loop that were finished.",
    labels=("loop",),
    group="Training",
)
ITEMS = Metric(
    "jaxmon_items_total",
    "counter",
    "Items (tokens, images, sequences) that a loop worked through.",
    labels=("loop", "item"),
    group="Training",
)
DATA_WAIT_SECONDS = Metric(
    "jaxmon_data_wait_seconds_total",
    "counter",
    "Time that a loop waited for its next batch.",
    unit="seconds",
    labels=("loop",),
    group="Training",
)
LAST_STEP_TIMESTAMP_SECONDS = Metric(
    "jaxmon_last_step_timestamp_seconds",
    "gauge",
    "When a running loop began or last finished a step, as a Unix timestamp.",
    unit="seconds",
    labels=("loop",),
    group="Training",
)
TIME_SECONDS = Metric(
    "jaxmon_time_seconds_total",
    "counter",
    "Wall time of the program, split by what it was doing.",
    unit="seconds",
    labels=("activity",),
    group="Training",
)
