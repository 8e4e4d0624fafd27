"""Alerts on results: keys used twice, checks that failed, devices that fail them."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.artifacts import events
from jaxmon.artifacts.alerts.model import COUNT, Alert
from jaxmon.artifacts.slo.severity import PAGE, TICKET
from jaxmon.limits import Limits
from jaxmon.promql import eq


_PROCESS = ("job", "instance", "worker")


def of_results(limits: Limits) -> Iterator[Alert]:
    """Yield the alerts."""
    yield key_reuse(limits)
    yield check_failed(limits)
    yield silent_corruption(limits)


def key_reuse(limits: Limits) -> Alert:
    """Alert on a PRNG key that is used twice."""
    window = limits.key_window
    reuses = events.KEY_REUSE.within(window)
    return Alert(
        name="JaxmonKeyReuse",
        expr=reuses.sum("job", "function") > 0,
        severity=TICKET,
        description="A PRNG key is used twice, so its random numbers repeat.",
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} reused a PRNG "
            f"key {COUNT} times in {window}."
        ),
    )


def check_failed(limits: Limits) -> Alert:
    """Alert on results that differ between runs, or from what they should be."""
    window = limits.check_window
    failed = eq("outcome", "failed")
    determinism, gradients = (
        one.within(window, failed).sum("job", "function") > 0
        for one in (events.DETERMINISM_CHECKS, events.GRADIENT_CHECKS)
    )
    return Alert(
        name="JaxmonCheckFailed",
        expr=determinism.or_(gradients),
        severity=TICKET,
        description=(
            "A determinism or gradient check failed: results differ between two runs "
            "on the same input, or gradients from finite differences."
        ),
        summary=(
            "{{ $value | humanize }} checks of function {{ $labels.function }} of job "
            f"{{{{ $labels.job }}}} failed in {window}."
        ),
    )


def silent_corruption(limits: Limits) -> Alert:
    """
    Alert on a device that computes wrongly: what depends on chance in a program differs
    on other devices as well.
    """
    window = limits.deviation_window
    deviations = events.DEVICE_DEVIATIONS.within(window)
    by_device = deviations.sum(*_PROCESS, "device")
    alone = (by_device > 0).count(*_PROCESS).equals(1)
    return Alert(
        name="JaxmonSilentCorruption",
        expr=(by_device >= limits.deviations).and_(alone, *_PROCESS),
        severity=PAGE,
        description=(
            "One device computes something else than the others, again and again, "
            "without an error: silent data corruption."
        ),
        summary=(
            "Device {{ $labels.device }} of {{ $labels.instance }} (worker "
            "{{ $labels.worker }}), job {{ $labels.job }}, alone computed wrong values "
            f"in {COUNT} checks within {window}."
        ),
    )
