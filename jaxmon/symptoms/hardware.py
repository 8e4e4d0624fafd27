"""Accelerators: lost, damaged, throttled, idle."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import Reason
from jaxmon.limits import Limits
from jaxmon.promql import Expr, Matcher, counter, eq, gauge, gauge_over
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import (
    COUNT,
    MONITORING_ALERT,
    PAGE,
    TICKET,
    Alert,
    Severity,
    SiteLimits,
)
from jaxmon.symptoms.reason import listed, reason
from jaxmon.symptoms.symptom import AlertBuilder, Symptom


_HOST = ("job", "instance")
_DEVICE = (*_HOST, "uuid")
_GPUS, _TPUS = promql.re("uuid", "GPU-.+"), promql.re("uuid", "TPU-.+")


def lost(facts: HostFacts) -> Iterator[Reason]:
    """Yield accelerators that do not respond, those first that a run uses."""
    used = {device.uuid for device in facts.devices}
    # To which GPU a part of one belongs is not known here.
    parts = any(uuid.startswith("MIG-") for uuid in used)
    found: dict[Severity, list[str]] = {PAGE: [], TICKET: []}
    for accelerator in facts.accelerators:
        if accelerator.up is False:
            in_use = parts or accelerator.uuid in used
            severity = PAGE if in_use and facts.loops else TICKET
            found[severity].append(accelerator.index)
    for severity, indices in found.items():
        if indices:
            does = "do" if len(indices) > 1 else "does"
            text = f"{listed('accelerator', indices)} {does} not respond to the driver."
            yield reason("accelerator", severity, text, [], ", ".join(indices))


def _accelerator_lost(limits: SiteLimits) -> Iterator[Alert]:
    """
    Yield a page for devices that a program in a loop uses or used recently, and a
    ticket for each. Some are drained, removed or reset on purpose; of a service, errors
    page if it costs its callers something.

    The page has the labels of the program, because it is about that run; the ticket has
    those of the sidecar that reads the device.
    """
    gpus, day = _lost_gpus(), limits.duration("1d")
    hours = limits.died_within
    tpus = gauge(catalog.ACCELERATOR_UP, _TPUS).min(*_DEVICE).equals(0)
    tpus = tpus.record(
        *("instance", catalog.ACCELERATOR_UP, "lost_tpus"), "TPUs that are down."
    )
    # A GPU's uuid is globally unique, and the sidecar that reads it may not be that of
    # the program; a TPU's is its place in its host.
    window = limits.accelerator_used
    on_gpus = _used_gpus(window, day).and_(gpus, "uuid")
    on_gpus = on_gpus.record(
        *("instance", catalog.DEVICE_INFO, f"lost_gpus{window}"),
        f"GPUs that are down, by the programs that used them within {window}.",
    )
    on_tpus = _used(window, _TPUS).and_(tpus, *_DEVICE)
    on_tpus = on_tpus.record(
        *("instance", catalog.DEVICE_INFO, f"lost_tpus{window}"),
        f"TPUs that are down, by the programs that used them within {window}.",
    )
    # Until it is back: its program may be gone meanwhile.
    on_gpus, on_tpus = (
        used.latest(hours)
        .and_(lost, *labels)
        .record(
            *("instance", catalog.DEVICE_INFO, f"lost_{kind}"),
            f"{kind.upper()[:-1]}s that are down, by the programs that used them.",
        )
        for used, lost, labels, kind in (
            (on_gpus, gpus, ("uuid",), "gpus"),
            (on_tpus, tpus, _DEVICE, "tpus"),
        )
    )
    loops = gauge_over(catalog.STEP_AGE_SECONDS, "last", window).max("job")
    loops = loops.record(
        *("job", catalog.STEP_AGE_SECONDS, f"last{window}"),
        f"Jobs with a loop within {window}.",
    )
    paged = recorded.paged("JaxmonAcceleratorLost", limits)
    page = on_gpus.or_(on_tpus).and_(loops, "job").unless(paged, "job")
    in_use = ", used by job {{ $labels.job }} on {{ $labels.instance }}, is lost; work "
    for severity, expr, what in (
        (PAGE, page, f"{in_use}on it fails or hangs."),
        (TICKET, gpus.or_(tpus), " of {{ $labels.instance }} is lost."),
    ):
        yield Alert(
            expr=expr,
            for_=limits.accelerator_lost_for,
            severity=severity,
            summary=f"Accelerator {{{{ $labels.uuid }}}}{what}",
        )


def _used(window: str, which: Matcher) -> Expr:
    return gauge_over(catalog.DEVICE_INFO, "last", window, which).max(*_DEVICE)


def _used_gpus(window: str, day: str) -> Expr:
    """Return the GPUs that programs used within *window*, in whole or in part."""
    # A lost GPU reports nothing about its MIG devices, which belong to it for good.
    parents = gauge_over(catalog.GPU_MIG_INFO, "last", day).max("uuid", "parent")
    parts = _used(window, promql.re("uuid", "MIG-.+"))
    wholes = parts.joined(parents, on=("uuid",), take=("parent",))
    wholes = wholes.relabelled("uuid", "parent").max(*_DEVICE)
    wholes = wholes.record(
        *("instance", catalog.GPU_MIG_INFO, f"used{window}"),
        f"GPUs of which programs used a part within {window}.",
    )
    return _used(window, _GPUS).or_(wholes)


def _lost_gpus() -> Expr:
    """
    Return the GPUs that are down, but for those that a driver took with it.

    An upgrade of the driver takes every GPU of a host from the sidecar's sight, while
    programs run on: that is JaxmonMonitoringDegraded.
    """
    gpus = gauge(catalog.ACCELERATOR_UP, _GPUS)
    driver = gauge(catalog.COLLECTOR_SUCCESS, eq("collector", "nvml"))
    blind = gpus.max(*_HOST).equals(0).and_(driver.max(*_HOST).equals(0))
    lost_gpus = gpus.min(*_DEVICE).equals(0).unless(blind, *_HOST)
    return lost_gpus.record(
        *("instance", catalog.ACCELERATOR_UP, "lost_gpus"),
        "GPUs that are down, but for those that a driver took with it.",
    )


def _gpu_xid(limits: Limits) -> Alert:
    window = limits.xid_window
    critical = promql.re("xid", "|".join(catalog.CRITICAL_XIDS))
    errors, by = counter(catalog.GPU_XID_ERRORS), (*_DEVICE, "xid")
    rise = errors.mishaps(window).sum(*by)
    rise = rise.record(
        *("instance", catalog.GPU_XID_ERRORS, f"rise{window}"),
        f"Xids of a GPU within {window}.",
    )
    lately = rise.where(critical).latest(limits.xid_kept) > 0
    return Alert(
        # A sidecar counts from its start, so a restart of the host ends it.
        expr=lately.and_(errors.total().sum(*by) > 0),
        summary=(
            "GPU {{ $labels.uuid }} of {{ $labels.instance }} reported Xid "
            f"{{{{ $labels.xid }}}} {COUNT} times in {window}, within the last "
            f"{limits.xid_kept}."
        ),
    )


def _gpu_ecc_errors(_: Limits) -> Alert:
    # These begin anew when a driver loads or a GPU is reset; the aggregate does not.
    volatile = (eq("severity", "uncorrected"), eq("scope", "volatile"))
    errors = counter(catalog.GPU_ECC_ERRORS, *volatile).total().sum(*_DEVICE) > 0
    errors = errors.record(
        *("instance", catalog.GPU_ECC_ERRORS, "uncorrected"),
        "Uncorrectable memory errors of a GPU since its last reset, if it had some.",
    )
    unspared = gauge(catalog.GPU_ROW_REMAP_FAILURE).max(*_DEVICE) > 0
    worn = gauge(catalog.GPU_SRAM_ECC_THRESHOLD_EXCEEDED).max(*_DEVICE) > 0
    return Alert(
        expr=errors.or_(unspared).or_(worn),
        summary=(
            "GPU {{ $labels.uuid }} of {{ $labels.instance }} had "
            "uncorrectable memory errors since its last reset, or has more bad "
            "memory than it can remap."
        ),
    )


def _gpu_needs_reset(limits: Limits) -> Alert:
    action = gauge(catalog.GPU_RECOVERY_ACTION).max(*_DEVICE) > 0
    # GPUs or drivers that report no action report what is pending.
    rows = gauge(catalog.GPU_ROW_REMAP_PENDING).max(*_DEVICE) > 0
    pages = gauge(catalog.GPU_RETIRED_PAGES_PENDING).max(*_DEVICE) > 0
    pending = rows.or_(pages).record(
        *("instance", catalog.GPU_ROW_REMAP_PENDING, "any"),
        "GPUs with a repair of their memory that is pending a reset.",
    )
    return Alert(
        expr=action.or_(pending),
        for_=limits.reset_needed_for,
        summary=(
            "The driver of GPU {{ $labels.uuid }} on {{ $labels.instance }} "
            "requests a reset, or a memory repair is pending a reset."
        ),
    )


def _gpu_throttled(limits: Limits) -> Alert:
    window = limits.throttled_window
    # The power limit throttles a busy GPU all day: that is what the limit is for.
    undue = promql.re("reason", "|".join(catalog.UNDUE_THROTTLING))
    share = counter(catalog.GPU_THROTTLE_SECONDS, undue).rate(window)
    return Alert(
        expr=share.max(*_DEVICE) > limits.throttled,
        description="A GPU is throttled by temperature, power brake or its board.",
        summary=(
            "GPU {{ $labels.uuid }} on {{ $labels.instance }} was throttled for "
            f"{{{{ $value | humanizePercentage }}}} of the last {window}, for reasons "
            "other than its power limit."
        ),
    )


def _tpu_runtime_down(limits: Limits) -> Alert:
    # Idle chips have no runtime: it is only missing if a program uses them.
    used = gauge(catalog.RUNTIME_INFO, eq("platform", "tpu")).max(*_HOST)
    return Alert(
        expr=gauge(catalog.TPU_RUNTIME_UP).max(*_HOST).equals(0).and_(used, *_HOST),
        for_=limits.tpu_runtime_down_for,
        summary=(
            "A program of job {{ $labels.job }} on {{ $labels.instance }} uses "
            "TPUs, but no TPU runtime responds there; chip activity is not "
            "visible."
        ),
    )


def _alert(name: str, sentence: str, alert: str, build: AlertBuilder) -> Symptom:
    missing = "the live page lists accelerators, without a judgement"
    return Symptom(name, "F7", sentence, rule=(alert, build), missing=missing)


_GPU_FAULT = "JaxmonGpuFault"


SYMPTOMS = (
    Symptom(
        *("accelerator", "F7", "An accelerator no longer responds."),
        reason=lost,
        rule=("JaxmonAcceleratorLost", _accelerator_lost),
        wait="accelerator_lost_for",
    ),
    _alert("xid", "A GPU reported a critical error.", _GPU_FAULT, _gpu_xid),
    _alert("ecc", "A GPU has faulty memory.", _GPU_FAULT, _gpu_ecc_errors),
    _alert("reset", "A GPU needs a reset.", _GPU_FAULT, _gpu_needs_reset),
    _alert("throttled", "A GPU is throttled.", "JaxmonGpuThrottled", _gpu_throttled),
    _alert(
        *("tpu_runtime", "A program uses TPUs whose runtime does not respond."),
        *(MONITORING_ALERT, _tpu_runtime_down),
    ),
)
