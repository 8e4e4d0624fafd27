"""Which outputs that are not finite are a failure."""

import pytest

from jaxmon.agent.checks.numerics import OutputHistory, OutputReading, Outputs
from jaxmon.agent.checks.states import StateHistory
from jaxmon.facts.functions import Frozen, Output


FINITE = OutputReading(1, 1, nan=False, value=2.5)
NAN = OutputReading(1, 0, nan=True, value=None)
INF = OutputReading(1, 0, nan=False, value=None)
VECTOR = OutputReading(8, 8, nan=False, value=None)
PARTLY = OutputReading(8, 3, nan=True, value=None)
APART = OutputReading(8, 8, nan=False, value=None, differs=True)
ALL_NAN = OutputReading(8, 0, nan=True, value=None)
MASKED = OutputReading(8, 3, nan=False, value=None)


def output(*readings: OutputReading) -> OutputHistory:
    """Return an output read in these calls, every tenth one."""
    found = OutputHistory("['loss']")
    for number, reading in enumerate(readings, 1):
        found.add(reading, number * 10)
    return found


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        ([FINITE, NAN, NAN], "nonfinite"),
        ([FINITE, INF, NAN], "nonfinite"),
        ([VECTOR, ALL_NAN, ALL_NAN], "nonfinite"),
        ([FINITE, INF, INF], "infinite"),
        ([NAN, NAN, NAN], "always_nan"),
        ([FINITE, NAN], ""),
        ([FINITE, NAN, FINITE, NAN, FINITE], ""),
        ([INF, INF, INF], ""),
        ([INF, INF, FINITE], ""),
        ([ALL_NAN, ALL_NAN, ALL_NAN], ""),
        ([VECTOR, PARTLY, PARTLY, PARTLY], ""),
        ([MASKED, MASKED, MASKED], ""),
        ([NAN, NAN], ""),
        ([VECTOR, APART, APART], "differs"),
        ([APART, APART, VECTOR], ""),
    ],
)
def test_states(readings, state):
    """Only what was finite, and has no finite value in sample after sample, failed."""
    assert output(*readings).state == state


def test_the_calls_between_which_it_happened_are_known():
    """With the last finite value, and how often it recovered before."""
    found = output(FINITE, NAN, FINITE, NAN, NAN, NAN).explain()

    assert (found.finite_call, found.finite_value) == (30, 2.5)
    assert (found.call, found.samples, found.recovered) == (40, 3, 1)


def test_programs_with_other_outputs_are_kept_apart():
    """A few structures are remembered; those beyond are not judged."""
    outputs = Outputs()
    first = outputs.of(("[0]",))
    assert outputs.of(("[0]",)) is first
    assert outputs.of(("[0]", "[1]")) != first
    for number in range(10):
        outputs.of((f"['{number}']",))

    assert outputs.of(("['9']",)) == ()


def held(*names: str, readings: dict[str, list[OutputReading]]) -> list[Output]:
    """Return what is known of outputs that were read, one of *names* NaN at the end."""
    outputs = Outputs()
    for history in outputs.of(tuple(readings)):
        for call, reading in enumerate(readings[history.name], 1):
            history.add(reading, call)
    outputs.end(names, "train.py:9")
    return outputs.held


def test_nan_that_is_held_at_the_end_is_one_of_an_output_that_was_finite():
    """Of several that it may be, all must have been; then no value is theirs."""
    readings = {"[0]": [FINITE], "[1]": [VECTOR, FINITE], "[2]": [NAN]}
    alone = Output(name="[0]", state="nonfinite", finite_call=1, finite_value=2.5)

    assert held("[0]", readings=readings) == [alone.replace(where="train.py:9")]
    (either,) = held("[0]", "[1]", readings=readings)
    assert (either.name, either.finite_call) == ("[0] or [1]", 1)
    assert either.finite_value is None
    for names in (["[2]"], ["[0]", "[2]"], ["[3]"]):
        assert held(*names, readings=readings) == []


def frozen(*samples: tuple[str, str], every: int = 50) -> Frozen:
    """Return what is frozen after samples of a state, and of what is beside it."""
    history = StateHistory()
    for number, (state, beside) in enumerate(samples, 1):
        history.add(("[0]",), state.encode(), beside.encode(), number * every)
    return history.explain()


def test_a_state_that_changed_and_does_not_any_more_is_frozen():
    """Since which call, if other outputs change meanwhile."""
    found = frozen(("a", "1"), ("b", "2"), ("b", "3"), ("b", "4"), ("b", "5"))

    assert (found.call, found.calls, found.samples) == (100, 150, 4)


@pytest.mark.parametrize(
    "samples",
    [
        [("a", "1"), ("b", "2"), ("b", "3"), ("c", "4"), ("c", "5")],
        [("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("a", "5")],
        [("a", "1"), ("b", "2"), ("b", "2"), ("b", "2"), ("b", "2")],
    ],
    ids=["changes now and then", "a constant", "the same inputs"],
)
def test_a_state_is_not_frozen(samples):
    """It never changed, changes seldom, or no output changes at all."""
    assert not frozen(*samples).samples
    assert not frozen(("a", "1"), *[("b", n) for n in "2345"], every=10).samples
