"""What the scenarios of a game day promise: alerts, panels and runbooks that exist."""

import re

import pytest
from click.testing import CliRunner

from jaxmon.cli.gameday.command import places_of
from jaxmon.cli.gameday.demo import PLACES
from jaxmon.cli.main import main
from jaxmon_alerts import rules as alerts
from jaxmon_alerts.gameday.scenarios import BY_NAME, LOAD, RESTART, SCENARIOS, Scenario
from jaxmon_dashboards import boards as dashboards
from tests.helpers.processes import ROOT


PROGRAMS = ROOT / "alerts" / "jaxmon_alerts" / "gameday" / "programs"


ALERTS = {one.name for one in alerts.all_alerts()}
GUIDE = {f"F{number}" for number in range(1, 9)}


def test_every_failure_of_the_guide_is_drilled() -> None:
    """What the operator's guide lists as breaking is broken, each at least once."""
    assert {one.guide for one in SCENARIOS} - {""} == GUIDE


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_every_alert_exists(scenario: Scenario) -> None:
    """The alert of a scenario and those that follow are in the rules."""
    assert {scenario.alert, *scenario.follows, *LOAD, *RESTART} <= ALERTS
    if scenario.severity:
        severities = {
            one.severity for one in alerts.all_alerts() if one.name == scenario.alert
        }
        assert scenario.severity in severities


def test_every_alert_can_be_followed_up() -> None:
    """There is a panel that shows it, and a runbook."""
    boards = {
        board.uid: {panel.title for panel in board.panels if panel.alerts}
        for board in dashboards.all_dashboards()
    }
    places = places_of(one.alert for one in SCENARIOS)

    for scenario, place in zip(SCENARIOS, places, strict=True):
        assert place.panel in boards[place.board]
        assert place.runbook == f"jaxmon runbook show {scenario.alert}"
        assert (ROOT / "runbooks" / f"{scenario.alert}.md").is_file()


def test_every_program_knows_its_fault() -> None:
    """What no signal, restart or environment alone brings about, the program does."""
    outside = {"thunder", "vanish", "freeze", "die"}
    for scenario in SCENARIOS:
        if scenario.program and scenario.name not in outside:
            source = PROGRAMS / f"{scenario.program}.py"
            assert f'suffers("{scenario.name}")' in source.read_text(), scenario.name


def test_no_scenario_contradicts_itself() -> None:
    """Each can be drilled, by its program or by the driver, and be described."""
    for one in SCENARIOS:
        assert re.fullmatch("[a-z]+(-[a-z]+)*", one.name), one.name
        assert not one.summary.endswith("."), one.name
        assert bool(one.program) != one.needs_driver, one.name
        assert bool(one.orders or one.xids) == one.needs_driver, one.name
        assert one.alert not in one.follows, one.name


def test_the_demo_offers_what_one_process_can_have() -> None:
    """What needs a restart, a second process or a driver is left to the game day."""
    assert {"errors", "oom", "recompile", "stall"} <= PLACES.keys()
    assert PLACES.keys().isdisjoint({"cold", "diverge", "gpu-lost", "vanish"})


def test_the_demo_says_what_a_fault_needs() -> None:
    """Every fault of the game day is accepted, or its needs and its drill are named."""
    for name in BY_NAME.keys() - PLACES.keys():
        result = CliRunner().invoke(main, ["demo", "--break", name])
        assert result.exit_code == 2, name
        assert f"{name} needs {BY_NAME[name].needs}, which the demo" in result.output
        assert f"run: jaxmon gameday {name}" in result.output
    for name in PLACES:
        arguments = ["demo", "--break", name, "--duration", "1"]
        result = CliRunner().invoke(main, arguments)
        assert "ends before the fault starts" in result.output, name


def test_the_list_describes_every_scenario() -> None:
    """One reads what breaks, and which alert reports it."""
    result = CliRunner().invoke(main, ["gameday", "--list"])

    assert result.exit_code == 0
    text = re.sub(r"\s+", " ", result.output)
    for one in SCENARIOS:
        assert f" {one.name} {one.guide}".rstrip() in text
        assert f"{one.summary}: {one.alert}" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Give --all or some of cold, "),
        (["fire"], "'fire' is no scenario; give some of cold, "),
        (["--all", "oom"], "give names or --all, not both"),
        (["gpu-lost"], "--driver"),
        (["oom", "--against", "http://127.0.0.1:9"], "belong together"),
        (["oom", "--targets", "targets.json"], "belong together"),
    ],
)
def test_what_cannot_be_drilled_is_rejected(arguments, expected) -> None:
    """Nothing is started, and the message says what to give instead."""
    result = CliRunner().invoke(main, ["gameday", *arguments])

    assert result.exit_code == 2
    assert expected in result.output


def test_a_directory_without_a_driver_is_rejected(tmp_path) -> None:
    """The message says what must be in it, and where to get that."""
    result = CliRunner().invoke(main, ["gameday", "gpu-lost", f"--driver={tmp_path}"])

    assert result.exit_code == 1
    assert "holds no libnvidia-ml.so.1" in result.output
    assert "tests/fakes/nvml" in result.output
