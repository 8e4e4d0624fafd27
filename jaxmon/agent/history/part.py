"""
How long functions and steps take, against earlier in this run and against earlier runs.

Fed by sampled execution times and by the steps of marked loops. Judged every few
seconds, where files that do not respond hold up nothing else; see
`jaxmon.agent.history.times` for when something counts as slower. What programs take is
kept in the run directory for the next run of the same command; a directory that cannot
be used costs nothing but that.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.guard import log
from jaxmon.agent.history import times as store
from jaxmon.agent.history.times import Followed, LoopSteps, PastRun, TimedProgram
from jaxmon.agent.jaxlink.arguments import Shapes, text_of
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.versions import versions
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic, wall_time
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Collect, Family, family_of
from jaxmon.facts import functions as facts
from jaxmon.facts.events import Slower
from jaxmon.facts.functions import Spread
from jaxmon.facts.record import encoded
from jaxmon.host.rundir import locate, prepare
from jaxmon.indicators.loops import Loops


# Intervals of the loops' means, in sampling intervals, within these seconds.
_SAMPLES, _SHORTEST, _LONGEST = 10, 1.0, 60.0
# Least seconds between two times of a program: however many are sampled, what disturbs
# a machine for a few seconds must not look like a change.
_SPACING_SECONDS = 0.9
_WRITE_SECONDS = 300.0
_MOST_PROGRAMS = 200
_MOST_OF_FUNCTION = 8
# Others hold the processors if threads wait for so much more of the time, and only runs
# in which they did about as much are comparable, on a CPU.
_MOST_WAITING = 0.15
# Seconds before the first slow time, and after, in which something is beside it.
_BEFORE, _AFTER = 60.0, 30.0
_MOST_NAMED = 3
_HARMLESS = ("gpu_idle", "none", "applications_clocks_setting")
_CPU = "cpu"
_NONE = "none"
# Who upgraded longer ago knows.
_MOST_AGE = 7 * 86_400.0
# What must be the same for a comparison; the processor only if it is the device.
_SAME = ("platform", "device", "devices")

Read = Callable[[], Mapping[str, facts.Program]]


class SpeedHistory(Part):
    """
    Finds programs and loops that are slower than before. *programs* returns statistics
    of each function's latest program, *devices* the metrics of this process's devices,
    if they are read.
    """

    name = "history"

    def __init__(
        self, context: Context, loops: Loops, programs: Read, devices: Collect
    ) -> None:
        settings = context.settings
        self._context = context
        self._all_loops = loops
        self._hlo = programs
        self._devices = devices
        self._programs: dict[tuple[Function, Shapes], TimedProgram] = {}
        self._sampled: dict[Function, list[int]] = {}
        self._loops: dict[str, LoopSteps] = {}
        every = _SAMPLES / settings.sample_rate if settings.sample_rate else _LONGEST
        self._every = min(max(every, _SHORTEST), _LONGEST)
        self._due = monotonic()
        self._spacing = _SPACING_SECONDS
        self._keeps = settings.history and settings.socket
        self._path: Path | None = None
        self._past: list[PastRun] = []
        self._versions: dict[str, str] = {}
        self._written = monotonic()
        self._waits = store.Waits()
        self._compiles = context.table.compiled
        self._worker = Worker("history", context.scheduler, limit=1)
        context.observers.executed.append(self._executed)
        context.observers.timer.append(self._on_timer)

    def _executed(self, function: Function, shapes: Shapes, seconds: float) -> None:
        now = wall_time()
        key = (function, shapes)
        found = self._programs.get(key)
        if found is None:
            of_function = sum(f is function for f, _ in list(self._programs))
            full = len(self._programs) >= _MOST_PROGRAMS
            if full or of_function >= _MOST_OF_FUNCTION:
                return
            sampled = self._sampled.setdefault(function, [0])
            fresh = TimedProgram(function, text_of(shapes), sampled, now)
            found = self._programs.setdefault(key, fresh)
        if now - found.added >= self._spacing:
            found.add(now, seconds)

    def _on_timer(self) -> None:
        if monotonic() >= self._due:
            self._worker.submit(self._tick)

    def _tick(self) -> None:
        if monotonic() < self._due:
            return
        self._due = monotonic() + self._every
        now = wall_time()
        if not self._versions:
            self._identify()
        self._waits.read(now)
        for loop in self._all_loops:
            watched = self._loops.get(loop.name)
            if watched is None:
                self._loops[loop.name] = LoopSteps(loop, now)
            else:
                watched.poll(now)
        found = [entry for entry in self._watched() if entry.times.settled is not None]
        if found:
            margin = self._margin()
            for entry in found:
                self._judge(entry, margin)
        if self._path is not None and monotonic() - self._written >= _WRITE_SECONDS:
            self._write()

    def _identify(self) -> None:
        """Find out what the speed depends on, once the devices are known."""
        found = versions(self._context.jax)
        if "platform" not in found:
            return
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        place = Path(script).absolute().parent if script else Path.cwd()
        if commit := store.commit_of(place):
            found["commit"] = commit
        self._versions = found
        if not self._keeps:
            return
        directory = locate(self._context.settings.run_dir).absolute()
        try:
            prepare(directory)
        except JaxmonError as error:
            log.debug("jaxmon keeps no times for the next run: %s", error)
            return
        # One interpreter or another, in whatever directory it is.
        words = [os.path.basename(sys.orig_argv[0]), *sys.orig_argv[1:]]  # noqa: PTH119
        self._path = store.path_of(directory, (str(place), *words))
        self._past = [run for run in store.read(self._path) if self._comparable(run)]

    def _watched(self) -> list[Followed]:
        return [*list(self._programs.values()), *list(self._loops.values())]

    def _margin(self) -> float:
        from jaxmon.limits.shared import current  # noqa: PLC0415 - for long runs only

        return current(self._context.settings.run_dir).slower

    def _judge(self, entry: Followed, margin: float) -> None:
        was, found = entry.times.slowdown, entry.times.judge(margin)
        if found is not None and was is None:
            crowded = tuple(self._crowded(found.since))
            entry.crowded = bool(crowded)
            entry.beside = (*crowded, *self._beside(entry, found.since))
            self._report(entry, found.settled, found.recent, "before")
        elif found is None:
            entry.beside, entry.crowded = (), False
        if isinstance(entry, TimedProgram) and self._past:
            earlier, entry.past = entry.past, self._slower_than_past(entry, margin)
            settled = entry.times.settled
            if entry.past is not None and earlier is None and settled is not None:
                then = entry.past.then.seconds
                self._report(entry, then, settled, "in an earlier run")

    def _report(self, entry: Followed, then: Spread, now: Spread, when: str) -> None:
        from jaxmon.host.formats.layout import duration  # noqa: PLC0415 - rarely needed

        where = f" with {entry.shapes}" if entry.shapes else ""
        text = (
            f"{entry.name}{where} takes {now.over(then):.1f} times as long "
            f"as {when}: {duration(then.middle)} → {duration(now.middle)}"
        )
        self._context.events.add(
            "slower",
            entry.name if entry.kind == "function" else None,
            text,
            **encoded(_slowdown(entry)),
        )

    def _beside(self, entry: Followed, since: float) -> Iterator[str]:
        compiled = {
            name for time, name in self._compiles.copy() if _is_beside(time, since)
        }
        if compiled:
            were = "was" if len(compiled) == 1 else "were"
            yield f"{_named(sorted(compiled))} {were} compiled"
        if began := {
            other.name
            for other in list(self._programs.values())
            if other is not entry and _is_beside(other.times.began, since)
        }:
            yield f"{_named(sorted(began))} began to run"
        yield from _throttled(self._devices)
        if isinstance(entry, LoopSteps):
            settled, recent = entry.waits.settled, entry.waits.recent
            if settled is not None and recent is not None:
                from jaxmon.host.formats.layout import duration  # noqa: PLC0415 - likewise

                yield (
                    f"waiting for data: {duration(settled.middle)} of a step → "
                    f"{duration(recent.middle)}"
                )

    def _crowded(self, since: float) -> Iterator[str]:
        """Yield that threads wait longer for processors, if these are the device."""
        before, now = self._waits.around(since)
        if self._versions.get("platform") != _CPU or now is None:
            return
        if now > (before or 0.0) + _MOST_WAITING:
            earlier = "" if before is None else f", {before:.0%} before"
            yield f"threads here wait for a processor {now:.0%} of the time{earlier}"

    def _comparable(self, run: PastRun) -> bool:
        names: tuple[str, ...] = _SAME
        if self._versions.get("platform") == _CPU:
            names = (*_SAME, "processor", "cores")
        if wall_time() - run.written > _MOST_AGE:
            return False
        return all(run.versions.get(n) == self._versions.get(n) for n in names)

    def _slower_than_past(
        self, program: TimedProgram, margin: float
    ) -> store.SlowerThanPast | None:
        settled = program.times.settled
        if settled is None:
            return None
        for run in self._past:
            then = run.programs.get((program.name, program.shapes))
            if then is None or not settled.slower_than(then.seconds, margin):
                continue
            if not self._as_crowded(run):
                continue
            changed = [
                f"{name}: {run.versions.get(name, _NONE)} → {now}"
                for name in {**run.versions, **self._versions}
                if (now := self._versions.get(name, _NONE))
                != run.versions.get(name, _NONE)
            ]
            fingerprint = self._fingerprint(program.name)
            if then.fingerprint and fingerprint and then.fingerprint != fingerprint:
                changed.append("its HLO")
            return store.SlowerThanPast(run, then, tuple(changed))
        return None

    def _as_crowded(self, run: PastRun) -> bool:
        """Return whether others held the processors then as much as now, on a CPU."""
        if self._versions.get("platform") != _CPU:
            return True
        now = self._waits.mean()
        if now is None or run.waiting is None:
            return False
        return now <= run.waiting + _MOST_WAITING

    def _fingerprint(self, name: str) -> str | None:
        found = self._hlo().get(name, facts.Program()).fingerprint
        return found if isinstance(found, str) else None

    def _write(self) -> None:
        path = self._path
        self._written = monotonic()
        programs = {
            (program.name, program.shapes): store.ProgramTimes(
                settled, self._fingerprint(program.name)
            )
            for program in list(self._programs.values())
            if (settled := program.times.settled) is not None
        }
        if path is None or not programs:
            return
        run = PastRun(wall_time(), self._versions, self._waits.mean(), programs)
        try:
            store.add(path, run)
        except OSError as error:
            interrupts.pass_on(error)
            log.debug("jaxmon cannot keep times for the next run: %s", error)

    def stop(self) -> None:
        """Keep the times for the next run."""
        self._worker.stop()
        path = self._path
        if path is not None:
            self._write()
            self._path = None

    def abandon(self) -> None:
        """Leave the file to the parent."""
        self._path = None

    def explain(self) -> Explanation:
        """Return what is slower, and what is usual for each program."""
        return Explanation(
            sections={"slower": self.slower}, functions={"history": self.snapshot}
        )

    def slower(self) -> tuple[Slower, ...]:
        """Return programs and loops that are slower than before, one way each."""
        return tuple(
            _slowdown(entry)
            for entry in self._watched()
            if entry.times.slowdown is not None or entry.past is not None
        )

    def snapshot(self) -> dict[str, dict[str, facts.Settled]]:
        """Return the settled and the recent seconds of each program, by function."""
        found: dict[str, dict[str, facts.Settled]] = {}
        for program in list(self._programs.values()):
            settled, recent = program.times.settled, program.times.recent
            if settled is not None:
                found.setdefault(program.name, {})[program.shapes] = facts.Settled(
                    settled_seconds=settled.middle,
                    recent_seconds=None if recent is None else recent.middle,
                )
        return found

    def collect(self) -> list[Family]:
        """Return how many times as long programs and steps take as before."""
        found: dict[tuple[str, str, str], float] = {}
        for entry in self._watched():
            times, past = entry.times, entry.past
            if times.recent is not None:
                slowdown = times.slowdown
                now = times.recent if slowdown is None else slowdown.recent
                ratio = 1.0 if slowdown is None else now.over(slowdown.settled)
                key = (entry.name, entry.kind, "earlier")
                found[key] = max(found.get(key, 1.0), ratio)
            if self._past and entry.kind == "function" and times.settled is not None:
                ratio = 1.0 if past is None else times.settled.over(past.then.seconds)
                key = (entry.name, entry.kind, "past_run")
                found[key] = max(found.get(key, 1.0), ratio)
        return [family_of(catalog.SLOWDOWN, [(*k, v) for k, v in found.items()])]


def _slowdown(entry: Followed) -> Slower:
    found, past, settled = entry.times.slowdown, entry.past, entry.times.settled
    how: dict[str, Any] = {"calls": 0.0}
    if found is not None:
        how = {
            "against": "earlier",
            "settled_seconds": found.settled.middle,
            "recent_seconds": found.recent.middle,
            "since": found.since,
            "calls": max(entry.calls - found.calls, 0.0),
        }
    elif past is not None and settled is not None:
        how = {
            "against": "past_run",
            "settled_seconds": past.then.seconds.middle,
            "recent_seconds": settled.middle,
            "since": past.run.written,
            "calls": entry.calls,
            "changed": past.changed,
        }
    return Slower(
        what=entry.kind,
        name=entry.name,
        shapes=entry.shapes,
        crowded=entry.crowded,
        beside=entry.beside,
        **how,
    )


# What happened beside a slowdown, when it began: not its cause, but where to look.


def _throttled(read: Collect) -> Iterator[str]:
    """Yield why GPUs of this process run at lower clocks, if the driver is read."""
    reasons = {
        match[1]
        for family in read()
        if family.metric is catalog.GPU_CLOCK_EVENT_ACTIVE
        for series, value in family.samples
        if value and (match := re.search('reason="([^"]*)"', series))
    }
    if found := sorted(reasons.difference(_HARMLESS)):
        yield f"the GPU is throttled ({', '.join(found)})"


def _is_beside(time: float, since: float) -> bool:
    return -_BEFORE <= time - since <= _AFTER


def _named(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
