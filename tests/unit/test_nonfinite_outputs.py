"""Which outputs that are not finite are a failure."""

import pytest

from jaxmon.agent.checks.numerics import OutputHistory, OutputReading, Outputs


FINITE = OutputReading(1, 1, nan=False, value=2.5)
NAN = OutputReading(1, 0, nan=True, value=None)
INF = OutputReading(1, 0, nan=False, value=None)
VECTOR = OutputReading(8, 8, nan=False, value=None)
PARTLY = OutputReading(8, 3, nan=True, value=None)
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
