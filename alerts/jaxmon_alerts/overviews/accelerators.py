"""Accelerators of a host, and which processes they belong to."""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, alerts, counter, eq, gauge, ne, re
from jaxmon_alerts.overviews.model import HOST, PROCESS, OverviewRule, Windows, gauged


_GPU = (*HOST, "uuid")
# A TPU's uuid is only its position in its host.
_UNIQUE = re("uuid", "(GPU|MIG)-.+")


def _owners() -> Expr:
    """Return the GPUs that a process uses or a sidecar reads, of whichever job."""
    used = gauge(catalog.DEVICE_INFO, _UNIQUE).max(*PROCESS, "uuid")
    read = gauge(catalog.ACCELERATOR_INFO, _UNIQUE).max(*PROCESS, "uuid")
    info = gauge(catalog.GPU_MIG_INFO)
    parts = info.max(*PROCESS, "uuid")
    # Heat, power and errors are the whole GPU's, of which the program knows a part.
    parents = used.joined(info.max("uuid", "parent"), on=("uuid",), take=("parent",))
    whole = parents.relabelled("uuid", "parent").max(*PROCESS, "uuid")
    return used.or_(read).or_(parts).or_(whole).of_unit("")


OWNERS = OverviewRule(catalog.DEVICE_INFO, "uuid", _owners())
# For boards on which only services are chosen: fewer series than by process.
OWNED = OverviewRule(catalog.DEVICE_INFO, "uuid", OWNERS().max("job", "uuid"))
READERS = OverviewRule(
    catalog.ACCELERATOR_INFO,
    "uuid",
    gauge(catalog.ACCELERATOR_INFO, _UNIQUE).max(*_GPU),
)
UTILIZATION = gauged(catalog.ACCELERATOR_UTILIZATION_RATIO, "avg", *HOST)
MEMORY = OverviewRule(
    catalog.ACCELERATOR_MEMORY_USED_BYTES,
    "max_ratio",
    promql.ratio(
        gauge(catalog.ACCELERATOR_MEMORY_USED_BYTES).max(*_GPU),
        gauge(catalog.ACCELERATOR_MEMORY_SIZE_BYTES).max(*_GPU),
    ).max(*HOST),
)
POWER = gauged(catalog.ACCELERATOR_POWER_WATTS, "sum", *HOST)
TEMPERATURE = gauged(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, "max", *HOST)
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
XIDS = OverviewRule(
    catalog.GPU_XID_ERRORS,
    "increase5m",
    lambda window: (
        counter(catalog.GPU_XID_ERRORS)
        .mishaps(window.recent, memory=window.memory)
        .sum(*_GPU, "xid")
    ),
)
UNCORRECTED = OverviewRule(
    catalog.GPU_ECC_ERRORS,
    "increase5m",
    lambda window: (
        counter(
            catalog.GPU_ECC_ERRORS,
            *(eq("severity", "uncorrected"), eq("scope", "volatile")),
        )
        .increase(window.recent)
        .sum(*_GPU)
        > 0
    ),
)


def _link_errors(metric: Metric, *kinds: str) -> OverviewRule:
    return OverviewRule(
        metric,
        "increase5m",
        lambda window: counter(metric).increase(window.recent).sum(*_GPU, *kinds) > 0,
    )


NVLINK_ERRORS = _link_errors(catalog.GPU_NVLINK_ERRORS, "type")
PCIE_ERRORS = _link_errors(catalog.GPU_PCIE_ERRORS, "type")
PCIE_REPLAYS = _link_errors(catalog.GPU_PCIE_REPLAYS)

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
    chips = gauge(catalog.DEVICE_INFO, _TPUS).max(*_GPU)
    values = gauge(metric, _GPUS).max("uuid")
    of_chips = gauge(metric, _TPUS).max(*_GPU)
    found = gpus.joined(values, on=("uuid",), take=()).or_(
        chips.joined(of_chips, on=_GPU, take=())
    )
    return found.of_unit(metric.unit)


UTILIZATION_OF_JOBS = _of_jobs(catalog.ACCELERATOR_UTILIZATION_RATIO, "avg")
POWER_OF_JOBS = _of_jobs(catalog.ACCELERATOR_POWER_WATTS, "sum")
PRICE_OF_JOBS = _of_jobs(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR, "sum")
TENSOR_CORES_OF_JOBS = _of_jobs(catalog.GPU_TENSOR_ACTIVE_RATIO, "avg")

_OF_JOBS = (UTILIZATION_OF_JOBS, POWER_OF_JOBS, PRICE_OF_JOBS, TENSOR_CORES_OF_JOBS)

# --- GPUs that firing alerts are about, and whose they are ------------------------
#
# Boards about services show the alerts of their hardware too, which another job may
# report. At any time few GPUs have alerts; recorded, boards need not compare all of the
# fleet's over their range.

FIRING = (re("alertname", "Jaxmon.+"), eq("alertstate", "firing"))
ABOUT_GPUS = (*FIRING, ne("uuid", ""))
# Of a host that programs share, but not about the GPUs of others.
ABOUT_HOSTS = (*FIRING, ne("instance", ""), eq("uuid", ""))


def _read(windows: Windows) -> Expr:
    """Return the GPUs that sidecars with alerts read, or read before they went down."""
    return READERS().latest(windows.silent).and_(alerts(*ABOUT_HOSTS), *HOST)


def _owned(windows: Windows) -> Expr:
    """Return the GPUs of services that have alerts, or whose readers have."""
    alerted = alerts(*ABOUT_GPUS).or_(ALERTED_READERS())
    return OWNED().latest(windows.silent).and_(alerted, "uuid")


ALERTED_READERS = OverviewRule(catalog.ACCELERATOR_INFO, "alerted", _read)
ALERTED = OverviewRule(catalog.DEVICE_INFO, "alerted", _owned)

# In this order: the last reads the one before.
HOSTS = (
    *(OWNERS, UTILIZATION, MEMORY, POWER, TEMPERATURE, UP),
    *(*_OF_JOBS, ALERTED_READERS, ALERTED),
)
# Who owns and reads what, boards about services read for each GPU over their range.
SELDOM = (
    *(OWNED, READERS),
    *(THROTTLED, XIDS, UNCORRECTED, NVLINK_ERRORS, PCIE_ERRORS, PCIE_REPLAYS),
)
