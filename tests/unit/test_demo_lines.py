"""What the demo shows, as plain lines."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from jaxmon import catalog
from jaxmon.cli.gameday.scene import (
    DisplayState,
    SceneLog,
    alerts,
    one_line,
    overview,
    plain,
    steps,
    totals_table,
)
from jaxmon.exposition.families import Family, series
from jaxmon.facts.reading import read
from jaxmon.facts.status import Summary
from jaxmon.screens.status import summarise
from jaxmon_alerts.gameday.stack import ActiveAlert


def summary_of(*functions: tuple[str, int, int, int, float]) -> Summary:
    """Return the summary of functions: name, calls, hits, compiles, seconds."""
    compile_sum = f"{catalog.COMPILE_SECONDS.name}_sum"
    families = [
        Family(
            catalog.JIT_CALLS,
            [(series(catalog.JIT_CALLS, f[0]), f[1]) for f in functions],
        ),
        Family(
            catalog.JIT_CACHE_HITS,
            [(series(catalog.JIT_CACHE_HITS, f[0]), f[2]) for f in functions],
        ),
        Family(
            catalog.COMPILES,
            [
                (series(catalog.COMPILES, one[0], "compiled"), one[3])
                for one in functions
            ],
        ),
        Family(
            catalog.COMPILE_SECONDS,
            [(f'{compile_sum}{{function="{one[0]}"}}', one[4]) for one in functions],
        ),
    ]
    return summarise(read(families, time=0.0))


SUMMARY = summary_of(
    ("__main__.eval_step", 40, 39, 1, 0.5),
    ("__main__.train_step", 12_000, 11_999, 1, 2.25),
    ("jax._src.numpy.ufuncs.a_long_name_of_a_function", 0, 0, 3, 1.25),
    ("never.used", 0, 0, 0, 0.0),
)
PLACES = {"live page": "http://127.0.0.1:9467/"}


def table(summary: Summary, *, width: int, height: int) -> list[str]:
    """Return the overview of *summary* as text."""
    return plain(overview(summary, width=width, height=height))


def alert(
    name: str, *, firing: bool = True, subject: str = "route=/a", age: float = 0.0
) -> ActiveAlert:
    """Return an alert that is active since *age* seconds."""
    since = datetime.now(UTC) - timedelta(seconds=age)
    return ActiveAlert(name, "ticket", subject, firing, since)


def test_steps_are_the_calls_of_the_train_step() -> None:
    """Other functions do not count as steps, whatever their name contains."""
    other = summary_of(("m.train_step", 3, 2, 1, 0.0), ("m.pretrain_step", 9, 8, 1, 0))

    assert steps(SUMMARY) == 12_000
    assert steps(other) == 3


def test_totals_name_every_figure() -> None:
    """The totals have a line each, and the line has them all."""
    figures = ["12,000", "12,040", "100.0 %", "5", "0", "4.0 s"]

    assert [line.split(maxsplit=1)[0] for line in totals_table(SUMMARY)] == [
        *("steps", "calls", "hit", "compiles", "recompiles", "compile")
    ]
    assert all(
        line.endswith(figure)
        for line, figure in zip(totals_table(SUMMARY), figures, strict=True)
    )
    assert one_line(SUMMARY) == (
        "steps 12,000  calls 12,040  hit rate 100.0 %  compiles 5 in 4.0 s"
        "  recompiles 0"
    )


def test_functions_that_are_called_come_first() -> None:
    """Rows are sorted by calls, and functions that did nothing have none."""
    text = "\n".join(table(SUMMARY, width=80, height=24))

    assert re.findall(r"^  (\S+) +([\d,]+) +(-|[\d.]+ %) ", text, re.MULTILINE) == [
        ("__main__.train_step", "12,000", "100.0 %"),
        ("__main__.eval_step", "40", "97.5 %"),
        ("…ng_name_of_a_function", "0", "-"),
    ]
    assert "never.used" not in text


@pytest.mark.parametrize("height", [6, 7, 8, 30])
@pytest.mark.parametrize("width", [40, 60, 80, 81, 132])
def test_table_fits_the_room(width: int, height: int) -> None:
    """No line is longer and no more lines are drawn than there is room for."""
    many = summary_of(*((f"module.function_{n}", n, n, 1, 0.1) for n in range(20)))

    lines = table(many, width=width, height=height)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_functions_without_room_share_a_line() -> None:
    """What is left out is counted, so that the columns still add up."""
    many = summary_of(*((f"module.function_{n}", 10, 5, 1, 0.5) for n in range(20)))

    last = table(many, width=80, height=10)[-1]

    assert re.match(r"  14 more +140 +50.0 % +14 +0 +7.00 s", last)


def test_an_alert_is_shown_with_its_age() -> None:
    """A row has all that matters within 80 columns."""
    found = [
        alert(
            "JaxmonStepFreshnessBudgetBurn", subject=f"function=m.{'x' * 99}", age=75
        ),
        alert("JaxmonTargetDown", firing=False, subject="instance=host:1"),
    ]

    _, heading, first, second, _ = plain(alerts(found, width=80))

    assert heading.split() == ["ALERT", "STATE", "SEVERITY", "SUBJECT", "SINCE"]
    assert first.split()[:3] == ["JaxmonStepFreshnessBudgetBurn", "firing", "ticket"]
    assert re.search(r" …x+ +0:01:1\d$", first)
    assert second.split()[:4] == ["JaxmonTargetDown", "pending", "ticket", "host:1"]
    assert {len(one) for one in (heading, first, second)} == {80}


def test_a_long_list_of_alerts_is_cut() -> None:
    """Alerts that find no room are counted."""
    found = [alert(f"Alert{number}") for number in range(9)]

    shown = plain(alerts(found, width=80, most=4))

    assert len(shown) == 2 + 4 + 1 + 1
    assert shown[-2] == "  5 more"


def test_a_log_reports_what_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """Faults and alerts are logged when they come and go."""
    firing = alert("Told")
    log = SceneLog(PLACES)
    log.show(DisplayState(0.0, SUMMARY, [], "fault x begins"))
    log.show(
        DisplayState(
            1.0, SUMMARY, [alert("Told", firing=False)], "fault x", broken=True
        )
    )
    log.show(DisplayState(2.0, SUMMARY, [firing], "fault x", broken=True))
    log.show(DisplayState(3.0, SUMMARY, [firing], "fault x ended"))
    log.show(DisplayState(4.0, SUMMARY, [], "fault x ended"))
    log.show(DisplayState(10.0, SUMMARY, [], "fault x ended"))
    lines = capsys.readouterr().out.splitlines()[len(PLACES) :]

    assert [re.sub(r"^ +| +steps.*", "", line) for line in lines] == [
        "0:00:00",
        "0:00:00  fault x begins",
        "0:00:00  Not known: no instrumented process runs here.",
        "0:00:01  fault x",
        "0:00:01  pending  ticket  Told  route=/a",
        "0:00:02  firing  ticket  Told  route=/a",
        "0:00:03  fault x ended",
        "0:00:04  resolved  ticket  Told  route=/a",
        "0:00:10",
        "0:00:10  fault x ended",
    ]
