"""
Burn-rate thresholds: pairs of long and short windows.

An alert fires while the error ratio of both windows is more than the factor times the
budget: the long window keeps a short spike from firing it, the short one ends it soon
after the errors do. The factor follows from the fraction of the budget that may be
spent when the alert fires: 2 % of a 30-day budget within an hour is a burn rate of
14.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from jaxmon.artifacts.slo import durations
from jaxmon.artifacts.slo.thresholds import PAGE, TICKET, Severity


# Pairs of three days need a period of several weeks.
MINIMUM_PERIOD, MAXIMUM_PERIOD = "28d", "90d"
EXAMPLES = ("28d", "30d", "90d")


@dataclass(frozen=True, slots=True)
class Pair:
    """One condition: *factor* times the budget in the *long* and the *short* window."""

    long: str
    short: str
    factor: float
    severity: Severity
    for_: str


def pairs(period: str, *, burn_3x_severity: Severity = TICKET) -> tuple[Pair, ...]:
    """
    Return the pairs for objectives over *period*, the most urgent first.

    Two page and two file a ticket, as in the SRE workbook. The last is the field
    guide's: three times as fast, over one hour, whatever the period.
    """
    return (
        Pair("1h", "5m", _factor(2, "1h", period), PAGE, "2m"),
        Pair("6h", "30m", _factor(5, "6h", period), PAGE, "2m"),
        Pair("1d", "2h", _factor(10, "1d", period), TICKET, "15m"),
        Pair("3d", "6h", _factor(10, "3d", period), TICKET, "15m"),
        Pair("1h", "5m", 3.0, burn_3x_severity, "5m"),
    )


def windows(period: str) -> tuple[str, ...]:
    """Return every window that the rules record, the shortest first."""
    used = {one for pair in pairs(period) for one in (pair.long, pair.short)}
    return tuple(sorted({*used, period}, key=durations.seconds))


def unreachable(period: str, objective: float) -> Pair | None:
    """Return the first pair that even a total outage would not trigger."""
    budget = 1 - Decimal(str(objective))
    for pair in pairs(period):
        if Decimal(str(pair.factor)) * budget >= 1:
            return pair
    return None


def _factor(percent: int, long: str, period: str) -> float:
    share = Decimal(percent) / 100
    exact = share * durations.seconds(period) / durations.seconds(long)
    return float(round(exact, 4))
