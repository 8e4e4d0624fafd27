"""Something that can be wrong, and where it is said, shown and explained."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

from jaxmon.catalog import Metric


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


class Symptom(NamedTuple):
    """
    Something that can be wrong.

    Attributes:
        name: as programs read it: the topic of findings, if screens say it.
        mode: the kind of failure that it belongs to.
        sentence: what is wrong, in a sentence.
        urgency: what it costs, where screens say it.
        metric: the metric that shows it over time, if there is one.
        panel: the dashboard and the panel, ``Debug: Recompiles over time``.
        alert: the alert that says it, if there is one.
        kinds: reasons of the answer of screens that say it.
        missing: why there is no alert, or why no screen says it.
        other_runbook: the runbook, if it is another one than that of the alert.
    """

    name: str
    mode: Mode
    sentence: str
    urgency: Urgency = Urgency.NOTE
    metric: Metric | None = None
    panel: str = ""
    alert: str = ""
    kinds: tuple[str, ...] = ()
    missing: str = ""
    other_runbook: str = ""

    @property
    def runbook(self) -> str:
        """The runbook to follow, empty if there is none."""
        return self.other_runbook or self.alert
