"""One scenario, from healthy to broken and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from jaxmon.errors import CommandError
from jaxmon_alerts.gameday.scenarios import Scenario
from jaxmon_alerts.gameday.site import Firing
from jaxmon_alerts.gameday.workload import Workload


REFERENCE = 60.0
"""Speed-up of the rules for which durations are given."""

# Prometheus reads its targets once per second.
_LEAVE_SECONDS = 2.0

Outcome = Literal["passed", "missed", "unresolved", "unexpected", "failed"]


class DrillPhase(Enum):
    """Where a drill is, with the word that says so."""

    WAITING = "waits for its turn"
    STARTING = "starting"
    SETTLING = "running as usual"
    BROKEN = "broken"
    MENDED = "mended"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Patience:
    """
    How many seconds a drill waits, at most: until programs are up, and, for rules of
    the speed `REFERENCE`, for the start to be over, the alert, and its end.
    """

    scale: float
    start: float = 300.0
    settle: float = 120.0
    detect: float = 180.0
    resolve: float = 180.0

    def scaled(self, seconds: float) -> float:
        """Return *seconds* for these rules, which were meant for `REFERENCE`."""
        return seconds * REFERENCE / self.scale


@dataclass(slots=True)
class DrillResult:
    """
    What came of a drill: seconds from the fault to the alert, and from the end of the
    fault to that of the alert; *others* are further alerts, in this order.
    """

    outcome: Outcome | None = None
    severity: str = ""
    detected: float | None = None
    resolved: float | None = None
    others: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    reason: str = ""


class Drill:
    """Takes a scenario through its phases."""

    def __init__(
        self, scenario: Scenario, workload: Workload, patience: Patience
    ) -> None:
        self.scenario = scenario
        self.phase = DrillPhase.WAITING
        self.result = DrillResult()
        self._workload = workload
        self._patience = patience
        self._since = 0.0
        self._leaves = False

    @property
    def job(self) -> str:
        """The job under which its programs are scraped."""
        return f"gameday-{self.scenario.name}"

    @property
    def address(self) -> str | None:
        """What to scrape: ``host:port``, or nothing yet, or nothing more."""
        observed = self.phase not in (
            DrillPhase.WAITING,
            DrillPhase.STOPPING,
            DrillPhase.DONE,
        )
        return self._workload.address if observed else None

    def start(self, now: float) -> None:
        """Start the programs."""
        self._enter(DrillPhase.STARTING, now)
        self._workload.start()

    def advance(self, now: float, firing: Collection[Firing]) -> None:
        """Do what is due *now*; *firing* are the alerts of its job. Does not block."""
        try:
            if self.phase is not DrillPhase.STOPPING or self._leaves:
                self._workload.keep()
            self._advance(now, frozenset(firing))
        except CommandError as error:
            self._end("failed", " ".join((str(error), *error.details[-1:])), now)

    def _advance(self, now: float, firing: frozenset[Firing]) -> None:
        spent = now - self._since
        match self.phase:
            case DrillPhase.STARTING:
                self._note(firing)
                if self._workload.is_ready():
                    self._enter(DrillPhase.SETTLING, now)
                elif spent > self._patience.start:
                    self._end("failed", "its programs were not ready in time", now)
            case DrillPhase.SETTLING:
                self._settle(now, spent, firing)
            case DrillPhase.BROKEN:
                self._note(firing)
                self._detect(now, spent, firing)
            case DrillPhase.MENDED:
                self._note(firing)
                self._resolve(now, spent, firing)
            case DrillPhase.STOPPING if not self._leaves:
                # What is scraped until it exits looks like a target that is down.
                if spent > _LEAVE_SECONDS:
                    self._leaves = True
                    self._workload.stop()
            case DrillPhase.STOPPING if self._workload.is_gone:
                self._enter(DrillPhase.DONE, now)
            case _:
                pass

    def _settle(self, now: float, spent: float, firing: frozenset[Firing]) -> None:
        """Wait until it has run for long enough, and no alert of the start is left."""
        usual = self._patience.scaled(self.scenario.usual_for)
        if firing:
            self._note(firing)
            if spent > usual + self._patience.scaled(self._patience.settle):
                names = ", ".join(sorted({alert.name for alert in firing}))
                self._end("failed", f"not healthy before the fault: {names}", now)
        elif spent > usual:
            # What the start of the programs brought is no effect of the fault.
            self.result.others = ()
            self._workload.begin()
            self._enter(DrillPhase.BROKEN, now)

    def _detect(self, now: float, spent: float, firing: frozenset[Firing]) -> None:
        scenario, result = self.scenario, self.result
        wanted = scenario.severity
        for alert in sorted(firing):
            if alert.name == scenario.alert and alert.severity == (
                wanted or alert.severity
            ):
                result.detected, result.severity = spent, alert.severity
                self._workload.mend()
                self._enter(DrillPhase.MENDED, now)
                return
        if spent > self._patience.scaled(self._patience.detect):
            reason = f"{scenario.alert} did not fire within {spent:.0f} s"
            self._end("missed", reason, now)

    def _resolve(self, now: float, spent: float, firing: frozenset[Firing]) -> None:
        alert, result = self.scenario.alert, self.result
        # A page may leave a ticket of the same name: long windows remember.
        if Firing(alert, result.severity, self.job) not in firing:
            result.resolved = spent
            if result.unexpected:
                names = ", ".join(result.unexpected)
                self._end("unexpected", f"fired as well: {names}", now)
            else:
                self._end("passed", "", now)
        elif spent > self._patience.scaled(self._patience.resolve):
            reason = f"{alert} was not resolved within {spent:.0f} s after the end"
            self._end("unresolved", reason, now)

    def _note(self, firing: Iterable[Firing]) -> None:
        seen = dict.fromkeys(
            (*self.result.others, *sorted({alert.name for alert in firing}))
        )
        seen.pop(self.scenario.alert, None)
        self.result.others = tuple(seen)
        self.result.unexpected = tuple(
            alert for alert in seen if not self.scenario.expects(alert)
        )

    def _end(self, outcome: Outcome, reason: str, now: float) -> None:
        self.result.outcome, self.result.reason = outcome, reason
        self._enter(DrillPhase.STOPPING, now)

    def _enter(self, phase: DrillPhase, now: float) -> None:
        self.phase, self._since = phase, now
