"""What is kept of a run, as typed data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxmon.facts.process import Snapshot


@dataclass(frozen=True, slots=True)
class Reason:
    """Why users were not all right, and the likely cause, each in a sentence."""

    state: str = ""
    kind: str = ""
    subject: str = ""
    text: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether users were all right since the start, in one sentence, and why not."""

    state: str = "unknown"
    text: str = ""
    reasons: tuple[Reason, ...] = ()
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, as in `jaxmon.symptoms.finding`."""

    topic: str = ""
    subject: str = ""
    verdict: str = ""
    evidence: tuple[str, ...] = ()
    action: str = ""
    where: str = ""
    seconds: float = 0.0
    urgency: str = ""
    panel: str = ""
    runbook: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """
    The summary of a run.

    Attributes:
        schema: of the file; 0 if it has none.
        written: Unix time.
        host: name of the host.
        worker: the slot of the process.
        state: ``running``, ``finished``, or ``crashed`` after an uncaught exception.
        quiet: what is said if nothing is to fix.
        notes: why findings may be missing or wrong, and what is omitted.
        versions: what its speed depends on besides the program, by name.
        packages: versions of what is installed.
        snapshot: all other facts.
    """

    schema: int = 0
    written: float = 0.0
    host: str = ""
    worker: str = ""
    state: str = "running"
    answer: Answer = field(default_factory=Answer)
    findings: tuple[Found, ...] = ()
    quiet: str = ""
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    snapshot: Snapshot = field(default_factory=Snapshot)
