"""Accelerators of a host, and which processes they belong to."""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.artifacts.overviews.model import HOST, PROCESS, Overview, Windows
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, counter, eq, gauge, re


_GPU = (*HOST, "uuid")
# A TPU's uuid is only its position in its host.
_UNIQUE = re("uuid", "(GPU|MIG)-.+")


def _owners(_: Windows) -> Expr:
    """
    Return the GPUs that a process uses or a sidecar reads, whichever job reads them.
    """
    used = gauge(catalog.DEVICE_INFO, _UNIQUE).max(*PROCESS, "uuid")
    read = gauge(catalog.ACCELERATOR_INFO, _UNIQUE).max(*PROCESS, "uuid")
    info = gauge(catalog.GPU_MIG_INFO)
    parts = info.max(*PROCESS, "uuid")
    # Heat, power and errors are the whole GPU's, of which the program knows a part.
    parents = used.joined(info.max("uuid", "parent"), on=("uuid",), take=("parent",))
    whole = parents.relabelled("uuid", "parent").max(*PROCESS, "uuid")
    return used.or_(read).or_(parts).or_(whole).of_unit("")


OWNERS = Overview("worker", catalog.DEVICE_INFO, "uuid", _owners)
# For boards on which only services are chosen: fewer series than by process.
OWNED = Overview(
    "job", catalog.DEVICE_INFO, "uuid", lambda _: OWNERS().max("job", "uuid")
)
READERS = Overview(
    "instance",
    catalog.ACCELERATOR_INFO,
    "uuid",
    lambda _: gauge(catalog.ACCELERATOR_INFO, _UNIQUE).max(*_GPU),
)
UTILIZATION = Overview(
    "instance",
    catalog.ACCELERATOR_UTILIZATION_RATIO,
    "avg",
    lambda _: gauge(catalog.ACCELERATOR_UTILIZATION_RATIO).avg(*HOST),
)
MEMORY = Overview(
    "instance",
    catalog.ACCELERATOR_MEMORY_USED_BYTES,
    "max_ratio",
    lambda _: promql.ratio(
        gauge(catalog.ACCELERATOR_MEMORY_USED_BYTES).max(*_GPU),
        gauge(catalog.ACCELERATOR_MEMORY_SIZE_BYTES).max(*_GPU),
    ).max(*HOST),
)
POWER = Overview(
    "instance",
    catalog.ACCELERATOR_POWER_WATTS,
    "sum",
    lambda _: gauge(catalog.ACCELERATOR_POWER_WATTS).sum(*HOST),
)
TEMPERATURE = Overview(
    "instance",
    catalog.ACCELERATOR_TEMPERATURE_CELSIUS,
    "max",
    lambda _: gauge(catalog.ACCELERATOR_TEMPERATURE_CELSIUS).max(*HOST),
)
UP = Overview(
    "instance",
    catalog.ACCELERATOR_UP,
    "min",
    lambda _: gauge(catalog.ACCELERATOR_UP).min(*HOST),
)
THROTTLED = Overview(
    "instance",
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
XIDS = Overview(
    "instance",
    catalog.GPU_XID_ERRORS,
    "increase5m",
    lambda window: (
        counter(catalog.GPU_XID_ERRORS)
        .mishaps(window.recent, known=window.known)
        .sum(*_GPU, "xid")
    ),
)
UNCORRECTED = Overview(
    "instance",
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


def _link_errors(metric: Metric, *kinds: str) -> Overview:
    return Overview(
        "instance",
        metric,
        "increase5m",
        lambda window: counter(metric).increase(window.recent).sum(*_GPU, *kinds) > 0,
    )


NVLINK_ERRORS = _link_errors(catalog.GPU_NVLINK_ERRORS, "type")
PCIE_ERRORS = _link_errors(catalog.GPU_PCIE_ERRORS, "type")
PCIE_REPLAYS = _link_errors(catalog.GPU_PCIE_REPLAYS)

HOSTS = (OWNERS, UTILIZATION, MEMORY, POWER, TEMPERATURE, UP)
# Who owns and reads what, boards about services read for each GPU over their range.
SELDOM = (
    *(OWNED, READERS),
    *(THROTTLED, XIDS, UNCORRECTED, NVLINK_ERRORS, PCIE_ERRORS, PCIE_REPLAYS),
)
