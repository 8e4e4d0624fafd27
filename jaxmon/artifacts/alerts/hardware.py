"""Alerts on accelerators: lost, damaged, held down."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts.model import Alert
from jaxmon.artifacts.promql import Expr, Matcher, counter, eq, gauge, gauge_over
from jaxmon.artifacts.slo import Thresholds
from jaxmon.artifacts.slo.thresholds import PAGE, TICKET


_HOST = ("job", "instance")
_DEVICE = (*_HOST, "uuid")
_GPUS, _TPUS = promql.re("uuid", "GPU-.+"), promql.re("uuid", "TPU-.+")


def accelerator_lost(thresholds: Thresholds, day: str) -> Iterator[Alert]:
    """
    Yield a page for what a program uses or just used, and a ticket for the rest: who
    drains a host, removes a device or resets it, did it on purpose.

    The page has the labels of the program, for it is about that service; the ticket
    those of the sidecar that reads the device.
    """
    gpus, tpus = _lost_gpus(), _lost_tpus()
    # A GPU's uuid is that of no other in the world, and the sidecar that reads it may
    # not be that of the program; a TPU's is its place in its host.
    window = thresholds.accelerator_used
    on_gpus, on_tpus = _used_gpus(window, day), _used(window, _TPUS)
    page = on_gpus.and_(gpus, "uuid").or_(on_tpus.and_(tpus, *_DEVICE))
    ticket = gpus.unless(on_gpus, "uuid").or_(tpus.unless(on_tpus, *_DEVICE))
    in_use = (
        "which job {{ $labels.job }} uses on {{ $labels.instance }}, is lost; what "
        "runs on it fails or hangs."
    )
    idle = (
        "of {{ $labels.instance }} (job {{ $labels.job }}), is lost; no program has "
        "used it lately."
    )
    for severity, expr, what in ((PAGE, page, in_use), (TICKET, ticket, idle)):
        yield Alert(
            name="JaxmonAcceleratorLost",
            expr=expr,
            for_=thresholds.accelerator_lost_for,
            severity=severity,
            summary="An accelerator does not answer any more.",
            description=f"Accelerator {{{{ $labels.uuid }}}}, {what}",
        )


def _used(window: str, which: Matcher) -> Expr:
    """
    Return the devices that programs used within *window*, with the programs' labels.
    """
    return gauge_over(catalog.DEVICE_INFO, "last", window, which).max(*_DEVICE)


def _used_gpus(window: str, day: str) -> Expr:
    """Return the GPUs that programs used within *window*, in whole or in part."""
    # A lost GPU tells nothing of its parts, which are its own for good.
    parents = gauge_over(catalog.GPU_MIG_INFO, "last", day).max("uuid", "parent")
    parts = _used(window, promql.re("uuid", "MIG-.+"))
    wholes = parts.joined(parents, on=("uuid",), take=("parent",))
    return _used(window, _GPUS).or_(wholes.relabelled("uuid", "parent").max(*_DEVICE))


def _lost_gpus() -> Expr:
    """
    Return the GPUs that are down, but for those that a driver took with it.

    An upgrade of the driver takes every GPU of a host from the sidecar's sight, while
    programs run on: that is JaxmonCollectorDown.
    """
    gpus = gauge(catalog.ACCELERATOR_UP, _GPUS)
    driver = gauge(catalog.COLLECTOR_SUCCESS, eq("collector", "nvml"))
    blind = gpus.max(*_HOST).equals(0).and_(driver.max(*_HOST).equals(0))
    return gpus.min(*_DEVICE).equals(0).unless(blind, *_HOST)


def _lost_tpus() -> Expr:
    return gauge(catalog.ACCELERATOR_UP, _TPUS).min(*_DEVICE).equals(0)


def gpu_xid(thresholds: Thresholds) -> Alert:
    """Tell of errors after which a GPU or its work is usually lost."""
    window = thresholds.xid_window
    critical = promql.re("xid", "|".join(catalog.CRITICAL_XIDS))
    errors = counter(catalog.GPU_XID_ERRORS, critical)
    return Alert(
        name="JaxmonGpuXid",
        expr=errors.mishaps(window).sum(*_DEVICE, "xid") > 0,
        severity=TICKET,
        summary="A GPU reported a critical error.",
        description=(
            "GPU {{ $labels.uuid }} of {{ $labels.instance }} reported Xid "
            f"{{{{ $labels.xid }}}} {{{{ $value | humanize }}}} times within {window}."
        ),
    )


def gpu_ecc_errors(thresholds: Thresholds) -> Alert:
    """Tell of memory that cannot be trusted."""
    window = thresholds.ecc_window
    # The aggregate counts them once more, and starts at what the GPU has lived through.
    volatile = (eq("severity", "uncorrected"), eq("scope", "volatile"))
    errors = (
        counter(catalog.GPU_ECC_ERRORS, *volatile).increase(window).sum(*_DEVICE) > 0
    )
    unspared = gauge(catalog.GPU_ROW_REMAP_FAILURE).max(*_DEVICE) > 0
    worn = gauge(catalog.GPU_SRAM_ECC_THRESHOLD_EXCEEDED).max(*_DEVICE) > 0
    return Alert(
        name="JaxmonGpuEccErrors",
        expr=errors.or_(unspared).or_(worn),
        severity=TICKET,
        summary="The memory of a GPU is damaged.",
        description=(
            "GPU {{ $labels.uuid }} of {{ $labels.instance }} had memory errors that "
            f"could not be corrected within {window}, or more of its memory is bad "
            "than it can replace."
        ),
    )


def gpu_needs_reset(thresholds: Thresholds) -> Alert:
    """Tell of a GPU that works, and should be reset when that suits."""
    action = gauge(catalog.GPU_RECOVERY_ACTION).max(*_DEVICE) > 0
    # GPUs or drivers that tell no action tell what waits for one.
    rows = gauge(catalog.GPU_ROW_REMAP_PENDING).max(*_DEVICE) > 0
    pages = gauge(catalog.GPU_RETIRED_PAGES_PENDING).max(*_DEVICE) > 0
    return Alert(
        name="JaxmonGpuNeedsReset",
        expr=action.or_(rows).or_(pages),
        for_=thresholds.reset_needed_for,
        severity=TICKET,
        summary="A GPU goes on, but wants to be reset.",
        description=(
            "The driver of GPU {{ $labels.uuid }} of {{ $labels.instance }} asks for a "
            "reset, or bad memory waits for one to be replaced."
        ),
    )


def gpu_throttled(thresholds: Thresholds) -> Alert:
    """Tell of a GPU that is slow for its cooling or its board."""
    window = thresholds.throttled_window
    # Its power limit holds a busy GPU down all day: that is what the limit is for.
    undue = promql.re("reason", "|".join(catalog.UNDUE_THROTTLING))
    share = counter(catalog.GPU_THROTTLE_SECONDS, undue).rate(window)
    return Alert(
        name="JaxmonGpuThrottled",
        expr=share.max(*_DEVICE) > thresholds.throttled,
        severity=TICKET,
        summary="A GPU is held down by heat or by its board.",
        description=(
            "The clock of GPU {{ $labels.uuid }} of {{ $labels.instance }} was held "
            "down for {{ $value | humanizePercentage }} of the last "
            f"{window}, by more than its power limit."
        ),
    )


def tpu_runtime_down(thresholds: Thresholds) -> Alert:
    """Tell of TPUs that are used, and tell nothing."""
    # Idle chips have no runtime: only beside a program that uses them is it missing.
    used = gauge(catalog.RUNTIME_INFO, eq("platform", "tpu")).max(*_HOST)
    return Alert(
        name="JaxmonTpuRuntimeDown",
        expr=gauge(catalog.TPU_RUNTIME_UP).max(*_HOST).equals(0).and_(used, *_HOST),
        for_=thresholds.tpu_runtime_down_for,
        severity=TICKET,
        summary="A program uses TPUs whose runtime tells nothing.",
        description=(
            "A program of job {{ $labels.job }} on {{ $labels.instance }} uses TPUs, "
            "and no runtime answers there; what the chips do cannot be seen."
        ),
    )
