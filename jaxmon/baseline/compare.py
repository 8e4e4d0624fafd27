"""Compares two records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jaxmon.baseline.figures import FIGURES, RUN_SECONDS, Tolerance
from jaxmon.baseline.record import MEASURED, Record
from jaxmon.baseline.slower import CPU, Slowdown, is_crowded, judge
from jaxmon.errors import BaselineError


Verdict = Literal["worse", "within", "better", "unclear"]

_PROCESSOR = "processor"
_NONE = "none"


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
        reason: why the verdict is ``unclear``.
    """

    function: str
    figure: str
    before: float
    after: float
    allowed: Tolerance | None
    verdict: Verdict
    reason: str = ""


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
        times: run times of the programs of both sides.
        untimed: why there are none; empty if there are.
        differences: what else differs between the two sides, as ``name: old → new``.
    """

    before: Record
    after: Record
    changes: tuple[Change, ...]
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    one_sided: tuple[str, ...]
    times: tuple[Slowdown, ...] = ()
    untimed: str = ""
    differences: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[Change | Slowdown, ...]:
        """The changes that are regressions."""
        return (
            *(one for one in self.changes if one.verdict == "worse"),
            *(one for one in self.times if one.verdict == "worse"),
        )

    @property
    def unclear(self) -> tuple[Change | Slowdown, ...]:
        """What may be a regression, or the machine."""
        return (
            *(one for one in self.changes if one.verdict == "unclear"),
            *(one for one in self.times if one.verdict == "unclear"),
        )

    @property
    def slow_compiles(self) -> bool:
        """Whether compiles took too long; in another run they may not."""
        return any(
            one.figure == MEASURED and one.verdict in ("worse", "unclear")
            for one in self.changes
        )

    @property
    def unclear_times(self) -> bool:
        """Whether run times are unclear; more runs may show what they are."""
        return any(one.verdict == "unclear" for one in self.times)


def compare(
    before: Record,
    after: Record,
    allowed: Mapping[str, Tolerance | None],
    *,
    runs: tuple[int, int] = (0, 0),
) -> Comparison:
    """
    Compare *after* with *before*.

    Args:
        before: the baseline.
        after: the record to compare.
        allowed: tolerance by measure; see `jaxmon.baseline.figures.tolerances`.
        runs: how many runs before and after there will be, if there are more to come.

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
    tolerance = allowed[RUN_SECONDS]
    untimed = _untimed(before, after)
    busy = bool(after.runs) and all(map(is_crowded, after.runs))
    times = (
        judge(
            before.runs,
            after.runs,
            tolerance,
            platform=after.versions.get("platform", ""),
            runs=runs,
        )
        if tolerance is not None and not untimed
        else ()
    )
    return Comparison(
        before,
        after,
        changes=tuple(
            _change(function, name, (old[name], new[name]), allowed[name], busy=busy)
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
        times=tuple(times),
        untimed=untimed if tolerance is not None else "",
        differences=differences(before.versions, after.versions),
    )


def _untimed(before: Record, after: Record) -> str:
    """Return why the run times of two records say nothing, if so."""
    if not before.runs and after.runs:
        return "the baseline has none; record it again"
    old, new = (one.versions.get(_PROCESSOR, "") for one in (before, after))
    if old != new and after.versions.get("platform") == CPU:
        return f"the baseline is of another processor ({old} → {new})"
    return ""


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return what differs between two sides, as ``name: old → new``."""
    return tuple(
        f"{name}: {before.get(name, _NONE)} → {after.get(name, _NONE)}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _change(
    function: str,
    figure: str,
    values: tuple[float, float],
    allowed: Tolerance | None,
    *,
    busy: bool,
) -> Change:
    before, after = values
    verdict: Verdict = "better" if after < before else "within"
    reason = ""
    if allowed is not None and not allowed.allows(before, after):
        verdict = "worse"
        if busy and figure == MEASURED:
            verdict, reason = "unclear", "others held the processors"
    return Change(function, figure, before, after, allowed, verdict, reason)
