"""Something that can be wrong: how it is judged, and where it is explained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

from jaxmon.catalog import Metric
from jaxmon.facts.events import EventFact
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import Reason
from jaxmon.facts.walltime import Period
from jaxmon.host.formats.layout import ago, duration, share
from jaxmon.symptoms.alert import Alert, Severity, SiteLimits


MOST_OF_A_MESSAGE = 200


class Finding(NamedTuple):
    """
    One thing to change.

    Attributes:
        topic: the name of a symptom.
        subject: the function, device, line, loop or route; may be empty.
        verdict: what is wrong, with numbers.
        evidence: lines that show it.
        action: what to do about it.
        where: ``file:line`` of the user's code, if it is one line.
        seconds: how much of the observed time it would win back; 0 if unknown.
        severity: in the answer, if it is another one than that of the symptom.
    """

    topic: str
    subject: str
    verdict: str
    evidence: tuple[str, ...]
    action: str
    where: str = ""
    seconds: float = 0.0
    severity: Severity | None = None


def quoted(error: EventFact, now: float) -> str:
    """Return when and where *error* occurred, and the first sentence of its message."""
    message = error.message.partition(". ")[0][:MOST_OF_A_MESSAGE]
    where = error.details.get("where")
    place = f", at {where}" if where else ""
    return f"{ago(now - error.time)}{place}: {message}"


def ended(text: str) -> str:
    """Return *text* as a sentence."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def part(seconds: float, period: Period) -> str:
    """Return ``12 s, 10 % of 2 min``."""
    whole = period.seconds
    return f"{duration(seconds)}, {share(seconds, whole)} of {duration(whole)}"


class Urgency(IntEnum):
    """What a symptom costs, the most urgent first."""

    FAILURE = 0
    """Something failed, is wrong, or is about to fail."""
    TIME = 1
    """Something takes time; `Finding.seconds` says how much could be won back."""
    HINT = 2
    """Something could be better, by an unknown amount."""
    NOTE = 3
    """Nothing is wrong; it says what takes the time."""


FAILURE, TIME, HINT, NOTE = Urgency

# Why something has no alert, or no screen says it.
NO_SCREEN = "no screen watches for it"
NOTHING = "nothing is wrong"
RULES_ONLY = "only Prometheus notices what is missing"
LINES = "only the process knows its lines"
BUDGET = "an objective is about weeks"
TOO_LITTLE = "costs too little to wake or interrupt anyone"

Mode: TypeAlias = Literal["F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", ""]

MODES: dict[Mode, str] = {
    "F1": "Compiles that are waited for",
    "F2": "Device memory runs out",
    "F3": "Recompiles",
    "F4": "Results that are wrong or differ",
    "F5": "Memory leaks",
    "F6": "Compiles that a cache would save",
    "F7": "Hardware, versions, regressions",
    "F8": "Hangs, and ranks that differ",
    "": "Time, and jaxmon itself",
}

ProcessJudge: TypeAlias = Callable[[Snapshot], Iterable[Finding]]
NeighbourJudge: TypeAlias = Callable[[Snapshot, Sequence[Snapshot]], Iterable[Finding]]
HostJudge: TypeAlias = Callable[[HostFacts], Iterable[Reason]]
AlertBuilder: TypeAlias = Callable[[SiteLimits], "Alert | Iterable[Alert]"]
Explanation: TypeAlias = Callable[[HostFacts, Reason], Iterable[str]]


class Symptom(NamedTuple):
    """
    Something that can be wrong.

    Attributes:
        name: as programs read it: the topic of findings, the kind of reasons.
        mode: the kind of failure that it belongs to.
        sentence: what is wrong, in a sentence, which its alert has as well.
        urgency: what it costs, as findings are sorted.
        finding: judges a process by what its agent reports, since it started.
        metric: the metric that shows it over time, if there is one.
        panel: the dashboard and the panel, ``Debug: Recompiles over time``.
        rule: the name of the alert, and what builds it: `None` if an objective does.
        together: judges it beside other processes of its host.
        reason: judges a host by the numbers of the last minute.
        severity: that of a finding in the answer; `None` if that is for `reason`.
        wait: the limit by which its alert waits, if a reason comes earlier.
        because: says why it is so, for the answer; by default, findings of it do.
        missing: why there is no alert, or why no screen says it.
        other_runbook: the runbook, if it is another one than that of the alert.
        observed: the limits by which agents observe it.
        ranks: those by which `jaxmon.job` judges it, for ``jaxmon job why``.
    """

    name: str
    mode: Mode
    sentence: str
    urgency: Urgency = Urgency.NOTE
    finding: ProcessJudge | None = None
    metric: Metric | None = None
    panel: str = ""
    rule: tuple[str, AlertBuilder | None] = ("", None)
    together: NeighbourJudge | None = None
    reason: HostJudge | None = None
    severity: Severity | None = None
    wait: str = ""
    because: Explanation | None = None
    missing: str = ""
    other_runbook: str = ""
    observed: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()

    @property
    def alert(self) -> str:
        """The name of the alert, empty if there is none."""
        return self.rule[0]

    @property
    def runbook(self) -> str:
        """The runbook to follow, empty if there is none."""
        return self.other_runbook or self.alert

    def alerts(self, limits: SiteLimits) -> list[Alert]:
        """Return its alerts, one or several; other rows may have the same."""
        name, build = self.rule
        made = build(limits) if build else ()
        found = [made] if isinstance(made, Alert) else made
        return [
            replace(alert, name=name, description=alert.description or self.sentence)
            for alert in found
        ]
