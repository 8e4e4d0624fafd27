"""Result of one check."""

from __future__ import annotations

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


def worst(findings: list[Check]) -> Status:
    """Return the most severe status among *findings*."""
    return max((f.status for f in findings), key=STATUSES.index, default="ok")
