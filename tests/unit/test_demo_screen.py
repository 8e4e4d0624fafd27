"""What the demo shows on a terminal."""

import io
import re
import sys
from datetime import UTC, datetime
from functools import partial

import pytest

from jaxmon import catalog
from jaxmon.cli.gameday.scene import DisplayState, SceneLog, drawn, finish, view
from jaxmon.cli.top.terminal import cells, line
from jaxmon.exposition.families import Family, series
from jaxmon.facts.reading import read
from jaxmon.screens.status import summarise
from jaxmon_alerts.gameday.stack import ActiveAlert
from tests.helpers.adversaries import HOSTILE, harmful


PLACES = {f"place {number}": "http://127.0.0.1:9467/" for number in range(6)}


def summary_of(*names):
    """Return the sidecar's summary of functions that were called nine times."""
    calls = [(series(catalog.JIT_CALLS, name), 9.0) for name in names]
    family = Family(catalog.JIT_CALLS, calls)
    return summarise(read([family], time=0.0))


SUMMARY = summary_of(*(f"m.f{number}" for number in range(30)))


class Terminal(io.StringIO):
    """A stream that calls itself a terminal."""

    def isatty(self):
        return True


def frame(scene, places=PLACES, width=80, height=24):
    """Return the lines of a terminal on which *scene* is drawn, without colours."""
    lines = drawn(scene, (width, height), places=places, duration=60)
    drawing = [cells(line(*parts), width) for parts in lines]
    return ["".join(cell.text for cell in cells).rstrip() for cells in drawing]


def alert(name, *, firing=True):
    """Return an alert that is active since now."""
    return ActiveAlert(name, "ticket", "route=/a", firing, datetime.now(UTC))


@pytest.mark.parametrize("height", [24, 30, 60])
@pytest.mark.parametrize("alerts", [0, 1, 4, 20])
def test_what_is_drawn_fits_the_terminal(height, alerts):
    """However many alerts there are, functions are shown, and what to do about one."""
    active = [alert(f"Alert{number}") for number in range(alerts)]
    scene = DisplayState(1.0, SUMMARY, active, "fault stall starts in 0:00:06")

    lines = frame(scene, height=height)
    text = "\n".join(lines)

    assert len(lines) <= height
    assert max(map(len, lines)) <= 80
    assert " m.f" in text
    assert ("no alerts" in text) == (alerts == 0)
    assert ("Alert0 " in text) == (alerts > 0)
    assert ("runbook: jaxmon runbook show Alert0" in text) == (alerts > 0)
    assert "fault stall starts" in text


@pytest.mark.parametrize(
    ("width", "functions", "alerts"),
    [
        (
            80,
            "CALLS HIT RATE COMPILES RECOMPILES COMPILE TIME",
            "STATE SEVERITY SUBJECT SINCE",
        ),
        (70, "CALLS HIT RATE COMPILES RECOMPILES", "STATE SUBJECT SINCE"),
        (60, "CALLS HIT RATE RECOMPILES", "STATE SUBJECT"),
        (40, "RECOMPILES", "STATE"),
    ],
)
def test_a_narrow_terminal_does_without_some_columns(width, functions, alerts):
    """Names and what matters most stay whole; the others are left out."""
    scene = DisplayState(1.0, SUMMARY, [alert("JaxmonTargetDown")])

    headings = [
        " ".join(line.split())
        for line in frame(scene, width=width, height=40)
        if "FUNCTION" in line or "ALERT" in line
    ]

    assert headings == [f"FUNCTION {functions}", f"ALERT {alerts}"]


def test_a_narrow_terminal_shows_whole_commands():
    """What is to be copied is not cut: it moves below its name."""
    command = "jaxmon explain 0 --run-dir /tmp/jaxmon-demo-12345678"

    lines = frame(DisplayState(1.0, SUMMARY), places={"explanation": command}, width=60)

    assert [one.rstrip() for one in lines[:2]] == ["  explanation", f"    {command}"]


def test_text_of_others_moves_no_cursor():
    """Names of functions, alerts and places are shown as they are, and not obeyed."""
    hostile = f"{HOSTILE}[red]x[/red]"
    summary = summary_of("m.f")
    (function,) = summary.functions
    summary = summary.replace(functions=(function.replace(name=f"m.{hostile}"),))
    scene = DisplayState(1.0, summary, [alert(hostile)], hostile)

    lines = frame(scene, places={"place": hostile}, width=400)

    assert harmful("\n".join(lines)) == []
    assert "".join(lines).count("[red]x[/red]") == 5


def test_the_last_figures_stay(capsys):
    """They are printed once the screen is left, and remain above the prompt."""
    finish(DisplayState(2.0, SUMMARY, [alert("Left")]))

    out = capsys.readouterr().out
    assert out.startswith("\n  After 0:00:02\n  steps 0  calls 270")
    assert re.search("^  Left +firing", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("stream", "term"), [(Terminal, "dumb"), (io.StringIO, "xterm")]
)
def test_what_suits_the_output(stream, term, monkeypatch):
    """Plain lines go where nothing can be drawn."""
    monkeypatch.setattr(sys, "stdout", stream())
    monkeypatch.setenv("TERM", term)

    draw = partial(drawn, places=PLACES, duration=None)
    with view(draw, lambda: SceneLog(PLACES).show) as show:
        assert type(getattr(show, "__self__", None)) is SceneLog
