"""Helpers of a program that have failed: what it waits for may be one of them."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from jaxmon.report.layout import ago


ADVICE = (
    "What it waits for may be gone; the log of the program, or of the kernel, shows "
    "why. Let helpers pass their exceptions on to who waits for them, through the "
    "queue or as futures."
)


@dataclass(frozen=True, slots=True)
class Gone:
    """
    A helper of the program that has failed.

    Attributes:
        kind: ``thread``, which an exception has ended, or ``process``, a child.
        name: of it; empty if unknown.
        type: class of the exception.
        message: first line of its message.
        where: ``file:line`` of the program that it came from.
        function: in which function that is.
        age_seconds: how long ago.
        pid: of the process.
        code: with which it exited; negative for a signal.
    """

    kind: str = ""
    name: str = ""
    type: str = ""
    message: str = ""
    where: str = ""
    function: str = ""
    age_seconds: float | None = None
    pid: int = 0
    code: int = 0

    def __str__(self) -> str:
        """Return what it was, and how it ended."""
        name = f" {self.name}" if self.name else ""
        if self.kind == "process":
            return f"process{name} (pid {self.pid}) {_exited(self.code)}"
        when = "" if self.age_seconds is None else f" {ago(max(self.age_seconds, 0.0))}"
        said = f"{self.type}: {self.message}" if self.message else self.type
        place = f", {self.where}" if self.where else ""
        place += f" in {self.function}" if self.function else ""
        return f"thread{name} ended{when} by {said}{place}"


def _exited(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
