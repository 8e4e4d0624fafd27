"""Each screen, read alone, names the cause of a planted fault."""

import pytest

from tests.helpers.processes import QUICK_COMPILES
from tests.screens import PAGES, running


_DEADLINE = 300.0


# ``python -m tests.screens`` plants all.
@pytest.mark.parametrize(
    "name",
    ["failing_requests", pytest.param("becomes_nan", marks=pytest.mark.exhaustive)],
)
def test_each_screen_names_the_cause_and_nothing_above_it(chrome, name):
    """A screen names line or function; a program's own page may name a screen."""
    with running(name, chrome, **QUICK_COMPILES) as case:
        case.watch(_DEADLINE)
        told = case.told

    unnamed = {screen: one.text for screen, one in told.items() if one.after is None}
    own = told["own page"]
    assert unnamed.keys() <= {"own page"}, unnamed
    assert own.after is not None or own.refers, own.text
    assert not any("`" in told[page].text for page in PAGES)
    assert [one.above for one in told.values()] == [[]] * len(told)
