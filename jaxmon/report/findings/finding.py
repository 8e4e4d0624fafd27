"""What a finding says, and where its topic is measured, displayed and explained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from jaxmon.facts.events import Event
from jaxmon.formats.layout import ago
from jaxmon.symptoms import SYMPTOMS, Symptom, Urgency


MOST_OF_A_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One thing to change.

    Attributes:
        topic: a name in `jaxmon.symptoms`.
        subject: the function, device, line, loop or route; may be empty.
        verdict: what is wrong, with numbers.
        evidence: lines that show it.
        action: what to do about it.
        where: ``file:line`` of the user's code, if it is one line.
        seconds: how much of the observed time it would win back; 0 if unknown.
    """

    topic: str
    subject: str
    verdict: str
    evidence: tuple[str, ...]
    action: str
    where: str = ""
    seconds: float = 0.0

    @property
    def about(self) -> Symptom:
        """What it has in common with others of its topic."""
        return SYMPTOMS[self.topic]

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON types."""
        topic = self.about
        return {
            **asdict(self),
            "evidence": list(self.evidence),
            "urgency": topic.urgency.name.lower(),
            "metric": "" if topic.metric is None else topic.metric.name,
            "panel": topic.panel,
            "runbook": topic.runbook,
        }


NOTHING = "Nothing to fix stands out."


def verdict(findings: Iterable[Finding]) -> str:
    """Return `NOTHING` if nothing is to fix among *findings*, else ``""``."""
    quiet = all(one.about.urgency is Urgency.NOTE for one in findings)
    return NOTHING if quiet else ""


def ranked(findings: list[Finding]) -> list[Finding]:
    """Return *findings* by urgency, then by the time they would win back."""
    return sorted(findings, key=lambda one: (one.about.urgency, -one.seconds))


def quoted(error: Event, now: float) -> str:
    """Return when and where *error* occurred, and the first sentence of its message."""
    said = error.message.partition(". ")[0][:MOST_OF_A_MESSAGE]
    where = error.details.get("where")
    place = f", at {where}" if where else ""
    return f"{ago(now - error.time)}{place}: {said}"
