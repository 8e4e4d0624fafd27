"""Error-budget burn-rate alerts."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.artifacts.alerts.model import DEPLOY_NOISE, Alert
from jaxmon.artifacts.slo import Slo, Thresholds, burn, durations
from jaxmon.artifacts.slo.thresholds import PAGE, TICKET


_DAY = 86400


def burn_alerts(slo: Slo, thresholds: Thresholds, scale: float) -> Iterator[Alert]:
    """
    Yield one alert for each pair of windows.

    Both windows are read from the recording rules, whose names keep the nominal window;
    only the guard against low traffic is counted separately, over the long one.
    """
    for pair in burn.pairs(slo.window, burn_3x_severity=thresholds.burn_3x_severity):
        yield _alert(slo, pair, scale)


def _alert(slo: Slo, pair: burn.Pair, scale: float) -> Alert:
    limit = round(pair.factor * slo.budget, 12)
    long = durations.scaled(pair.long, scale)
    counted = slo.scaled(scale)
    ratio = slo.recording(pair.long).max(*slo.by) > limit
    expr = (
        ratio.and_(slo.recording(pair.short).max(*slo.by) > limit)
        .and_(counted.errors(long) >= slo.minimum_errors)
        .and_(counted.events(long) >= slo.minimum_events)
    )
    severity = pair.severity if slo.page or pair.severity != PAGE else TICKET
    days = durations.seconds(slo.window) / pair.factor / _DAY
    who = ", ".join(f"{label} {{{{ $labels.{label} }}}}" for label in slo.by)
    pace = f"more than {pair.factor:g} times faster" if pair.factor != 1 else "faster"
    return Alert(
        name=slo.alert,
        expr=expr,
        for_=durations.scaled(pair.for_, scale),
        severity=severity,
        summary=(
            f"The error budget of '{slo.title}' is burning {pace} than sustainable."
        ),
        description=(
            f"{who}: {{{{ $value | humanizePercentage }}}} of events in the last "
            f"{pair.long} were bad ({slo.budget * 100:.6g}% allowed); at "
            f"{pair.factor:g} times that rate, the {slo.window} budget is "
            f"exhausted in {days:.3g} days."
        ),
        labels=(
            ("slo", slo.name),
            ("owner", slo.owner),
            ("long", pair.long),
            ("short", pair.short),
            ("factor", f"{pair.factor:g}"),
            *(DEPLOY_NOISE if slo.deploy_noise and severity != PAGE else ()),
        ),
    )
