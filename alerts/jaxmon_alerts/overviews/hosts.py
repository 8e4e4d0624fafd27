"""Processes, hosts and accelerators, which processes these belong to, and power."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon.promql import (
    Expr,
    Matcher,
    RecordedSeries,
    alerts,
    alerts_since,
    counter,
    eq,
    gauge,
    gauge_changes,
    histogram,
    ne,
    re,
    recorded,
)
from jaxmon.symptoms.job import DEVICE_TIME
from jaxmon_alerts.overviews import services
from jaxmon_alerts.overviews.model import (
    HOST,
    PROCESS,
    OverviewRule,
    gauged,
    of_agents,
    rated,
    rules_of,
)


_START = catalog.PROCESS_START_TIME_SECONDS
_DEVICE = (*PROCESS, "device")


def _mishaps(metric: Metric, *by: str) -> OverviewRule:
    return OverviewRule(
        metric,
        "increase5m",
        lambda window: (
            counter(metric).mishaps(window.recent, memory=window.memory).sum(*by)
        ),
    )


# A process that starts elsewhere, as in Kubernetes, differs from no earlier one.
# Sidecars have an age, too, and collectors; what they relay has a worker.
_ages = gauge(catalog.UPTIME_SECONDS).unless(gauge(catalog.COLLECTOR_SUCCESS), *PROCESS)
STARTS = OverviewRule(
    catalog.UPTIME_SECONDS,
    "young3m",
    lambda window: (_ages < durations.seconds(window.young)).count("job"),
    text="Processes that are younger than 3m",
)
RESTARTS = OverviewRule(
    catalog.PROCESS_START_TIME_SECONDS,
    "restarts",
    lambda window: of_agents(gauge_changes(_START, window.restarts)).sum(*HOST) > 0,
    text="How often processes were replaced within 10m",
)
COMPILE_OLDEST = gauged(catalog.COMPILE_OLDEST_SECONDS, "max", *HOST, rare=True)
AGENT_UP = gauged(catalog.AGENT_UP, "min", *HOST)
CRASHES = _mishaps(catalog.AGENT_CRASHES, *PROCESS)
DIED = gauged(catalog.AGENT_DIED, "max", *PROCESS, rare=True)

OFTEN = rules_of(vars())

DEVICE_MEMORY = OverviewRule(
    catalog.DEVICE_MEMORY_BYTES,
    "fullest",
    promql.ratio(
        *(
            gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", kind)).sum(*_DEVICE)
            for kind in ("in_use", "limit")
        )
    ).max(*HOST),
    text="Fraction in use of the fullest device",
)
RESIDENT = OverviewRule(
    catalog.PROCESS_RESIDENT_MEMORY_BYTES,
    "max",
    of_agents(gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES)).max(*HOST),
)
HOOKS = gauged(catalog.HOOK_ACTIVE, "min", "job", "hook")
# Of those that are active, which are nearly all, nothing is recorded.
INACTIVE_HOOKS = OverviewRule(
    catalog.HOOK_ACTIVE,
    "inactive",
    gauge(catalog.HOOK_ACTIVE).equals(0).min(*PROCESS, "hook"),
    text="Hooks that are inactive",
)
COLLECTORS = OverviewRule(
    catalog.COLLECTOR_SUCCESS,
    "avg",
    gauge(catalog.COLLECTOR_SUCCESS).avg("job", "collector").of_unit("ratio"),
)
COLLECTOR_AGE = gauged(catalog.COLLECTOR_AGE_SECONDS, "max", "job", "collector")
# Collectors seldom fail: a series only where one does.
COLLECTOR_ERRORS = rated(
    catalog.COLLECTOR_ERRORS, *HOST, "collector", "reason", rare=True
)

PROCESSES = rules_of(vars(), OFTEN)


_GPU = (*HOST, "uuid")
# A TPU's uuid is only its position in its host.
_UNIQUE = re("uuid", "(GPU|MIG)-.+")


def _owners() -> Expr:
    """Return the GPUs that a process uses or a sidecar reads, of whichever job."""
    used = gauge(catalog.DEVICE_INFO, _UNIQUE)
    read = gauge(catalog.ACCELERATOR_INFO, _UNIQUE)
    parts = gauge(catalog.GPU_MIG_INFO)
    # Heat, power and errors are the whole GPU's, of which the program knows a part.
    parents = used.joined(parts.max("uuid", "parent"), on=("uuid",), take=("parent",))
    whole = parents.relabelled("uuid", "parent")
    every = used.or_(read).or_(parts).or_(whole)
    return every.max(*PROCESS, "uuid").of_unit("")


OWNERS = OverviewRule(
    catalog.DEVICE_INFO,
    "uuid",
    _owners(),
    text="GPUs that a process uses or a sidecar reads",
)
# For boards on which only services are chosen: fewer series than by process.
OWNED = OverviewRule(
    catalog.DEVICE_INFO, "uuid", OWNERS().max("job", "uuid"), text="The same GPUs"
)
READERS = OverviewRule(
    catalog.ACCELERATOR_INFO,
    "uuid",
    gauge(catalog.ACCELERATOR_INFO, _UNIQUE).max(*_GPU),
    text="GPUs that a sidecar reads",
)
MEMORY = OverviewRule(
    catalog.ACCELERATOR_MEMORY_USED_BYTES,
    "max_ratio",
    promql.ratio(
        gauge(catalog.ACCELERATOR_MEMORY_USED_BYTES).max(*_GPU),
        gauge(catalog.ACCELERATOR_MEMORY_SIZE_BYTES).max(*_GPU),
    ).max(*HOST),
    text="Fraction in use of the fullest accelerator",
)
UP = gauged(catalog.ACCELERATOR_UP, "min", *HOST)
THROTTLED = OverviewRule(
    catalog.GPU_THROTTLE_SECONDS,
    "rate5m",
    lambda window: (
        counter(
            catalog.GPU_THROTTLE_SECONDS,
            re("reason", "|".join(catalog.UNDUE_THROTTLING)),
        )
        .rate(window.recent)
        .max(*_GPU, "reason")
        > 0
    ),
)
# Only critical Xids have a series from the start; the others are born with 1.
XIDS = _mishaps(catalog.GPU_XID_ERRORS, *_GPU, "xid")


def _errors(metric: Metric, *kinds: str, of: tuple[Matcher, ...] = ()) -> OverviewRule:
    errors = counter(metric, *of)
    return OverviewRule(
        metric,
        "increase5m",
        lambda window: errors.increase(window.recent).sum(*_GPU, *kinds) > 0,
    )


_FATAL = (eq("severity", "uncorrected"), eq("scope", "volatile"))
UNCORRECTED = _errors(catalog.GPU_ECC_ERRORS, of=_FATAL)
NVLINK_ERRORS = _errors(catalog.GPU_NVLINK_ERRORS, "type")
PCIE_ERRORS = _errors(catalog.GPU_PCIE_ERRORS, "type")
PCIE_REPLAYS = _errors(catalog.GPU_PCIE_REPLAYS)

# --- what each service uses --------------------------------------------------------
#
# A sidecar beside the program reads it, or a DaemonSet under a job of its own. Agents
# export the uuid of each device that they use, which is where the job comes from. A GPU
# that two jobs use counts for both.

_GPUS, _TPUS = re("uuid", "GPU-.+"), re("uuid", "TPU-.+")


def _of_jobs(metric: Metric, how: str) -> OverviewRule:
    return OverviewRule(metric, how, getattr(_used(metric), how)("job"))


def _used(metric: Metric) -> Expr:
    gpus = gauge(catalog.DEVICE_INFO, _GPUS).max("job", "uuid")
    chips = (
        gauge(catalog.DEVICE_INFO, _TPUS)
        .max(*_GPU)
        .record(*("instance", catalog.DEVICE_INFO, "tpus"), "TPUs that a program uses.")
    )
    values = gauge(metric)
    found = gpus.joined(values.max("uuid"), on=("uuid",), take=()).or_(
        chips.joined(values.max(*_GPU), on=_GPU, take=())
    )
    return found.of_unit(metric.unit)


UTILIZATION_OF_JOBS = _of_jobs(catalog.ACCELERATOR_UTILIZATION_RATIO, "avg")
POWER_OF_JOBS = _of_jobs(catalog.ACCELERATOR_POWER_WATTS, "sum")
PRICE_OF_JOBS = _of_jobs(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR, "sum")


def _cost(made: Expr, number: float) -> Expr:
    """Return dollars for a *number* of what is *made* per second."""
    return (PRICE_OF_JOBS() * number / ((made * 3600) > 0)).of_unit("dollars")


PRICE_OF_REQUESTS = OverviewRule(
    catalog.REQUESTS,
    "dollars5m",
    _cost(services.SERVED(), 1000),
    text="Dollars for the accelerators of 1,000 requests, by the rate within 5m,",
)
PRICE_OF_ITEMS = OverviewRule(
    catalog.ITEMS,
    "dollars5m",
    _cost(services.ITEMS().sum("job"), 1e6),
    text="Dollars for the accelerators of a million items, by the rate within 5m,",
)

_OF_JOBS = (
    *(UTILIZATION_OF_JOBS, POWER_OF_JOBS, PRICE_OF_JOBS),
    *(PRICE_OF_REQUESTS, PRICE_OF_ITEMS),
)

# --- GPUs that firing alerts are about, and whose they are ------------------------
#
# Boards about services show the alerts of their hardware too, which another job may
# report. At any time few GPUs have alerts; recorded, boards need not compare all of the
# fleet's over their range.

FIRING = (re("alertname", "Jaxmon.+"), eq("alertstate", "firing"))
ABOUT_GPUS = (*FIRING, ne("uuid", ""))
# Of a host that programs share, but not about the GPUs of others.
ABOUT_HOSTS = (*FIRING, ne("instance", ""), eq("uuid", ""))


SINCE = "job:jaxmon_alerts:since"
"""Since when each alert fires, by what it is about, as a Unix timestamp."""

SUBJECT = ("severity", "alertname", "job", "instance", "uuid", "subject")
_ABOUT = ("route", "function", "loop", "name", "state")
_ALERT = ("alertname", "severity", "job", "instance", "worker", "uuid", *_ABOUT)


def recorded_alerts() -> Iterator[RecordedSeries]:
    """Yield since when alerts fire."""
    firing = alerts_since(FIRING[0]).and_(alerts(*FIRING), *_ALERT)
    yield RecordedSeries(
        *(SINCE, firing.named("subject", *_ABOUT).min(*SUBJECT)),
        "Since when each alert fires, by what it is about.",
    )


def firing(*matchers: Matcher) -> Expr:
    """Return since when alerts fire."""
    return recorded(SINCE, *matchers, labels=SUBJECT, unit="seconds")


# Those that are read, or were before their sidecar went down.
ALERTED_READERS = OverviewRule(
    catalog.ACCELERATOR_INFO,
    "alerted",
    lambda window: READERS().latest(window.silent).and_(alerts(*ABOUT_HOSTS), *HOST),
    text="GPUs that sidecars with alerts read",
)
ALERTED = OverviewRule(
    catalog.DEVICE_INFO,
    "alerted",
    lambda window: (
        OWNED()
        .latest(window.silent)
        .and_(alerts(*ABOUT_GPUS).or_(ALERTED_READERS()), "uuid")
    ),
    text="GPUs that alerts are about",
)

# In this order: the last reads the one before.
ACCELERATORS = (
    *(OWNERS, MEMORY, UP),
    *(*_OF_JOBS, ALERTED_READERS, ALERTED),
)
# Who owns and reads what, boards about services read for each GPU over their range.
SELDOM = (
    *(OWNED, READERS),
    *(THROTTLED, XIDS, UNCORRECTED, NVLINK_ERRORS, PCIE_ERRORS, PCIE_REPLAYS),
)


PROCESS_POWER = f"worker:{catalog.ACCELERATOR_POWER_WATTS.name}:sum"
"""Total power of a process's GPUs, counting shared GPUs in full."""

FUNCTION_POWER = f"function:{catalog.ACCELERATOR_POWER_WATTS.name}:sum"
"""Watts of a process, divided among its functions by their device time."""

_FUNCTION = (*PROCESS, "function")


def recorded_power(scale: float) -> Iterator[RecordedSeries]:
    """Yield what is recorded; *scale* divides its window, names keep it."""
    watts, window = "Power of the GPUs of a process", durations.scaled("5m", scale)
    # Only GPUs report their power, and only their uuids are globally unique: agents may
    # be scraped apart from the sidecar that reads their devices.
    drawn = gauge(catalog.ACCELERATOR_POWER_WATTS, _GPUS).max("uuid")
    uses = gauge(catalog.DEVICE_INFO, _GPUS).max(*PROCESS, "uuid")
    whole = uses.joined(drawn, on=("uuid",), take=()).sum(*PROCESS)
    yield RecordedSeries(PROCESS_POWER, whole, f"{watts}, shared ones in full.")
    # Some calls are sampled, all are counted.
    sampled = histogram(catalog.EXECUTION_SECONDS)
    seconds = sampled.sum.rate(window).sum(*_FUNCTION)
    samples = sampled.count.rate(window).sum(*_FUNCTION)
    calls = counter(catalog.JIT_CALLS).rate(window).sum(*_FUNCTION)
    busy = promql.ratio(seconds, samples) * calls
    yield RecordedSeries(
        # Also if one delayed sample stands for many calls.
        *(DEVICE_TIME, promql.call("clamp_max", busy, 1)),
        "Fraction of time that a function keeps the devices of its process busy.",
    )
    kept = recorded(DEVICE_TIME, labels=_FUNCTION)
    every = promql.number(1) / (kept.sum(*PROCESS) > 0)
    power = recorded(PROCESS_POWER, labels=PROCESS, unit="watts")
    parts = kept.joined(every, on=PROCESS, take=()).joined(power, on=PROCESS, take=())
    yield RecordedSeries(FUNCTION_POWER, parts, f"{watts}, by its functions.")
