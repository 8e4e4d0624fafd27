"""What services do: requests, loops, functions, FLOPs and collectives of NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.facts.run import OUTSIDE
from jaxmon.host.formats import durations
from jaxmon.promql import (
    Expr,
    Matcher,
    RecordedSeries,
    counter,
    eq,
    events,
    gauge,
    histogram,
    ne,
    ratio,
    re,
    recorded,
)
from jaxmon.symptoms.steps import (
    MEAN,
    PROGRAM,
    SAMPLES,
    SECONDS,
    VERSION,
    VERSIONS,
)
from jaxmon_alerts.overviews.model import (
    PROCESS,
    OverviewRule,
    Windows,
    counted,
    gauged,
    rated,
    rising,
    rules_of,
)


# --- requests, queues and batches ---------------------------------------------------

_ROUTE = ("job", "route")
_SUCCESS = eq("outcome", "success")


REQUESTS = rising(events.REQUESTS, *_ROUTE, "outcome", "start")
SERVED = OverviewRule(
    catalog.REQUESTS,
    "served5m",
    REQUESTS(ne("outcome", "client_error")).sum("job"),
    text="Rate per second within 5m without errors of clients",
)
FAILED = OverviewRule(
    catalog.REQUESTS,
    "failed5m",
    REQUESTS(eq("outcome", "error")).sum("job").or_(SERVED() * 0),
    text="Rate per second within 5m of those that failed, or 0,",
)
FAILING = OverviewRule(
    catalog.REQUESTS,
    "failing5m",
    ratio(FAILED(), SERVED()),
    text="Fraction within 5m that failed, of those without errors of clients,",
)
REQUEST_SECONDS = OverviewRule(
    catalog.REQUEST_SECONDS,
    "increase5m",
    lambda window: (
        histogram(catalog.REQUEST_SECONDS, _SUCCESS, ne("start", "warm"))
        .bucket.born(window.recent, memory=window.memory)
        .or_(
            histogram(catalog.REQUEST_SECONDS, _SUCCESS).bucket.increase(window.recent)
        )
        .sum("le", *_ROUTE, "start")
    ),
)
# --- releases, one against another: processes that say theirs ---------------------

_RELEASE = ("job", "release", "jax")
_ANSWERED = histogram(catalog.REQUEST_SECONDS, ne("outcome", "client_error"))
_SAYS = (
    gauge(catalog.RUNTIME_INFO, ne("release", ""))
    .max(*PROCESS, *_RELEASE[1:])
    .record(
        *("worker", catalog.RUNTIME_INFO, "release"),
        "Release and version of JAX of a process that names its release.",
    )
)


def _of_releases(rate: Expr) -> Expr:
    return rate.joined(_SAYS, on=PROCESS, take=_RELEASE[1:]).sum(*_RELEASE)


def _requests_of(window: Windows, matcher: Matcher) -> Expr:
    return _of_releases(counter(catalog.REQUESTS, matcher).rate(window.recent))


RELEASES = OverviewRule(
    catalog.RUNTIME_INFO,
    "releases",
    gauge(catalog.RUNTIME_INFO).count(*_RELEASE),
    text="Number of processes",
)
SERVED_BY_RELEASE = OverviewRule(
    catalog.REQUESTS,
    "served_by_release5m",
    lambda window: _requests_of(window, ne("outcome", "client_error")),
    text="Rate per second within 5m without errors of clients",
)
FAILING_BY_RELEASE = OverviewRule(
    catalog.REQUESTS,
    "failing_by_release5m",
    lambda window: ratio(
        _requests_of(window, eq("outcome", "error")).or_(SERVED_BY_RELEASE() * 0),
        SERVED_BY_RELEASE(),
    ),
    text="Fraction within 5m that failed, of those without errors of clients,",
)
SECONDS_BY_RELEASE = OverviewRule(
    catalog.REQUEST_SECONDS,
    "mean_by_release5m",
    lambda window: ratio(
        _of_releases(_ANSWERED.sum.rate(window.recent)), SERVED_BY_RELEASE()
    ).of_unit("seconds"),
    text="Mean within 5m without errors of clients",
)

# --- requests in progress -----------------------------------------------------------

REQUESTS_IN_PROGRESS = gauged(catalog.REQUESTS_IN_PROGRESS, "sum", *_ROUTE)
REQUEST_OLDEST = gauged(catalog.REQUEST_OLDEST_SECONDS, "max", *_ROUTE)
QUEUE_DEPTH = gauged(catalog.QUEUE_DEPTH, "sum", "job", "queue")
BATCH_FILL = OverviewRule(
    catalog.BATCH_FILL_RATIO,
    "mean5m",
    lambda window: histogram(catalog.BATCH_FILL_RATIO).mean(
        *_ROUTE, window=window.recent
    ),
)

# --- loops, activities and logged values --------------------------------------------

_LOOP = ("job", "loop")
_NAMED = ("job", "name")


STEPS = rated(catalog.STEPS, *_LOOP)
STEP_MEAN = OverviewRule(
    catalog.STEP_SECONDS,
    "mean5m",
    # None where no step was made.
    lambda window: (
        histogram(catalog.STEP_SECONDS).mean(*_LOOP, window=window.recent) >= 0
    ),
)
DATA_WAIT = OverviewRule(
    catalog.DATA_WAIT_SECONDS,
    "ratio5m",
    lambda window: (
        counter(catalog.DATA_WAIT_SECONDS).rate(window.recent).sum(*_LOOP)
        / (histogram(catalog.STEP_SECONDS).sum.rate(window.recent).sum(*_LOOP) > 0)
    ),
    text="Fraction of the time of steps within 5m",
)
STEP_AGE = gauged(catalog.STEP_AGE_SECONDS, "max", *_LOOP)
ACTIVITY = rated(catalog.TIME_SECONDS, "job", "activity")
# Of jobs with a loop: a server may mark activities, too.
GOODPUT = OverviewRule(
    catalog.TIME_SECONDS,
    "goodput5m",
    ratio(
        ACTIVITY(eq("activity", "step")).sum("job"),
        ACTIVITY(ne("activity", catalog.REST)).sum("job"),
    ),
    text="Fraction of the marked time within 5m, without rests, that went into steps",
)


def _in_states(window: Windows) -> Expr:
    spent = counter(catalog.WALL_SECONDS).rate(window.recent)
    return spent.sum(*PROCESS, "state")


# Of processes in a loop: a server waits for requests.
WAITING = OverviewRule(
    catalog.WALL_SECONDS,
    "max_rate5m",
    lambda window: (
        _in_states(window)
        .and_(gauge(catalog.STEP_AGE_SECONDS), *PROCESS)
        .max("job", "state")
    ),
    text="Maximum of processes in a loop, as a fraction of 5m,",
)
SPENDING = OverviewRule(
    catalog.WALL_SECONDS,
    "most5m",
    lambda window: _in_states(window).max("job", "state"),
    text="Fraction of 5m that the process with most spends in a state,",
)
CHECKPOINT_AGE = OverviewRule(
    catalog.ACTIVITY_AGE_SECONDS,
    "checkpoint_min",
    gauge(catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint")).min("job"),
    text="Minimum of checkpoints",
)
ITEMS = rated(catalog.ITEMS, *_LOOP, "item")
# Ranks that are not slower, which are nearly all with collectives, are not recorded.
_SLOWER = 1.02


def _mean_steps(window: Windows) -> Expr:
    by, steps = (*PROCESS, "loop"), histogram(catalog.STEP_SECONDS)
    total = steps.sum.rate(window.recent).sum(*by)
    return ratio(total, steps.count.rate(window.recent).sum(*by))


MEDIAN_STEP = OverviewRule(
    catalog.STEP_SECONDS,
    "median5m",
    lambda window: _mean_steps(window).median(*_LOOP),
    text="Median of the processes' mean steps within 5m",
)


SLOW_RANKS = OverviewRule(
    catalog.STEP_SECONDS,
    "times_median5m",
    lambda window: (
        _mean_steps(window).relative_to(MEDIAN_STEP(), *_LOOP) > _SLOWER
    ).of_unit("times"),
    text="How many times as long as that of the median a mean step within 5m is, if by "
    f"more than {_SLOWER - 1:.0%},",
)
# --- runs, over all their attempts: each exports what those before it had ---------

_RUN = ("job", "run")


def _latest(metric: Metric, *by: str, only: tuple[Matcher, ...] = ()) -> Expr:
    return counter(metric, *only).total().max(*_RUN, *by)


def _largest(metric: Metric, *by: str) -> OverviewRule:
    return OverviewRule(metric, "max", _latest(metric, *by))


_SPENT = catalog.RUN_SECONDS
_IN_LOOP = "|".join(name for name in catalog.RUN_ACTIVITIES if name not in OUTSIDE)
RUN_GOODPUT = OverviewRule(
    _SPENT,
    "goodput",
    _latest(_SPENT, only=(eq("activity", "step"),))
    / _latest(_SPENT, "activity").sum(*_RUN),
    text="Fraction of the time since the first attempt that went into steps that last",
)
RUN_SAVE_SECONDS = OverviewRule(
    catalog.RUN_SAVES,
    "seconds_between",
    (
        _latest(_SPENT, "activity", only=(re("activity", _IN_LOOP),)).sum(*_RUN)
        / (_latest(catalog.RUN_SAVES) > 0)
    ).of_unit("seconds"),
    text="Time in the loop for each",
)
RUN_RESUME_SECONDS = OverviewRule(
    catalog.RUN_RESUME_SECONDS,
    "mean",
    (_latest(catalog.RUN_RESUME_SECONDS) / (_latest(catalog.RUN_RESUMES) > 0)).of_unit(
        "seconds"
    ),
    text="Mean of all attempts",
)
RUN_INTERRUPTIONS = _largest(catalog.RUN_INTERRUPTIONS, "ending")
RUN_LOST_STEPS = _largest(catalog.RUN_LOST_STEPS)
RUN_FRUITLESS = gauged(catalog.RUN_FRUITLESS_ATTEMPTS, "max", *_RUN)

VALUE = gauged(catalog.VALUE, "avg", *_NAMED)
NONFINITE = gauged(catalog.NONFINITE_OUTPUTS, "max", *_NAMED)
NONFINITE_RUN = gauged(catalog.VALUE_NONFINITE_RUN, "max", *_NAMED)
SPIKES = counted(events.SPIKES, *_NAMED)

# --- FLOPs --------------------------------------------------------------------------

_MODEL = eq("work", "model")
_CALLED = (*PROCESS, "function")


def _utilization(window: Windows) -> Expr:
    """Return the utilization of processes that call no function of unknown FLOPs."""
    rate = counter(catalog.IDEAL_SECONDS, _MODEL).rate(window.recent).sum(*PROCESS)
    called = counter(catalog.JIT_CALLS).rate(window.recent) > 0
    unknown = gauge(catalog.FLOPS_UNKNOWN_REASON)
    # Whether it is called, is unknown too.
    uncounted = gauge(catalog.FLOPS_UNKNOWN_REASON, eq("reason", "uncounted"))
    hidden = unknown.and_(called, *_CALLED).or_(uncounted)
    return rate.unless(hidden, *PROCESS)


MFU = OverviewRule(
    catalog.IDEAL_SECONDS,
    "avg_model_rate5m",
    lambda window: _utilization(window).avg("job"),
    text="Mean MFU within 5m, of processes whose FLOPs are known,",
)

OFTEN = rules_of(vars())

# --- functions: the most series, and the dearest rules ------------------------------

_FUNCTION = ("job", "function")


# Of what did not happen there is no series.
RECOMPILES = rising(events.RECOMPILES, *_FUNCTION, "cause")
WORST_RECOMPILES = OverviewRule(
    catalog.RECOMPILES,
    "max_rate5m",
    lambda window: (
        window.per_second(events.RECOMPILES.within(window.recent))
        .sum(*PROCESS, "function")
        .max("job")
    ),
    text="Rate per second within 5m of the function and process with most",
)
PROGRAMS = gauged(catalog.PROGRAM_INFO, "count", *PROCESS)
ERRORS = counted(events.ERRORS, *_FUNCTION, "kind")

SELDOM = rules_of(vars(), OFTEN)

# --- collectives, and the processes that arrive late at them ------------------------

_KIND = ("job", "collective")
# Of the median; ranks that arrive together differ by less.
_LATE = 0.9


def _seconds(window: Windows, *by: str) -> Expr:
    return counter(catalog.NCCL_COLLECTIVE_SECONDS).rate(window.recent).sum(*by)


def _bandwidth(window: Windows) -> Expr:
    by = (*_KIND, "size")
    moved = counter(catalog.NCCL_BUS_BYTES).rate(window.recent).sum(*by)
    return ratio(moved, _seconds(window, *by)).of_unit("bytes per second")


def _late(window: Windows) -> Expr:
    by = (*PROCESS, "collective")
    rate = counter(catalog.NCCL_COLLECTIVES_RECORDED).rate(window.recent).sum(*by)
    mean = ratio(_seconds(window, *by), rate)
    usual = mean.median(*_KIND).record(
        *("job", catalog.NCCL_COLLECTIVE_SECONDS, f"median{window.recent}"),
        "Seconds that a collective takes in the median process of a job.",
    )
    return mean.relative_to(usual, *_KIND).of_unit("times") < _LATE


BANDWIDTH = OverviewRule(
    catalog.NCCL_BUS_BYTES, "bandwidth5m", _bandwidth, text="Bandwidth within 5m"
)
# Of those that are not late, which are nearly all, nothing is recorded.
LATE = OverviewRule(
    catalog.NCCL_COLLECTIVE_SECONDS,
    "late_ratio5m",
    _late,
    text="Fraction of what the median process waits, if that is much less,",
)

COLLECTIVES = rules_of(vars(), OFTEN, SELDOM)


# --- programs, for what has become slower --------------------------------------------


def recorded_slowdowns(scale: float) -> Iterator[RecordedSeries]:
    """Yield what is recorded; *scale* divides windows, names keep them."""
    window = durations.scaled("5m", scale)
    hour = durations.seconds(durations.scaled("1h", scale))
    sampled = histogram(catalog.EXECUTION_SECONDS)
    seconds, samples = (
        promql.recorded_over("sum", recorded(name, labels=PROGRAM), hour)
        for name in (SECONDS, SAMPLES)
    )
    of_program = "of a program, if it is the only one of its function."
    yield RecordedSeries(
        *(SECONDS, _of_program(sampled.sum.rate(window))),
        f"Device time per second within 5m in sampled calls {of_program}",
    )
    yield RecordedSeries(
        *(SAMPLES, _of_program(sampled.count.rate(window))),
        f"Sampled calls per second within 5m {of_program}",
    )
    yield RecordedSeries(
        *(MEAN, promql.ratio(seconds, samples)),
        "Mean device time of a call of a program within an hour.",
    )
    yield RecordedSeries(
        *(VERSIONS, gauge(catalog.RUNTIME_INFO).count(*VERSION)),
        "Processes of a job by their version of JAX and its platform.",
    )


def _of_program(rate: Expr) -> Expr:
    by = (*PROCESS, "function")
    # A function with several programs has several speeds.
    several = counter(catalog.PROGRAMS).total() > 1
    programs = gauge(catalog.PROGRAM_INFO).max(*by, "fingerprint")
    single = programs.unless(several, *by)
    return rate.joined(single, on=by, take=("fingerprint",)).sum(*PROGRAM)
