"""Charts of a report: one time axis, what becomes visible on it, and units."""

from __future__ import annotations

import re

import pytest

from jaxmon.facts.events import Slower
from jaxmon.facts.marked import Series
from jaxmon.host.formats.layout import wrapped
from jaxmon.screens.html.charts import charts
from jaxmon.screens.html.elements import prose, text
from jaxmon.screens.html.page import page
from jaxmon.screens.runs import build, parse
from tests.unit.test_run_reports import full


START = 2e9
NBSP = "\N{NO-BREAK SPACE}"


def series(*values: float, start: float = START, every: float = 10.0) -> Series:
    times = tuple(start + every * number for number in range(len(values)))
    return Series(times, values)


def xs(drawing: str) -> list[list[float]]:
    """Return the horizontal places of the points of each line."""
    return [
        [float(point.split(",")[0]) for point in points.split()]
        for points in re.findall(r'points="([^"]*)"', drawing)
    ]


def test_all_charts_have_one_time_axis() -> None:
    """Requests that began late stand below the steps of the same time."""
    drawing = charts(
        {
            "steps": series(*[5.0] * 11),
            "requests": series(1.0, 2.0, 3.0, start=START + 50),
        }
    )
    requests, steps = xs(drawing)

    assert (steps[0], steps[-1]) == (0, 360)
    assert requests == [180, 216, 252]
    ends = re.findall(r'class="ends"><span>([\d:]+)</span><span>([\d:]+)<', drawing)
    assert len(ends) == 2
    assert ends[0] == ends[1] == ("03:33:20", "03:35:00")


def test_a_long_run_names_its_days() -> None:
    """Times of day alone would be ambiguous."""
    drawing = charts({"steps": series(*[5.0] * 11, every=20_000)})

    assert re.findall(r"<span>(May \d\d \d\d:\d\d)</span>", drawing) == [
        "May 18 03:33",
        "May 20 11:06",
    ]


def test_one_high_value_does_not_hide_a_jump() -> None:
    """The first step compiles; that later ones take four times as long is visible."""
    took = [6.0, *[0.05] * 60, *[0.2] * 39]
    drawing = charts({"step_seconds": series(*took)})
    (points,) = re.findall(r'points="([^"]*)"', drawing)
    first, before, *_, after = [float(one.split(",")[1]) for one in points.split()]

    assert first == 0  # cut off at the top
    assert before - after > 20
    assert f"0.60{NBSP}s; at most 6.0{NBSP}s" in drawing
    assert "0.05" not in drawing
    assert 'aria-label="Step time: mean 50 ms to 6.0 s"' in drawing


@pytest.mark.parametrize(
    ("values", "top"), [((0, 0, 9), "9"), ((4, 5, 6), "6"), ((1, 1, 1, 5), "5")]
)
def test_values_that_are_alike_are_all_shown(values, top):
    """Nothing is cut off where few values differ from zero, or all are similar."""
    drawing = charts({"steps": series(*values)})

    assert f'class="top">{top}<' in drawing


def test_the_time_of_a_slowdown_is_marked_in_each_chart() -> None:
    """Of this run, not that of an earlier one; the note says of what."""
    run = parse(build(full()))
    times = run.snapshot.charts["steps"].times
    slower = (
        Slower("loop", "train", against="earlier", since=times[1]),
        Slower("function", "f", against="past_run", since=times[0] - 9e5),
    )
    found = page(run.replace(snapshot=run.snapshot.replace(slower=slower)))

    assert found.count('class="marked"') == found.count("<figure") == 6
    assert "dashed: since when train is slower" in found
    assert 'class="marked"' not in page(run)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("took 14.2 s, 85 ms", f"took 14.2{NBSP}s, 85{NBSP}ms"),
        ("3 min 20 s ago", f"3{NBSP}min{NBSP}20{NBSP}s ago"),
        ("(95 %) of 1.5 GiB", f"(95{NBSP}%) of 1.5{NBSP}GiB"),
        ("12 µs; 1.23 T", f"12{NBSP}µs; 1.23{NBSP}T"),
        ("4.9 steps/s in 2 d", f"4.9{NBSP}steps/s in 2{NBSP}d"),
        ("3 steps of 2 minutes, 1 B1", "3 steps of 2 minutes, 1 B1"),
    ],
)
def test_a_number_and_its_unit_stay_together(words, expected):
    """No line breaks between them; other spaces are as they were."""
    assert text(words) == expected


def test_what_is_to_be_typed_is_not_changed() -> None:
    """A command is copied as it is, whatever stands in it."""
    assert prose("after 5 s: `sleep 5 s`") == f"after 5{NBSP}s: <kbd>sleep 5 s</kbd>"


def test_a_terminal_keeps_a_number_with_its_unit() -> None:
    """A line ends before a quantity rather than within; no space is another."""
    words = "its last step was 3 min 17 s ago; a page follows at 12 min."

    assert wrapped(words, 27) == [
        "its last step was",
        "3 min 17 s ago; a page",
        "follows at 12 min.",
    ]
    assert wrapped("12 min", 4) == ["12 m", "in"]
    assert wrapped("", 4) == []
