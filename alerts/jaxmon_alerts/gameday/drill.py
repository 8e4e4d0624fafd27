"""One scenario, from healthy to broken and back."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from jaxmon.errors import CommandError
from jaxmon_alerts.gameday import stack
from jaxmon_alerts.gameday.children import HOST
from jaxmon_alerts.gameday.scenarios import Scenario
from jaxmon_alerts.gameday.stack import MonitoringStack
from jaxmon_alerts.gameday.workload import Workload


_MOST_BYTES = 4 << 20
_SECONDS = 10.0

Labels = Mapping[str, str]


class Firing(NamedTuple):
    """An alert that fires, in a service."""

    name: str
    severity: str
    job: str


class Receiver:
    """A webhook that knows which alerts fire, on threads of its own."""

    def __init__(self) -> None:
        self._firing: dict[str, Labels] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        # All of them end with the block.
        self._server.daemon_threads = False
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="jaxmon-webhook"
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Base URL; the path that follows does not matter."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def firing(self) -> Mapping[str, Labels]:
        """Return the labels of the alerts that fire, by Alertmanager's fingerprint."""
        with self._lock:
            return dict(self._firing)

    def take(self, notification: Any) -> None:
        """Record a decoded notification; raises what indexing raises if it is none."""
        with self._lock:
            for alert in notification["alerts"]:
                if alert["status"] == "firing":
                    self._firing[alert["fingerprint"]] = dict(alert["labels"].items())
                else:
                    self._firing.pop(alert["fingerprint"], None)


class OwnSite:
    """A stack that was started for this; an alert fires once that is notified."""

    scale: float = stack.SCALE

    def __init__(self, running: MonitoringStack, receiver: Receiver) -> None:
        self._stack = running
        self._receiver = receiver
        self._muted: set[str] = set()

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Scrape *targets*, ``host:port`` by job, and no others."""
        stack.write_targets(self._stack.targets, targets)

    def firing(self) -> list[Firing]:
        """Return the alerts that were notified and are not resolved."""
        url = self._stack.alertmanager
        alerts = stack.fetch("Alertmanager", f"{url}/api/v2/alerts")
        try:
            # Of those that something inhibits, "suppressed".
            states = {
                str(alert["fingerprint"]): alert["status"]["state"] for alert in alerts
            }
        except (LookupError, TypeError) as error:
            msg = f"{url} returned an invalid alert: {error!r}"
            raise CommandError(msg) from error
        self._muted.update(
            fingerprint
            for fingerprint, state in states.items()
            if state == "suppressed"
        )
        return _relevant(
            labels
            for fingerprint, labels in self._receiver.firing().items()
            # Of an alert that ends while it is inhibited, the end is not notified.
            if fingerprint in states or fingerprint not in self._muted
        )


class TheirSite:
    """A stack in use, whose Prometheus scrapes what the file *targets* says."""

    def __init__(self, prometheus: str, targets: Path, scale: float) -> None:
        self.scale = scale
        self._prometheus = prometheus
        self._targets = targets

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Write *targets* to the file."""
        stack.write_targets(self._targets, targets)

    def firing(self) -> list[Firing]:
        """Return the alerts that fire, whether notified or inhibited."""
        found = stack.alerts_of(self._prometheus)
        try:
            return _relevant(
                alert["labels"] for alert in found if alert["state"] == "firing"
            )
        except (AttributeError, LookupError, TypeError) as error:
            msg = f"{self._prometheus} returned an invalid alert: {error!r}"
            raise CommandError(msg) from error


AlertSite: TypeAlias = OwnSite | TheirSite


def _relevant(found: Iterable[Labels]) -> list[Firing]:
    alerts = [
        Firing(labels["alertname"], labels.get("severity", ""), labels.get("job", ""))
        for labels in found
    ]
    return [alert for alert in alerts if alert.severity != "info"]


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _SECONDS

        def do_POST(self) -> None:
            """Take a notification."""
            try:
                length = int(self.headers["Content-Length"])
                receiver.take(json.loads(self.rfile.read(min(length, _MOST_BYTES))))
            except (AttributeError, LookupError, TypeError, ValueError):
                self.send_error(HTTPStatus.BAD_REQUEST)
            else:
                self.send_response(HTTPStatus.NO_CONTENT)
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler


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
    """Seconds until programs are up, and of `REFERENCE` for what alerts take."""

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
    """What came of a drill: when the alert came and ended, and *others* meanwhile."""

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
