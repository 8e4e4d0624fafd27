"""What the demo shows while it runs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jaxmon import catalog
from jaxmon.cli import views
from jaxmon.cli.active import ActiveAlert
from jaxmon.cli.views import Scene, view
from jaxmon.exposition.families import Family, series
from jaxmon_exporter.summary import summarise


WHERE = {f"place {number}": "http://127.0.0.1:9467/" for number in range(6)}
CALLS: list[tuple[str, float]] = [
    (series(catalog.JIT_CALLS, f"m.f{number}"), 9) for number in range(30)
]
SUMMARY = summarise(
    [Family(catalog.JIT_CALLS, CALLS)], [], version="0", time=0.0, run_dir=Path("/run")
)


def alert(name, *, firing=True):
    """Return an alert that is active since now."""
    return ActiveAlert(name, "ticket", "route=/a", firing, datetime.now(UTC))


@pytest.mark.parametrize("lines", [24, 30, 60])
@pytest.mark.parametrize("alerts", [0, 1, 4, 20])
def test_what_is_drawn_fits_the_terminal(lines, alerts, monkeypatch, capsys):
    """
    However many alerts there are, what is drawn does not scroll, and shows functions.
    """
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", str(lines))
    active = [alert(f"Alert{number}") for number in range(alerts)]
    scene = Scene(1.0, SUMMARY, active, "fault stall begins in 0:00:06")
    live = views._Live(WHERE, duration=60)

    live.show(scene)
    drawn = capsys.readouterr().out

    assert drawn.count("\n") < lines
    assert " m.f" in drawn
    assert ("no alerts" in drawn) == (alerts == 0)
    assert ("Alert0 " in drawn) == (alerts > 0)
    assert "fault stall begins" in drawn


def test_a_narrow_terminal_shows_whole_commands(monkeypatch, capsys):
    """What is to be copied is not cut: it moves below its name."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "40")
    command = "jaxmon explain 0 --run-dir /tmp/jaxmon-demo-12345678"

    views._Live({"explanation": command}, duration=None).show(Scene(1.0, SUMMARY))

    assert f"  explanation\n\x1b[K    {command}\n" in capsys.readouterr().out


def test_a_log_tells_what_changes(capsys):
    """
    Figures come now and then; a fault and an alert when they come and when they go.
    """
    told = alert("Told")
    with view(WHERE, None) as log:
        log.show(Scene(0.0, SUMMARY, [], "fault x begins"))
        log.show(
            Scene(1.0, SUMMARY, [alert("Told", firing=False)], "fault x", broken=True)
        )
        log.show(Scene(2.0, SUMMARY, [told], "fault x", broken=True))
        log.show(Scene(3.0, SUMMARY, [told], "fault x ended"))
        log.show(Scene(4.0, SUMMARY, [], "fault x ended"))
        log.show(Scene(10.0, SUMMARY, [], "fault x ended"))
    lines = capsys.readouterr().out.splitlines()[len(WHERE) :]

    assert [re.sub(r"^ +| +steps.*", "", line) for line in lines] == [
        "0:00:00",
        "0:00:00  fault x begins",
        "0:00:01  fault x",
        "0:00:01  pending  ticket  Told  route=/a",
        "0:00:02  firing  ticket  Told  route=/a",
        "0:00:03  fault x ended",
        "0:00:04  resolved  ticket  Told  route=/a",
        "0:00:10",
        "0:00:10  fault x ended",
    ]


def test_a_log_ends_with_what_still_fires(capsys):
    """The last table names the alerts that are left."""
    with view(WHERE, None) as log:
        log.finish(Scene(3.0, SUMMARY, [alert("Left")]))

    assert re.search(r"^  Left +firing", capsys.readouterr().out, re.MULTILINE)
