"""Compares two records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jaxmon.baseline.figures import FIGURES, Tolerance
from jaxmon.baseline.record import Record
from jaxmon.errors import BaselineError


Verdict = Literal["worse", "within", "better"]


@dataclass(frozen=True, slots=True)
class Change:
    """
    A changed measure.

    Args:
        function: its function.
        figure: its name.
        before: in the baseline.
        after: now.
        allowed: how much it may grow; `None` if any change is allowed.
        verdict: ``within`` for growth that is allowed.
    """

    function: str
    figure: str
    before: float
    after: float
    allowed: Tolerance | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    Args:
        before: the baseline.
        after: the record to compare.
        changes: by function, then in the order of `FIGURES`.
        new: functions without a baseline.
        vanished: functions that were no longer compiled.
        one_sided: measures that JAX reported for one side only.
    """

    before: Record
    after: Record
    changes: tuple[Change, ...]
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    one_sided: tuple[str, ...]

    @property
    def worse(self) -> tuple[Change, ...]:
        """The changes that are regressions."""
        return tuple(change for change in self.changes if change.verdict == "worse")


def compare(
    before: Record, after: Record, allowed: Mapping[str, Tolerance | None]
) -> Comparison:
    """
    Compare *after* with *before*.

    Args:
        before: the baseline.
        after: the record to compare.
        allowed: tolerance by measure; see `jaxmon.baseline.figures.tolerances`.

    Raises:
        BaselineError: the records are of different hardware.
    """
    for name in ("platform", "device"):
        old, new = before.versions.get(name), after.versions.get(name)
        if old and new and old != new:
            msg = (
                f"the baseline is of {name} {old!r}, this run of {new!r}: they "
                "cannot be compared; keep a separate baseline for each"
            )
            raise BaselineError(msg)
    both = sorted(before.functions.keys() & after.functions.keys())
    pairs = [(name, before.functions[name], after.functions[name]) for name in both]
    return Comparison(
        before,
        after,
        changes=tuple(
            _change(function, name, old[name], new[name], allowed[name])
            for function, old, new in pairs
            for name in FIGURES
            if name in old and name in new and old[name] != new[name]
        ),
        new=tuple(sorted(after.functions.keys() - before.functions.keys())),
        vanished=tuple(sorted(before.functions.keys() - after.functions.keys())),
        one_sided=tuple(
            name
            for name in FIGURES
            if any((name in old) != (name in new) for _, old, new in pairs)
        ),
    )


def _change(
    function: str, figure: str, before: float, after: float, allowed: Tolerance | None
) -> Change:
    verdict: Verdict = "better" if after < before else "within"
    if allowed is not None and not allowed.allows(before, after):
        verdict = "worse"
    return Change(function, figure, before, after, allowed, verdict)
