"""What a drill makes of alerts, with a real sidecar and a clock by hand."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jaxmon.cli.gameday.command import progress
from jaxmon_alerts.gameday.children import Children
from jaxmon_alerts.gameday.drill import Drill, DrillPhase, Firing, Patience
from jaxmon_alerts.gameday.scenarios import BY_NAME
from jaxmon_alerts.gameday.workload import Workload
from tests.helpers.processes import until


SCENARIO = BY_NAME["gpu-lost"]
JOB = "gameday-gpu-lost"
EXPECTED = Firing(SCENARIO.alert, "page", JOB)
OTHER = Firing("JaxmonOutOfMemory", "ticket", JOB)
SLOW = Firing("JaxmonSlowdown", "ticket", JOB)


class Hand:
    """A drill whose clock and alerts are those that a test says."""

    def __init__(self, drill: Drill) -> None:
        self.drill = drill
        self.now = 0.0

    def after(self, seconds: float, *firing: Firing) -> DrillPhase:
        """Advance the clock while these alerts fire; return the phase."""
        self.now += seconds
        self.drill.advance(self.now, firing)
        return self.drill.phase

    def until_broken(self) -> None:
        """Go on to the fault."""
        self.until_settling()
        assert self.after(SCENARIO.usual_for + 1) is DrillPhase.BROKEN

    def until_settling(self) -> None:
        """Start, and wait until the sidecar is ready."""
        self.drill.start(self.now)
        until(lambda: self.after(0) is DrillPhase.SETTLING, "the sidecar")

    def finish(self) -> None:
        assert self.drill.phase is DrillPhase.STOPPING
        until(lambda: self.after(1) is DrillPhase.DONE, "the end")


@pytest.fixture
def children(run_dir: Path) -> Iterator[Children]:
    """Return what ends all that is started."""
    with Children(os.environ, run_dir) as running:
        yield running


@pytest.fixture
def hand(children: Children, run_dir: Path, tmp_path: Path) -> Hand:
    """Return a drill of a sidecar alone, whose driver is missing."""
    workload = Workload(
        SCENARIO, children, run_dir / "gpu-lost", scale=60, library=tmp_path
    )
    return Hand(Drill(SCENARIO, workload, Patience(60)))


def test_a_fault_that_is_detected_and_resolved_passes(hand: Hand) -> None:
    """The times are those from the fault to the alert, and from its end to that."""
    hand.until_broken()
    assert hand.after(2) is DrillPhase.BROKEN
    assert hand.after(3, EXPECTED) is DrillPhase.MENDED
    assert hand.after(4, EXPECTED, SLOW) is DrillPhase.MENDED
    assert "JaxmonAcceleratorLost after 5 s, mended" in progress(hand.drill)
    hand.after(5)

    result = hand.drill.result
    assert (result.outcome, result.severity) == ("passed", "page")
    assert (result.detected, result.resolved) == (5, 9)
    # That the machine is slow is reported, and is no failure.
    assert (result.others, result.unexpected) == (("JaxmonSlowdown",), ())
    assert progress(hand.drill) == "JaxmonAcceleratorLost after 5 s, resolved after 9 s"
    assert hand.drill.address is None
    hand.finish()


def test_an_alert_that_does_not_arrive_is_missed(hand: Hand) -> None:
    """The wait has an end."""
    hand.until_broken()
    assert hand.drill.address is not None
    assert hand.after(180) is DrillPhase.BROKEN
    hand.after(1)

    assert hand.drill.result.outcome == "missed"
    assert hand.drill.result.reason == "JaxmonAcceleratorLost did not fire within 181 s"
    assert "MISSED: " in progress(hand.drill)
    hand.finish()


def test_an_alert_that_stays_is_unresolved(hand: Hand) -> None:
    """What does not end when the fault ends wakes people in vain."""
    hand.until_broken()
    hand.after(5, EXPECTED)
    hand.after(181, EXPECTED)

    assert hand.drill.result.outcome == "unresolved"
    assert "not resolved within 181 s" in hand.drill.result.reason
    hand.finish()


def test_an_alert_that_does_not_follow_is_unexpected(hand: Hand) -> None:
    """It fails the drill even if all else was right, and is named."""
    hand.until_broken()
    hand.after(5, EXPECTED, OTHER)
    hand.after(5)

    assert hand.drill.result.outcome == "unexpected"
    assert hand.drill.result.reason == "fired as well: JaxmonOutOfMemory"
    hand.finish()


def test_a_ticket_of_the_same_name_may_stay(hand: Hand) -> None:
    """Long windows remember what the page was about."""
    hand.until_broken()
    hand.after(5, EXPECTED)
    hand.after(5, EXPECTED._replace(severity="ticket"))

    assert hand.drill.result.outcome == "passed"
    hand.finish()


def test_what_the_start_brings_is_waited_for(hand: Hand) -> None:
    """The fault begins when nothing fires; what fired before is no effect of it."""
    hand.until_settling()
    assert hand.after(60, OTHER) is DrillPhase.SETTLING
    assert hand.after(1) is DrillPhase.BROKEN
    hand.after(5, EXPECTED)
    hand.after(5)

    assert hand.drill.result.outcome == "passed"
    assert hand.drill.result.others == ()
    hand.finish()


def test_a_program_that_is_never_healthy_fails(hand: Hand) -> None:
    """A fault in a broken program shows nothing."""
    hand.until_settling()
    hand.after(200, OTHER)

    assert hand.drill.result.outcome == "failed"
    assert "not healthy before the fault: JaxmonOutOfMemory" in progress(hand.drill)
    hand.finish()


def test_a_program_that_exits_fails(hand, children, monkeypatch):
    """The reason says which program, and how it ended."""
    started: list[Callable[[], None]] = []
    start = children.start

    def remember(*arguments, **options):
        child = start(*arguments, **options)
        started.append(child.process.kill)
        return child

    monkeypatch.setattr(children, "start", remember)
    hand.until_broken()
    [kill] = started
    kill()
    deadline = time.monotonic() + 90
    while hand.after(0) is DrillPhase.BROKEN and time.monotonic() < deadline:
        time.sleep(0.05)

    assert hand.drill.result.outcome == "failed"
    assert "gpu-lost-sidecar exited with signal 9" in hand.drill.result.reason
    hand.finish()


def test_slower_rules_get_more_time() -> None:
    """At production speed, three minutes are three hours; a start takes as long."""
    assert Patience(60).scaled(180) == 180
    assert Patience(1).scaled(180) == 10_800
