"""
Whether one set of runs is slower than another: a rank test with a margin.

This is the test of Mann and Whitney (1947), "On a test of whether one of two random
variables is stochastically larger than the other", Ann. Math. Statist. 18: of all pairs
of a run before and a run after, count those in which the later one is not slower. If
both sets come from one distribution, all orders of the runs are equally likely, so the
chance of so few such pairs is known exactly, whatever the distribution. Here a pair
counts as slower only beyond the tolerance; that makes an accusation rarer still.

The runs are processes, not calls: the calls of one process share its memory layout,
its threads and the moment on the machine (Kalibera and Jones 2013, "Rigorous
benchmarking in reasonable time"; Georges, Buytaert and Eeckhout 2007, "Statistically
rigorous Java performance evaluation").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import comb


RISK = 0.01
"""Maximum probability of an accusation where nothing has changed."""


def not_slower(
    before: Sequence[float],
    after: Sequence[float],
    allows: Callable[[float, float], bool],
) -> int:
    """Return in how many pairs of runs the later one is within the tolerance."""
    return sum(allows(one, other) for one in before for other in after)


def critical(before: int, after: int, risk: float = RISK) -> int:
    """
    Return up to how many such pairs the runs *after* are slower than those *before*;
    -1 if there are too few runs to tell.
    """
    orders, fewest, seen = comb(before + after, after), -1, 0
    while fewest < before * after:
        seen += _orders(before, after, fewest + 1)
        if seen > risk * orders:
            break
        fewest += 1
    return fewest


@cache
def _orders(before: int, after: int, pairs: int) -> int:
    """
    Return how many orders of the runs have exactly that many *pairs* in which the later
    run is faster: the recurrence of Mann and Whitney, by which run is the slowest.
    """
    if pairs < 0:
        return 0
    if not before or not after:
        return int(not pairs)
    return _orders(before - 1, after, pairs - after) + _orders(before, after - 1, pairs)
