"""
Judges whether programs run slower than in the baseline, or says that it cannot tell.

On an accelerator the wall time counts, of calls that found the device idle. On a CPU,
other processes lengthen it to twice and more, but hardly change the processor time of a
call, so both must have grown. If only the wall time has, either fewer threads do the
same work, or others held the processors; the kernel tells how long threads waited for
one. If only the processor time has, others may have held them in the baseline: threads
that run at once take more of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from jaxmon.baseline.figures import Tolerance
from jaxmon.baseline.ranks import critical, not_slower
from jaxmon.baseline.times import Run, Times


Verdict = Literal["worse", "within", "better", "unclear"]

# Runs that differ by more than this among themselves show only larger changes.
_NOISE = 2.0
# A fraction of waiting for processors that says that others held them: on an idle
# machine the threads of a program wait for each other for less.
_BUSY = 0.2
CPU = "cpu"
_CROWDED = "it took no more processor time, and others held the processors"
_NO_LONGER = "it took more processor time, but no longer"


@dataclass(frozen=True, slots=True)
class Slowdown:
    """
    The run time of one program, before and after.

    Args:
        function: its function.
        shapes: of its arguments; empty if the function has no other program.
        measure: what was compared, ``run_seconds`` or ``processor_seconds``.
        before: seconds in the baseline, the median of its runs.
        after: the same now.
        verdict: ``worse`` if it is slower beyond noise and tolerance.
        reason: why the verdict is ``unclear``.
    """

    function: str
    shapes: str
    measure: str
    before: float
    after: float
    verdict: Verdict
    reason: str = ""


def judge(
    before: Sequence[Run],
    after: Sequence[Run],
    tolerance: Tolerance,
    *,
    platform: str,
    runs: tuple[int, int] = (0, 0),
) -> Iterator[Slowdown]:
    """
    Compare the programs that occur on both sides.

    Args:
        before: the runs of the baseline.
        after: the runs to compare.
        tolerance: how much longer a program may take.
        platform: of the device, such as ``cpu``.
        runs: how many runs before and after there will be, if there are more to come:
            what cannot become slower, whatever they show, is judged already.
    """
    if not before or not after:
        return
    planned = max(runs[0], len(before)), max(runs[1], len(after))
    sides = _Sides(before, after, tolerance, planned, platform == CPU)
    for name in sorted(_names(before) & _names(after)):
        shapes = _shapes(before, name) & _shapes(after, name)
        for one in sorted(shapes):
            yield sides.judge(name, one, alone=len(shapes) == 1)


@dataclass(frozen=True, slots=True)
class _Sides:
    before: Sequence[Run]
    after: Sequence[Run]
    tolerance: Tolerance
    planned: tuple[int, int]
    cpu: bool

    def judge(self, name: str, shapes: str, *, alone: bool) -> Slowdown:
        old, new = _times(self.before, name, shapes), _times(self.after, name, shapes)
        # Excuses a slower machine; a faster one accuses nobody.
        slower = self._machine
        walls = (
            [one.wall_seconds for one in old],
            [one.wall_seconds / slower for one in new],
        )
        compared, (verdict, reason) = walls, self._verdict(*walls)
        if self.cpu:
            busy = (
                [one.processor_seconds for one in old],
                [one.processor_seconds / slower for one in new],
            )
            of_busy = self._verdict(*busy)
            if of_busy[0] == "worse" and verdict != "worse":
                compared, verdict, reason = busy, "unclear", _NO_LONGER
            elif of_busy[0] == "worse" or verdict != "worse":
                compared, (verdict, reason) = busy, of_busy
            elif self._crowded:
                verdict, reason = "unclear", _CROWDED
        before, after = map(median, compared)
        return Slowdown(
            name,
            "" if alone else shapes,
            "run_seconds" if compared is walls else "processor_seconds",
            before,
            after,
            verdict,
            reason,
        )

    @property
    def _crowded(self) -> bool:
        """Whether others held the processors in any run, as far as is known."""
        return any(map(is_crowded, (*self.before, *self.after)))

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
        old = [one.work_seconds for one in self.before if one.work_seconds]
        new = [one.work_seconds for one in self.after if one.work_seconds]
        return max(median(new) / median(old), 1.0) if old and new else 1.0


def is_crowded(run: Run) -> bool:
    """Return whether others may have held the processors in *run*."""
    return run.waited is None or run.waited > _BUSY


def _spread(values: Sequence[float]) -> float:
    """Return by what factor *values* differ, without the smallest and the largest."""
    ordered = sorted(values)
    inner = ordered[1:-1] or ordered
    return inner[-1] / inner[0] if inner[0] > 0 else 1.0


def _names(runs: Sequence[Run]) -> set[str]:
    return {name for run in runs for name in run.functions}


def _shapes(runs: Sequence[Run], name: str) -> set[str]:
    return {shapes for run in runs for shapes in run.functions.get(name, ())}


def _times(runs: Sequence[Run], name: str, shapes: str) -> list[Times]:
    return [
        run.functions[name][shapes]
        for run in runs
        if shapes in run.functions.get(name, ())
    ]
