"""
What changed from one run to another, and whether it is worse: times are judged as in
`jaxmon.facts.functions`, counts as in baselines; the machine may slow all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from typing import Literal, NamedTuple, TypeAlias

from jaxmon.facts.events import Recompile
from jaxmon.facts.functions import FunctionFact, Spread
from jaxmon.facts.marked import RouteFacts
from jaxmon.limits import Limits
from jaxmon.preflight.baseline.compare import CPU, Verdict, is_crowded
from jaxmon.preflight.baseline.record import TOLERANCES, Tolerance
from jaxmon.screens.runs import Run


What: TypeAlias = Literal["function", "loop", "route", "device", "process"]

Judged: TypeAlias = Verdict | Literal["unjudged"]

FEWEST = 16
"""Least number of samples on each side that show a slowdown."""

TIMES = ("execution_seconds", "dispatch_seconds")
"""Times of functions, the more telling first."""

CROWDED = "others held the processors"
# So many functions show what the machine does to all of them.
_ENOUGH = 5

FEW = f"fewer than {FEWEST} samples"
_PROGRAM = ("flops", "peak_bytes")
# Half as many samples show what takes so many times as long as nine tenths before.
_PLAIN, _FEWEST_IF_PLAIN = 2.0, FEWEST // 2
_COMPILE = TOLERANCES["compile_seconds"]
_MOST_EVIDENCE = 3


@dataclass(frozen=True, slots=True)
class RunChange:
    """
    A measure of something that both runs have: times of functions, steps and requests,
    by medians, with how many *samples* (`None` for what is exact) and *ranges* from the
    lower quartile to what nine of ten do not exceed; and what is counted.

    The verdict is ``worse`` beyond noise, ``unjudged`` with too few samples that do not
    look worse; a *reason* says why it is that, or ``unclear``. *lost* are seconds of
    the run after, negative if they were won.
    """

    what: What
    name: str
    measure: str
    before: float
    after: float
    verdict: Judged
    place: str = ""
    samples: tuple[int, int] | None = None
    reason: str = ""
    ranges: tuple[tuple[float, float], ...] = ()
    evidence: tuple[str, ...] = ()
    lost: float = 0.0


class Subject(NamedTuple):
    """What is measured; as in `RunChange`."""

    what: What
    name: str
    measure: str


def times(
    of: Subject,
    found: tuple[Spread | None, Spread | None],
    *,
    calls: int,
    machine: Machine,
) -> Iterator[RunChange]:
    """Yield how times changed, if both sides have some."""
    old, new = found
    if old is None or new is None or not old.count or not new.count:
        return
    verdict, reason = _judged(old, new, of.measure, machine)
    counts = verdict in ("worse", "unclear")
    lost = (new.middle - old.middle) * calls
    yield RunChange(
        *(*of, old.middle, new.middle, verdict),
        samples=(old.count, new.count),
        reason=reason,
        ranges=((old.low, old.high), (new.low, new.high)),
        lost=lost if verdict == "better" else max(lost, 0.0) if counts else 0.0,
    )


def of_function(
    old: FunctionFact,
    new: FunctionFact,
    machine: Machine,
    latest: tuple[Recompile, ...],
) -> Iterator[RunChange]:
    """Yield how a function changed; *latest* are its recompiles after."""
    calls = new.calls or 0
    found = [
        change
        for measure in TIMES
        for change in times(
            Subject("function", new.name, measure),
            (spread(old, measure), spread(new, measure)),
            calls=calls,
            machine=machine,
        )
    ]
    spent = max((change.after for change in found), default=0.0) * calls
    for change in (*found, *_program(old, new, spent), *_built(old, new, machine)):
        yield replace(change, place=new.place)
    if old.built and new.built:
        yield _recompiles(old, new, latest)
        yield _errors(old, new)


def failures(old: RouteFacts, new: RouteFacts, limits: Limits) -> RunChange | None:
    """Return how many requests fail, as ratios; `None` if a run served none."""
    served = finished(old), finished(new)
    if not all(served):
        return None
    failed = [
        sum(outcome.count for outcome in route.finished if outcome.outcome == "error")
        for route in (old, new)
    ]
    before, after = failed[0] / served[0], failed[1] / served[1]
    many = failed[1] >= limits.failed_requests
    worse = many and after >= max(limits.failed_share, 2 * before)
    return RunChange(
        *("route", new.name, "failed_requests", before, after),
        "worse" if worse else "within",
        samples=served,
    )


def peak(
    what: What, name: str, values: tuple[float, float], tolerance: Tolerance
) -> RunChange:
    """Return how much memory something had at most."""
    before, after = values
    verdict = _grown(tolerance, before, after)
    return RunChange(what, name, "peak_bytes", before, after, verdict)


def _grown(tolerance: Tolerance, before: float, after: float) -> Verdict:
    if not tolerance.allows(before, after):
        return "worse"
    return "within" if tolerance.allows(after, before) else "better"


def finished(route: RouteFacts) -> int:
    """Return the number of finished requests."""
    return sum(outcome.count for outcome in route.finished)


def _judged(
    old: Spread, new: Spread, measure: str, machine: Machine
) -> tuple[Judged, str]:
    """Return the verdict on times, and why it is unclear or there is none."""
    margin = machine.limits.slower
    factor, unknown = machine.factor(measure)
    few = min(old.count, new.count)
    least = 1.0 if few >= FEWEST else _PLAIN

    def plainly(low: float) -> bool:
        return low > max(old.limit(margin), least * old.high)

    if few < FEWEST and not (few >= _FEWEST_IF_PLAIN and plainly(new.low)):
        return "unclear" if new.middle > old.limit(margin) else "unjudged", FEW
    if new.slower_than(old, margin):
        if unknown:
            return "unclear", unknown
        if not plainly(new.low / factor):
            return "unclear", f"the machine makes it {factor:.1f} times"
        return "worse", ""
    return ("better" if old.slower_than(new, margin) else "within"), ""


def _program(old: FunctionFact, new: FunctionFact, spent: float) -> Iterator[RunChange]:
    """Yield what the only program of a function needs; the same in each run."""
    before, after = old.program, new.program
    if not before.programs == after.programs == 1:
        return
    for measure in _PROGRAM:
        was, now = getattr(before, measure), getattr(after, measure)
        if not was or not now:
            continue
        verdict = _grown(TOLERANCES[measure], was, now)
        costs = verdict == "worse" and measure == _PROGRAM[0]
        lost = spent * (1 - was / now) if costs else 0.0
        yield RunChange("function", new.name, measure, was, now, verdict, lost=lost)


def _built(
    old: FunctionFact, new: FunctionFact, machine: Machine
) -> Iterator[RunChange]:
    if not old.built or not new.built:
        return
    before, after = old.compile_time / old.built, new.compile_time / new.built
    verdict, reason = _grown(_COMPILE, before, after), ""
    if verdict == "worse":
        reason = _other_compiles(old, new) or (CROWDED if machine.crowded else "")
        verdict = "unclear" if reason else "worse"
    elif verdict == "better" and (_other_compiles(old, new) or machine.was_crowded):
        verdict = "within"
    lost = (after - before) * new.built if verdict in ("worse", "unclear") else 0.0
    yield RunChange(
        *("function", new.name, "compile_seconds", before, after, verdict),
        samples=(old.built, new.built),
        reason=reason,
        lost=lost,
    )


def _other_compiles(old: FunctionFact, new: FunctionFact) -> str:
    """Return whether the persistent cache served more, or less."""
    before, after = (function.compiles.get("cache_hit", 0) for function in (old, new))
    if before == after:
        return ""
    return f"loaded from the persistent cache: {before:,} → {after:,}"


def _recompiles(
    old: FunctionFact, new: FunctionFact, latest: tuple[Recompile, ...]
) -> RunChange:
    before, after = (sum(function.recompiles.values()) for function in (old, new))
    allowed = _allowed(before, old, new)
    verdict: Verdict = "worse" if after > allowed else "within"
    if before and not after and (new.calls or 0) >= (old.calls or 0):
        verdict = "better"
    texts = dict.fromkeys(
        text for recompile in reversed(latest) for text in recompile.texts
    )
    worse = verdict == "worse"
    causes = sorted(new.recompiles.items(), key=lambda cause: -cause[1])
    by_cause = ", ".join(f"{cause} {count:,}" for cause, count in causes)
    evidence = (f"causes: {by_cause}", *texts)[: _MOST_EVIDENCE + 1]
    return RunChange(
        *("function", new.name, "recompiles", before, after, verdict),
        place=new.place,
        evidence=evidence if worse else (),
        lost=(after - before) * new.compile_time / new.built if worse else 0.0,
    )


def _errors(old: FunctionFact, new: FunctionFact) -> RunChange:
    before, after = (sum(function.errors.values()) for function in (old, new))
    worse = after > _allowed(before, old, new)
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in new.errors.items())
    return RunChange(
        *("function", new.name, "errors", before, after),
        "worse" if worse else "within",
        place=new.place,
        evidence=(kinds,) if worse else (),
    )


def _allowed(before: int, old: FunctionFact, new: FunctionFact) -> float:
    """Return how many there may be now, if there were so many *before*."""
    allowed = float(before)
    if old.calls != new.calls:
        # A longer run has more of them, and how many is chance.
        allowed *= max((new.calls or 0) / max(old.calls or 0, 1), 1.0)
        allowed += 2 * sqrt(allowed)
    return allowed


class Machine:
    """
    What is known of the machines of two runs.

    An accelerator executes programs by itself. All other times depend on processors: on
    how fast they do the same work and, if they may be *crowded* by others, on how much
    longer most functions take. What slows down with the rest is not accused then.
    """

    def __init__(self, before: Run, after: Run, limits: Limits) -> None:
        self.limits = limits
        self._accelerator = after.versions.get("platform") != CPU
        processors = [run.versions.get("processor") for run in (before, after)]
        self._others = ""
        if all(processors) and processors[0] != processors[1]:
            self._others = f"another processor: {processors[0]} → {processors[1]}"
        old, new = before.snapshot.usual.work, after.snapshot.usual.work
        self._work = new.middle / old.middle if old.middle and new.count else 1.0
        self.crowded = is_crowded(after.snapshot.usual.waiting)
        self.was_crowded = is_crowded(before.snapshot.usual.waiting)
        self._common = _common(functions(before), functions(after))

    def factor(self, measure: str) -> tuple[float, str]:
        """Return the factor, at least 1, and why it is not known, if so."""
        if self._accelerator and measure == TIMES[0]:
            return 1.0, ""
        if self._others:
            return 1.0, self._others
        if not (self.crowded or self.was_crowded):
            return max(self._work, 1.0), ""
        if self._common is None:
            return 1.0, CROWDED
        return max(self._work, self._common, 1.0), ""


def functions(run: Run) -> dict[str, FunctionFact]:
    """Return the program's functions by name."""
    return {function.name: function for function in run.snapshot.users}


def spread(function: FunctionFact, measure: str) -> Spread | None:
    """Return how the times of *function* vary, `None` if they are not known."""
    return function.spreads.get(measure.removesuffix("_seconds"))


def _common(
    before: Mapping[str, FunctionFact], after: Mapping[str, FunctionFact]
) -> float | None:
    """Return how many times as long functions take, the median of enough of them."""
    ratios = []
    for name in before.keys() & after.keys():
        for measure in TIMES:
            was, now = spread(before[name], measure), spread(after[name], measure)
            if was and now and min(was.count, now.count) >= FEWEST and was.middle:
                ratios.append(now.middle / was.middle)
                break
    return median(ratios) if len(ratios) >= _ENOUGH else None
