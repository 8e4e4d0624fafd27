"""What is wrong with a process, with numbers, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

from jaxmon.facts.events import Event
from jaxmon.host.formats.layout import ago
from jaxmon.symptoms.alert import Severity


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


def quoted(error: Event, now: float) -> str:
    """Return when and where *error* occurred, and the first sentence of its message."""
    said = error.message.partition(". ")[0][:MOST_OF_A_MESSAGE]
    where = error.details.get("where")
    place = f", at {where}" if where else ""
    return f"{ago(now - error.time)}{place}: {said}"
