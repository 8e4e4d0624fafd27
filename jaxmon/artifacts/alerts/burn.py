"""Error-budget burn-rate alerts."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.artifacts.slo import Slo, burn
from jaxmon.artifacts.slo.model import ERRORS, EVENTS
from jaxmon.formats import durations
from jaxmon.symptoms.alert import DEPLOY_NOISE, PAGE, TICKET, Alert


_DAY = 86400


def burn_alerts(slo: Slo, scale: float) -> Iterator[Alert]:
    """
    Yield one alert for each pair of windows.

    They read only what is recorded, whose names keep the nominal windows.
    """
    for pair in slo.pairs:
        yield _alert(slo, pair, scale)


def _alert(slo: Slo, pair: burn.Pair, scale: float) -> Alert:
    least = pair.least(slo.budget)
    expr = (slo.recording(pair.long).max(*slo.by) > least).and_(
        slo.recording(pair.short).max(*slo.by) > least
    )
    errors = slo.increase(ERRORS, pair.long).max(*slo.by)
    expr = expr.and_(errors >= slo.minimum_errors)
    if pair.factor is not None:
        events = slo.increase(EVENTS, pair.long).max(*slo.by)
        expr = expr.and_(events >= slo.minimum_events)
    severity = pair.severity if slo.page or pair.severity != PAGE else TICKET
    who = ", ".join(f"{label} {{{{ $labels.{label} }}}}" for label in slo.by)
    return Alert(
        name=slo.alert,
        expr=expr,
        for_=durations.scaled(pair.for_, scale),
        severity=severity,
        summary=(
            f"{who}: {{{{ $value | humanizePercentage }}}} of events in the last "
            f"{pair.long} were bad ({slo.budget * 100:.6g}% allowed)."
        ),
        description=_meaning(slo, pair),
        labels=(
            ("slo", slo.name),
            ("owner", slo.owner),
            ("long", pair.long),
            ("short", pair.short),
            *((("factor", f"{pair.factor:g}"),) if pair.factor is not None else ()),
            *(DEPLOY_NOISE if slo.deploy_noise and severity != PAGE else ()),
        ),
    )


def _meaning(slo: Slo, pair: burn.Pair) -> str:
    if pair.factor is None:
        return f"Most events of '{slo.title}' are bad, of few: {slo.description}"
    days = durations.seconds(slo.window) / pair.factor / _DAY
    pace = f"more than {pair.factor:g} times faster" if pair.factor != 1 else "faster"
    return (
        f"The error budget of '{slo.title}' is burning {pace} than sustainable; at "
        f"{pair.factor:g} times that rate, the {slo.window} budget is exhausted in "
        f"{days:.3g} days."
    )
