"""Application metrics: requests, queues, batches and training loops."""

from __future__ import annotations

from jaxmon.catalog import model, values
from jaxmon.catalog.model import AGENT, Sheet


# Thirteen bounds for each decade, on average 19 % apart.
_DECADE = (1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 3.5, 4.2, 5.0, 6.0, 7.0, 8.5)

_requests = Sheet("Requests", AGENT, "route")

REQUEST_SECONDS = _requests.histogram(
    "Request latency; cold if a compile ran on its behalf, delayed if it waited for "
    "another, else warm.",
    ("outcome", values.REQUEST_OUTCOMES),
    ("start", values.STARTS),
    # 0.2 s and 1 s are thresholds of the default SLOs. What crosses a bound changes an
    # estimate by less than what counts as slow, `Limits.slow_requests`.
    buckets=(
        *(0.005, 0.01, 0.025, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.5),
        *(5.0, 7.0, 10.0, 15.0, 30.0),
    ),
    few=(0.05, 0.2, 1.0, 5.0),
)
REQUESTS = _requests.counter(
    "Finished requests, by outcome; client_error is the client's fault.",
    ("outcome", values.REQUEST_OUTCOMES),
    ("start", values.STARTS),
)
REQUESTS_IN_PROGRESS = _requests.gauge("Requests in progress.")
REQUEST_OLDEST_SECONDS = _requests.gauge(
    "Age of the oldest request in progress; 0 if none."
)
INVOCATIONS = _requests.counter(
    "Invocations of a serverless function; a cold instance start is the first of a "
    "process.",
    ("instance_start", values.INSTANCE_STARTS),
)
INSTANCE_START_SECONDS = Sheet("Requests").histogram(
    "Time from the start of a process to its first invocation.",
    buckets=(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
    few=(1.0, 5.0, 30.0),
)
QUEUE_DEPTH = Sheet("Requests").gauge(
    "Number of items waiting in a queue of the program.", "queue"
)
BATCH_FILL_RATIO = _requests.histogram(
    "Batch fill: requested items as a fraction of the batch's capacity.",
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 1.0),
    few=(0.5, 0.9, 1.0),
)

_loops = Sheet("Training", AGENT, "loop")
_activities = Sheet("Training", AGENT, "activity")
_checkpoints = Sheet("Training", AGENT, ("operation", values.CHECKPOINT_DIRECTIONS))
_values = Sheet("Training", AGENT, "name")

STEP_SECONDS = _loops.histogram(
    "Step time, from one step of a loop to the next, including data wait.",
    # Steps are alike: with wider ones, most are in a single bucket.
    buckets=(
        *(0.001, 0.002, 0.003, 0.005),
        *(float(f"{step}e{power}") for power in (-2, -1, 0, 1) for step in _DECADE),
        100.0,
    ),
    few=(0.01, 0.1, 1.0, 10.0),
)
STEPS = _loops.counter("Completed steps of a loop.")
ITEMS = _loops.counter("Items (tokens, images, sequences) processed by a loop.", "item")
DATA_WAIT_SECONDS = _loops.counter("Time a loop spent waiting for its next batch.")
STEP_AGE_SECONDS = _loops.gauge(
    "Time since a running loop started or last completed a step, by the process's own "
    "clock."
)
TIME_SECONDS = _activities.counter("Wall time of the program, by activity.")
ACTIVITY_RUNNING_SECONDS = _activities.gauge(
    "Age of the oldest activity of this name in progress; 0 if none."
)
ACTIVITY_AGE_SECONDS = _activities.gauge(
    "Time since an activity of this name last finished without an exception; absent "
    "if none has."
)
CHECKPOINT_SECONDS = Sheet("Training").histogram(
    "Time of an Orbax restore or save, what of a save blocked the program, and what of "
    "that was waiting for another.",
    ("operation", values.CHECKPOINT_OPERATIONS),
    buckets=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0),
    few=(1.0, 10.0, 100.0, 1000.0),
)
CHECKPOINT_BYTES = _checkpoints.counter(
    "Array data that Orbax saved or restored in this process, before compression."
)
CHECKPOINT_FAILURES = _checkpoints.counter(
    "Orbax checkpoints that began and did not succeed."
)
VALUE = _values.gauge(
    "Latest finite value of a quantity that the program logs, such as its loss."
)
VALUE_NONFINITE = _values.counter(
    "Values of a logged quantity that were NaN or infinite."
)
VALUE_NONFINITE_RUN = _values.gauge(
    "Non-finite values of a logged quantity since its last finite one, 0 if it never "
    "was."
)
VALUE_SPIKES = _values.counter(
    "Values of a logged quantity far above the median of those before them."
)

globals().update(model.named(globals()))
