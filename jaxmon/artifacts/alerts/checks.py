"""Alerts on results: keys used twice, checks that failed."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.alerts.model import COUNT, Alert
from jaxmon.artifacts.promql import counter, eq
from jaxmon.artifacts.slo import Thresholds
from jaxmon.artifacts.slo.thresholds import TICKET


def key_reuse(thresholds: Thresholds) -> Alert:
    """Alert on a PRNG key that is used twice."""
    window = thresholds.key_window
    reuses = counter(catalog.KEY_REUSE).mishaps(window)
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


def check_failed(thresholds: Thresholds) -> Alert:
    """Alert on results that differ between runs, or from what they should be."""
    window = thresholds.check_window
    failed = eq("outcome", "failed")
    determinism, gradients = (
        counter(one, failed).mishaps(window).sum("job", "function") > 0
        for one in (catalog.DETERMINISM_CHECKS, catalog.GRADIENT_CHECKS)
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
