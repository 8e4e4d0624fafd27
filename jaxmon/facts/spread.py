"""
How times of one kind vary, and whether they are longer than others, beyond noise.

The one judgement on a slowdown from samples: of a running process against its own past,
and of one run against another. Both have the samples; `jaxmon.symptoms.slowdowns` and
Prometheus have only sums and buckets, and compare means and quantiles of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


LEAST_SECONDS = 2e-5
"""What is less is the resolution of clocks, and no slowdown."""

_LOW, _MIDDLE, _HIGH = 0.25, 0.5, 0.9


class Distribution(NamedTuple):
    """
    Quantiles of times, in seconds.

    Attributes:
        low: the lower quartile.
        middle: the median.
        high: what nine of ten do not exceed.
    """

    low: float
    middle: float
    high: float

    def limit(self, margin: float) -> float:
        """
        Return what only slower times exceed, not those that vary as these do; *margin*
        is `Limits.slower`.
        """
        return self.high * (1 + margin) + LEAST_SECONDS

    def slower_than(self, before: Distribution, margin: float) -> bool:
        """Return whether these times are longer than those *before*, beyond noise."""
        return self.low > before.limit(margin)


def distribution(times: Sequence[float]) -> Distribution:
    """Return the quantiles of *times*, at least one."""
    ordered = sorted(times)
    last = len(ordered) - 1
    return Distribution(*(ordered[round(q * last)] for q in (_LOW, _MIDDLE, _HIGH)))
