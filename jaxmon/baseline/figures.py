"""Per-function measures and their tolerances."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from jaxmon.errors import BaselineError


Unit = Literal["", "seconds", "bytes"]

_TOLERANCE = re.compile(r"(?:(\d+(?:\.\d+)?)%)?(?:\+?(\d+(?:\.\d+)?))?", re.ASCII)
_MOST = 1e15


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A measure may grow by *share* of itself, plus *amount*."""

    share: float = 0
    amount: float = 0

    def __str__(self) -> str:
        parts = [f"{100 * self.share:g}%"] if self.share else []
        if self.amount or not parts:
            digits = f"{self.amount:.9f}".rstrip("0").rstrip(".")
            parts += [digits if self.amount < 1 else f"{self.amount:g}"]
        return "+".join(parts)

    def allows(self, before: float, after: float) -> bool:
        """Return whether a measure may grow from *before* to *after*."""
        # What was computed in another order may differ in the last digit.
        return after <= before * (1 + self.share + 1e-12) + self.amount


@dataclass(frozen=True, slots=True)
class Figure:
    """
    Args:
        name: in files and on the command line.
        tolerance: by default.
        reason: for that tolerance.
        unit: what it counts, if not things.
    """

    name: str
    tolerance: Tolerance
    reason: str
    unit: Unit = ""


RUN_SECONDS = "run_seconds"
"""The one measure that several runs are needed for; see `jaxmon.baseline.slower`."""

_COUNTED = "counted exactly"
_SHAPES = "follows from the shapes of arguments and results"
_XLA = "the same for each run of one jaxlib; leaves room for padding and constants"

FIGURES = {
    figure.name: figure
    for figure in (
        Figure("compiles", Tolerance(), _COUNTED),
        Figure("recompiles", Tolerance(), _COUNTED),
        Figure("programs", Tolerance(), _COUNTED),
        Figure(
            "compile_seconds",
            Tolerance(0.5, 0.5),
            "measured, possibly on a shared machine",
            "seconds",
        ),
        Figure("flops", Tolerance(0.01), _XLA),
        Figure("model_flops", Tolerance(), _SHAPES),
        Figure("accessed_bytes", Tolerance(0.01), _XLA, "bytes"),
        Figure("argument_bytes", Tolerance(), _SHAPES, "bytes"),
        Figure("output_bytes", Tolerance(), _SHAPES, "bytes"),
        Figure("temporary_bytes", Tolerance(0.01), _XLA, "bytes"),
        Figure("peak_bytes", Tolerance(0.01), _XLA, "bytes"),
        Figure("code_bytes", Tolerance(0.05), _XLA, "bytes"),
        Figure("fusions", Tolerance(), _COUNTED),
        Figure("instructions", Tolerance(0.05), _XLA),
        Figure(
            RUN_SECONDS,
            Tolerance(0.25, 2e-5),
            "measured in several runs; what differs less may be the machine",
            "seconds",
        ),
    )
}
"""Every measure by name, in display order."""


def tolerances(given: Iterable[str]) -> dict[str, Tolerance | None]:
    """
    Return the tolerance of each measure, `None` for one that is not compared.

    Args:
        given: ``"flops=5%"``, ``"fusions=2"``, ``"compile_seconds=100%+1"`` or
            ``"code_bytes=off"``; the rest keeps its default.

    Raises:
        BaselineError: one of them is invalid.
    """
    found: dict[str, Tolerance | None] = {
        name: figure.tolerance for name, figure in FIGURES.items()
    }
    for text in given:
        name, _, value = text.partition("=")
        if name not in FIGURES:
            msg = (
                f"{text!r}: unknown measure {name!r}; measures are {', '.join(FIGURES)}"
            )
            raise BaselineError(msg)
        found[name] = None if value == "off" else _tolerance(text, value)
    return found


def _tolerance(text: str, value: str) -> Tolerance:
    match = _TOLERANCE.fullmatch(value)
    share, amount = match.groups() if match is not None and value else (None, None)
    if share is None and amount is None:
        msg = (
            f"{text!r}: {value!r} is not a valid tolerance; use a percentage (5%), "
            "an amount (2), both (50%+0.5), or off"
        )
        raise BaselineError(msg)
    found = Tolerance(float(share or 0) / 100, float(amount or 0))
    if max(found.share, found.amount) > _MOST:
        msg = f"{text!r} allows everything; use off"
        raise BaselineError(msg)
    return found
