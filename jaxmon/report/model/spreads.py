"""How times vary, as a report has it."""

from __future__ import annotations

from dataclasses import dataclass

from jaxmon.report.spread import Distribution


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of times, in seconds, and of how many."""

    count: int = 0
    low: float = 0.0
    middle: float = 0.0
    high: float = 0.0

    @property
    def distribution(self) -> Distribution:
        """The quantiles."""
        return Distribution(self.low, self.middle, self.high)
