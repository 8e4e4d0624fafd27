"""
Conditions of the alerts on a budget: pairs of a long and a short window.

An alert fires while the error ratio of both windows is above a limit: the long window
keeps a short spike from firing it, the short one ends it soon after the errors do.

Most limits are a multiple of the budget, the burn rate. It follows from the fraction of
the budget that may be spent when the alert fires: 2 % of a 30-day budget within an hour
is a burn rate of 14.4. With little traffic too few events happen in such windows, so
there are also limits on the ratio itself: most of the few requests fail.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Literal

from jaxmon.host.formats import durations
from jaxmon.symptoms.alert import PAGE, TICKET, Severity


# Pairs of three days need a period of several weeks.
MINIMUM_PERIOD, MAXIMUM_PERIOD = "28d", "90d"

Limit = Literal["budget", "rate", "ratio"]
"""How a condition states its limit; see `Condition`."""

WINDOW = "5m"
"""The shortest window, of the current burn rate; recorded in any case."""


@dataclass(frozen=True, slots=True)
class Condition:
    """
    One condition, as ``slo.yaml`` states it: both windows must exceed a limit, *for_*
    so long. The *value* is a fraction of the *budget* spent within the long window, a
    burn *rate*, or a *ratio* of bad events.
    """

    long: str
    short: str
    limit: Limit
    value: float
    severity: Severity
    for_: str


@dataclass(frozen=True, slots=True)
class Pair(Condition):
    """
    A condition for objectives over one period: *factor* is the burn rate that both
    windows must exceed; `None` if the limit is a ratio, whatever the budget.
    """

    factor: float | None = None

    def least(self, budget: float) -> float:
        """Return the error ratio above which it fires, for this *budget*."""
        return self.value if self.factor is None else round(self.factor * budget, 12)


POLICY = (
    Condition("1h", "5m", "budget", 0.02, PAGE, "2m"),
    Condition("6h", "30m", "budget", 0.05, PAGE, "2m"),
    Condition("1h", "5m", "rate", 3.0, PAGE, "10m"),
    Condition("10m", "5m", "ratio", 0.5, PAGE, "1m"),
    Condition("30m", "10m", "ratio", 0.5, PAGE, "1m"),
    Condition("1d", "2h", "budget", 0.1, TICKET, "15m"),
    Condition("3d", "6h", "budget", 0.1, TICKET, "15m"),
)
"""
The default. The first two and the last two are the SRE workbook's; the third is the
operators' rule of thumb, three times the pace for an hour, of which it ignores bursts
shorter than five minutes.
"""


def pairs(period: str, policy: tuple[Condition, ...] = POLICY) -> tuple[Pair, ...]:
    """Return what *policy* means for objectives over *period*."""
    return tuple(_pair(condition, period) for condition in policy)


def windows(period: str, policy: tuple[Condition, ...] = POLICY) -> tuple[str, ...]:
    """Return every window that the rules record, the shortest first."""
    used = {window for pair in policy for window in (pair.long, pair.short)}
    return tuple(sorted({WINDOW, *used, period}, key=durations.seconds))


def unreachable(
    period: str, objective: float, policy: tuple[Condition, ...] = POLICY
) -> Pair | None:
    """Return the first pair that even a total outage would not trigger."""
    budget = 1 - Decimal(str(objective))
    for pair in pairs(period, policy):
        if pair.factor is not None and Decimal(str(pair.factor)) * budget >= 1:
            return pair
    return None


def _pair(condition: Condition, period: str) -> Pair:
    factor = None if condition.limit == "ratio" else condition.value
    if condition.limit == "budget":
        share = Decimal(str(condition.value)) * durations.seconds(period)
        factor = float(round(share / durations.seconds(condition.long), 4))
    return Pair(**asdict(condition), factor=factor)
