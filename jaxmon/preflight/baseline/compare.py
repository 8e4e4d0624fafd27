"""
Compares two baselines, and judges whether programs run slower, or cannot tell.

On an accelerator the wall time counts, of calls that found the device idle. On a CPU,
other processes lengthen it to twice and more, but hardly change the processor time of a
call, so both must have grown. If only the wall time has, either fewer threads do the
same work, or others held the processors; the kernel tells how long threads waited for
one. If only the processor time has, others may have held them in the baseline: threads
that run at once take more of it.

A wrong verdict fails a build, so runs are compared by a rank test whose risk is known,
that of Mann and Whitney (1947), "On a test of whether one of two random variables is
stochastically larger than the other", Ann. Math. Statist. 18: of all pairs of a run
before and a run after, count those in which the later one is not slower. If both sets
come from one distribution, all orders are equally likely, so the chance of so few pairs
is known exactly. A pair counts as slower only beyond the tolerance.

The runs are processes, not calls: the calls of one process share its memory layout,
its threads and the moment on the machine (Kalibera and Jones 2013, "Rigorous
benchmarking in reasonable time"; Georges, Buytaert and Eeckhout 2007, "Statistically
rigorous Java performance evaluation").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import comb
from statistics import median
from typing import Any, Literal

from jaxmon.errors import BaselineError
from jaxmon.host.formats.layout import (
    INDENT,
    Column,
    amount,
    clean,
    counted,
    duration,
    shortened,
    size,
    table,
    wrapped,
)
from jaxmon.preflight.baseline.record import (
    COMPILE_SECONDS,
    RUN_SECONDS,
    TOLERANCES,
    VERSIONS,
    Baseline,
    RunTimes,
    TimedRun,
    Tolerance,
)


Verdict = Literal["worse", "within", "better", "unclear"]

# Runs that differ by more than this among themselves show only larger changes.
_NOISE = 2.0
# A fraction of waiting for processors that says that others held them: on an idle
# machine the threads of a program wait for each other for less.
_BUSY = 0.2
CPU = "cpu"
_CROWDED = "it took no more processor time, and others held the processors"
_NO_LONGER = "it took more processor time, but no longer"

_LAYOUT = (
    Column("", 18, right=False),
    Column("BASELINE", 12),
    Column("NOW", 12),
    Column("CHANGE", 12),
    Column("ALLOWED", 12),
    Column("", 10),
)
_VERDICTS = {"worse": "WORSE", "within": "ok"}
_MANY = 10
_EXACT = 1_000_000

SCHEMA = 1
"""Version of what `document` returns."""

RISK = 0.01
"""Maximum probability of an accusation where nothing has changed."""


@dataclass(frozen=True, slots=True)
class CostChange:
    """
    A measure that changed, or the run time of a program: of run times *before* and
    *after* are medians; *allowed* is its growth, `None` for any; *shapes* are of a
    program's arguments, empty if its function has no other.
    """

    function: str
    measure: str
    before: float
    after: float
    allowed: Tolerance | None
    verdict: Verdict
    reason: str = ""
    shapes: str = ""


@dataclass(frozen=True, slots=True)
class CostComparison:
    """
    Records compared: *vanished* functions were not compiled any more, *one_sided*
    measures JAX reported once, *untimed* is why there are no *times*, and *differences*
    are ``name: old → new``.
    """

    before: Baseline
    after: Baseline
    changes: tuple[CostChange, ...]
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    one_sided: tuple[str, ...]
    times: tuple[CostChange, ...] = ()
    untimed: str = ""
    differences: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[CostChange, ...]:
        """The changes that are regressions."""
        return self._with("worse")

    @property
    def unclear(self) -> tuple[CostChange, ...]:
        """What may be a regression, or the machine."""
        return self._with("unclear")

    def _with(self, verdict: Verdict) -> tuple[CostChange, ...]:
        every = (*self.changes, *self.times)
        return tuple(change for change in every if change.verdict == verdict)


def compare(
    before: Baseline,
    after: Baseline,
    allowed: Mapping[str, Tolerance | None],
    *,
    runs: tuple[int, int] = (0, 0),
) -> CostComparison:
    """Compare *after* with *before*. Raises `BaselineError`: of different hardware."""
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
    busy = bool(after.runs) and all(is_crowded(run.waited) for run in after.runs)
    times: Iterator[CostChange] = iter(())
    if tolerance is not None and not untimed:
        platform = after.versions.get("platform", "")
        times = judge(before.runs, after.runs, tolerance, platform=platform, runs=runs)
    return CostComparison(
        before,
        after,
        changes=tuple(
            _change(function, name, (old[name], new[name]), allowed[name], busy=busy)
            for function, old, new in pairs
            for name in TOLERANCES
            if name in old and name in new and old[name] != new[name]
        ),
        new=tuple(sorted(after.functions.keys() - before.functions.keys())),
        vanished=tuple(sorted(before.functions.keys() - after.functions.keys())),
        one_sided=tuple(
            name
            for name in TOLERANCES
            if any((name in old) != (name in new) for _, old, new in pairs)
        ),
        times=tuple(times),
        untimed=untimed if tolerance is not None else "",
        differences=differences(before.versions, after.versions),
    )


def _untimed(before: Baseline, after: Baseline) -> str:
    if not before.runs and after.runs:
        return "the baseline has none; record it again"
    for side, record in (("the baseline", before), ("this run", after)):
        if setting := why_untimed(record.versions):
            return f"with {setting}, as in {side}, no call is timed"
    if _programs(before.runs) and after.runs and not _programs(after.runs):
        return "this run has none: no call took JAX's fast path, or too few were made"
    old, new = (run.versions.get("processor", "") for run in (before, after))
    if old != new and after.versions.get("platform") == CPU:
        return f"the baseline is of another processor ({old} → {new})"
    return ""


_NEVER_TIMED = (
    *("jax_debug_nans", "jax_debug_infs", "jax_disable_jit", "jax_debug_key_reuse"),
)


def why_untimed(versions: Mapping[str, str]) -> str:
    """Return the setting with which no call is timed, empty if there is none."""
    return next((name for name in _NEVER_TIMED if name in versions), "")


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return what differs between two sides, as ``name: old → new``."""
    return tuple(
        f"{name}: {before.get(name, 'none')} → {after.get(name, 'none')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _change(
    function: str,
    measure: str,
    values: tuple[float, float],
    allowed: Tolerance | None,
    *,
    busy: bool,
) -> CostChange:
    before, after = values
    verdict: Verdict = "better" if after < before else "within"
    reason = ""
    if allowed is not None and not allowed.allows(before, after):
        verdict = "worse"
        if busy and measure == COMPILE_SECONDS:
            verdict, reason = "unclear", "others held the processors"
    return CostChange(function, measure, before, after, allowed, verdict, reason)


def judge(
    before: Sequence[TimedRun],
    after: Sequence[TimedRun],
    tolerance: Tolerance,
    *,
    platform: str,
    runs: tuple[int, int] = (0, 0),
) -> Iterator[CostChange]:
    """
    Compare the programs of both sides, which may take *tolerance* longer. If *runs*
    before and after are still to come, what cannot become slower is judged already.
    """
    if not before or not after:
        return
    planned = max(runs[0], len(before)), max(runs[1], len(after))
    sides = _Sides(before, after, tolerance, planned, platform == CPU)
    both = sorted(_programs(before) & _programs(after))
    counts = Counter(name for name, _ in both)
    for name, shapes in both:
        yield sides.judge(name, shapes, alone=counts[name] == 1)


@dataclass(frozen=True, slots=True)
class _Sides:
    before: Sequence[TimedRun]
    after: Sequence[TimedRun]
    tolerance: Tolerance
    planned: tuple[int, int]
    cpu: bool

    def judge(self, name: str, shapes: str, *, alone: bool) -> CostChange:
        old, new = _times(self.before, name, shapes), _times(self.after, name, shapes)
        # Excuses a slower machine; a faster one accuses no function.
        slower = self._machine
        walls = (
            [run.wall_seconds for run in old],
            [run.wall_seconds / slower for run in new],
        )
        compared, (verdict, reason) = walls, self._verdict(*walls)
        if self.cpu:
            busy = (
                [run.processor_seconds for run in old],
                [run.processor_seconds / slower for run in new],
            )
            of_busy = self._verdict(*busy)
            if of_busy[0] == "worse" and verdict != "worse":
                compared, verdict, reason = busy, "unclear", _NO_LONGER
            elif of_busy[0] == "worse" or verdict != "worse":
                compared, (verdict, reason) = busy, of_busy
            elif any(is_crowded(run.waited) for run in (*self.before, *self.after)):
                verdict, reason = "unclear", _CROWDED
        measure = RUN_SECONDS if compared is walls else "processor_seconds"
        earlier, later = map(median, compared)
        found = CostChange(
            name, measure, earlier, later, self.tolerance, verdict, reason
        )
        return found if alone else replace(found, shapes=shapes)

    def _verdict(self, old: list[float], new: list[float]) -> tuple[Verdict, str]:
        needed = critical(*self.planned)
        grew = not self.tolerance.allows(median(old), median(new))
        too_few = f"{len(old)} and {len(new)} runs are too few"
        if needed < 0:
            return ("unclear", too_few) if grew else ("within", "")
        if not_slower(old, new, self.tolerance.allows) <= needed:
            complete = (len(old), len(new)) == self.planned
            return ("worse", "") if complete else ("unclear", too_few)
        if grew or max(_spread(old), _spread(new)) > _NOISE:
            return "unclear", "its runs differ too much"
        if median(new) < median(old) / (1 + self.tolerance.share):
            return "better", ""
        return "within", ""

    @property
    def _machine(self) -> float:
        """By what factor the machine is slower now, at least 1."""
        old = [run.work_seconds for run in self.before if run.work_seconds]
        new = [run.work_seconds for run in self.after if run.work_seconds]
        return max(median(new) / median(old), 1.0) if old and new else 1.0


def is_crowded(waited: float | None) -> bool:
    """Return whether others may have held the processors, by how threads *waited*."""
    return waited is None or waited > _BUSY


def _spread(values: Sequence[float]) -> float:
    """Return by what factor *values* differ, without the smallest and the largest."""
    ordered = sorted(values)
    inner = ordered[1:-1] or ordered
    return inner[-1] / inner[0] if inner[0] > 0 else 1.0


def _programs(runs: Sequence[TimedRun]) -> set[tuple[str, str]]:
    return {
        (name, shapes)
        for run in runs
        for name, programs in run.functions.items()
        for shapes in programs
    }


def _times(runs: Sequence[TimedRun], name: str, shapes: str) -> list[RunTimes]:
    return [
        run.functions[name][shapes]
        for run in runs
        if shapes in run.functions.get(name, ())
    ]


def not_slower(
    before: Sequence[float],
    after: Sequence[float],
    allows: Callable[[float, float], bool],
) -> int:
    """Return in how many pairs of runs the later one is within the tolerance."""
    return sum(allows(earlier, other) for earlier in before for other in after)


def critical(before: int, after: int, risk: float = RISK) -> int:
    """Return the most such pairs with which *after* is slower; -1 for too few runs."""
    orders, fewest, seen = comb(before + after, after), -1, 0
    while fewest < before * after:
        seen += _orders(before, after, fewest + 1)
        if seen > risk * orders:
            break
        fewest += 1
    return fewest


@cache
def _orders(before: int, after: int, pairs: int) -> int:
    """
    Return how many orders of the runs have exactly that many *pairs* in which the later
    run is faster: the recurrence of Mann and Whitney, by which run is the slowest.
    """
    if pairs < 0:
        return 0
    if not before or not after:
        return int(not pairs)
    return _orders(before - 1, after, pairs - after) + _orders(before, after - 1, pairs)


def document(comparison: CostComparison) -> dict[str, Any]:
    """Return the comparison in JSON types."""
    found = {key: getattr(comparison, key) for key in comparison.__slots__}
    sides = {side: found.pop(side).versions for side in ("before", "after")}
    for key in ("changes", "times"):
        found[key] = [
            {**asdict(change), "allowed": change.allowed and str(change.allowed)}
            for change in found[key]
        ]
    return {"schema": SCHEMA, "worse": len(comparison.worse), **sides, **found}


def lines(comparison: CostComparison, *, width: int = 80) -> Iterator[str]:
    """Yield the lines to print."""
    yield from _versions("baseline", comparison.before, width)
    yield from _versions("now", comparison.after, width)
    for difference in comparison.differences:
        if difference.partition(":")[0] not in VERSIONS:
            yield from wrapped(clean(difference), width, first="changed: ", rest=INDENT)
    yield ""
    rows: dict[str, list[list[str]]] = {}
    worse = set[str]()
    for change in (*comparison.changes, *comparison.times):
        of = f" of {change.shapes}" if change.shapes else ""
        rows.setdefault(f"{change.function}{of}", []).append(_row(change))
        worse |= {f"{change.function}{of}"} if change.verdict == "worse" else set()
    # The regressions last, where a log ends.
    ordered = sorted(rows, key=lambda name: (name in worse, name))
    for number, name in enumerate(ordered):
        heading, *body = table(_LAYOUT, rows[name], width=width)
        if not number:
            yield heading.rstrip()
        yield shortened(clean(name), width)
        yield from (line.rstrip() for line in body)
    if rows:
        yield ""
    yield from named("new", comparison.new, width)
    yield from named("vanished", comparison.vanished, width)
    if comparison.one_sided:
        yield f"reported by one side only: {', '.join(comparison.one_sided)}"
    if comparison.untimed:
        text = f"run times are not compared: {comparison.untimed}"
        yield from wrapped(clean(text), width, rest=INDENT)
    yield from _unclear(comparison, width)
    yield from wrapped(clean(verdict(comparison)), width, rest=INDENT)


def verdict(comparison: CostComparison) -> str:
    """Return the outcome as a sentence without a full stop."""
    count = len(comparison.before.functions.keys() & comparison.after.functions.keys())
    worse = comparison.worse
    if not worse:
        but = "; run times are not compared" if comparison.untimed else ""
        return f"no regression in {counted(count, 'function')}{but}"
    functions = len({change.function for change in worse})
    text = (
        f"{counted(len(worse), 'regression')} in {functions} of "
        f"{counted(count, 'function')}"
    )
    if comparison.differences:
        text += f"; changed: {', '.join(comparison.differences)}"
    return text


def _versions(title: str, record: Baseline, width: int) -> Iterator[str]:
    parts = [
        f"{name} {record.versions[name]}"
        for name in VERSIONS
        if name in record.versions
    ]
    yield shortened(f"{title + ':':9} {clean(', '.join(parts))}", width)


def _row(change: CostChange) -> list[str]:
    if change.before:
        growth = f"{100 * (change.after / change.before - 1):+,.1f}%"
    else:
        growth = f"+{_shown(change.after, change.measure)}"
    return [
        change.measure,
        _shown(change.before, change.measure),
        _shown(change.after, change.measure),
        growth,
        "any" if change.allowed is None else str(change.allowed),
        _VERDICTS.get(change.verdict, change.verdict),
    ]


def _unclear(comparison: CostComparison, width: int) -> Iterator[str]:
    by_reason: dict[str, dict[str, None]] = {}
    for change in comparison.unclear:
        by_reason.setdefault(change.reason, {}).setdefault(change.function)
    for reason, (first, *others) in by_reason.items():
        more = f" and {len(others)} more" if others else ""
        text = f"cannot tell whether {first}{more} is slower: {reason}"
        yield from wrapped(clean(text), width, rest=INDENT)


def _shown(value: float, measure: str) -> str:
    if measure.endswith("_seconds"):
        return duration(value)
    if measure.endswith("_bytes"):
        return size(value)
    return f"{value:,.10g}" if value < _EXACT else amount(value)


def named(what: str, names: tuple[str, ...], width: int) -> Iterator[str]:
    """Yield lines that say of each of *names*, of many the first, *what* it is."""
    return (shortened(f"{what}: {clean(name)}", width) for name in few(names))


def few(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first of *names*, and how many more there are."""
    left = len(names) - _MANY
    return (*names[:_MANY], f"{left} more") if left > 0 else names
