"""The rank test against every order of the runs, and against published tables."""

from itertools import combinations, product
from operator import ge

import pytest

from jaxmon.preflight.baseline.compare import RISK, critical, not_slower
from tests.helpers.processes import each


def orders(before: int, after: int) -> list[int]:
    """Return the number of pairs that are not slower, in each order of the runs."""
    places = range(before + after)
    found = []
    for later in combinations(places, after):
        earlier = [place for place in places if place not in later]
        found.append(not_slower(earlier, later, ge))
    return found


@each({str(one): one for one in product(range(1, 7), range(1, 7), (RISK, 0.05))})
def test_accusations_are_as_rare_as_promised(before, after, risk):
    """
    Where nothing has changed, at most the promised fraction of all orders of the runs
    is an accusation, and one more pair would be too many.
    """
    found, most = orders(before, after), critical(before, after, risk)
    assert sum(pairs <= most for pairs in found) <= risk * len(found)
    assert sum(pairs <= most + 1 for pairs in found) > risk * len(found)


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [(4, 4, -1), (4, 5, 0), (5, 5, 1), (6, 6, 3), (8, 8, 9), (10, 10, 19)],
)
def test_critical_values_are_those_of_the_tables(before, after, pairs):
    """They are in each table of Mann and Whitney's test, one-sided at 1 %."""
    assert critical(before, after, 0.01) == pairs
