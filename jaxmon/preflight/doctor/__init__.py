"""Checks an environment. What needs JAX runs in another process, on the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args


Status = Literal["ok", "note", "warning", "failure"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Check:
    """
    What was found in an *area*, and advice, if any: a ``note`` is worth knowing, a
    ``warning`` will cost something, a ``failure`` breaks metrics or the program.
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
