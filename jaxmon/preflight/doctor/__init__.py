"""
Checks an environment before a program runs in it.

Nothing here imports JAX or starts a device. Checks that need JAX run in a separate
process, on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args


Status = Literal["ok", "note", "warning", "failure"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Check:
    """
    Args:
        area: what was checked: ``versions``, ``hooks``, ``cache``...
        status: ``note`` is worth knowing, ``warning`` will cost something, ``failure``
            means missing metrics or a program that will not run.
        text: what was found.
        advice: what to do; empty if nothing.
    """

    area: str
    status: Status
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Area:
    """What is checked; makes the results."""

    name: str

    def ok(self, text: str) -> Check:
        """Return that all is well."""
        return Check(self.name, "ok", text)

    def note(self, text: str, advice: str = "") -> Check:
        """Return what is worth knowing."""
        return Check(self.name, "note", text, advice)

    def warning(self, text: str, advice: str = "") -> Check:
        """Return what will cost something."""
        return Check(self.name, "warning", text, advice)

    def failure(self, text: str, advice: str = "") -> Check:
        """Return what will not work."""
        return Check(self.name, "failure", text, advice)


def worst(findings: Iterable[Check]) -> Status:
    """Return the most severe status among *findings*."""
    return max((found.status for found in findings), key=STATUSES.index, default="ok")
