"""
Passes figures of loops to the program's trackers.

They are read where a step ends, and written by one thread per tracker: one that hangs
holds up neither the loop nor another tracker, and beyond a bound its rows are dropped.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from jaxmon import catalog, threads
from jaxmon.agent.context import Context
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.part import Part
from jaxmon.agent.scheduler import Scheduler
from jaxmon.agent.worker import Worker
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Collect, Tally, series
from jaxmon.indicators.loops import Loops, StepLoop
from jaxmon.indicators.marks import STEP
from jaxmon.indicators.timeline import Timeline


PREFIX = "jaxmon/"
AXIS, FINDINGS = f"{PREFIX}step", f"{PREFIX}findings"
_FINDINGS_FILE = "jaxmon-findings.txt"


class TrackerTarget(NamedTuple):
    """
    Where figures go: *write* takes values by name and the step, *finish* the findings,
    one per line, and the step, and passes on what is buffered.
    """

    write: Callable[[Mapping[str, float], int], None]
    finish: Callable[[str, int], None]


def _wandb(run: Any) -> TrackerTarget:
    """
    Return a run of Weights & Biases. Figures join the row that the program logs next: a
    row of ours would count as a step of the program's. Their own axis is
    ``jaxmon/step``.
    """
    defined: list[str] = []

    def write(values: Mapping[str, float], step: int) -> None:
        if not defined:
            run.define_metric(AXIS, hidden=True)
            run.define_metric(f"{PREFIX}*", step_metric=AXIS)
            defined.append(AXIS)
        run.log({**values, AXIS: step}, commit=False)

    def finish(findings: str, _: int) -> None:
        run.summary[FINDINGS] = findings

    return TrackerTarget(write, finish)


def _mlflow(mlflow: Any, run: str) -> TrackerTarget:
    """Return a run of MLflow, by its fluent functions, which take a run's number."""
    return TrackerTarget(
        lambda values, step: mlflow.log_metrics(dict(values), step=step, run_id=run),
        lambda findings, _: mlflow.log_text(findings, _FINDINGS_FILE, run_id=run),
    )


def _scalars(writer: Any, scalar: Callable[..., object]) -> TrackerTarget:
    """Return a writer for TensorBoard: of PyTorch, tensorboardX, Flax or itself."""

    def write(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            scalar(name, value, step)

    def finish(findings: str, step: int) -> None:
        if (text := _method(writer, "add_text", "text")) is not None:
            text(FINDINGS, findings, step)
        if (flush := _method(writer, "flush")) is not None:
            flush()

    return TrackerTarget(write, finish)


def target_of(tracker: Any) -> tuple[str, TrackerTarget]:
    """Return the kind of *tracker*, and how to write to it. Raises `JaxmonError`."""
    if _method(tracker, "define_metric") and _method(tracker, "log"):
        return "wandb", _wandb(tracker)
    if _method(tracker, "log_metrics") and _method(tracker, "active_run"):
        active = tracker.active_run()
        if active is None:
            msg = "MLflow has no active run; call mlflow.start_run() before log_to()"
            raise JaxmonError(msg)
        return "mlflow", _mlflow(tracker, active.info.run_id)
    run, mlflow = _mlflow_run(tracker), sys.modules.get("mlflow")
    if run is not None and mlflow is not None:
        return "mlflow", _mlflow(mlflow, run)
    scalar = _method(tracker, "add_scalar", "scalar")
    if scalar is not None:
        return "tensorboard", _scalars(tracker, scalar)
    if callable(tracker):
        return "function", TrackerTarget(
            lambda values, step: tracker(dict(values), step),
            lambda findings, step: tracker({FINDINGS: findings}, step),
        )
    msg = (
        f"log_to() cannot write to {type(tracker).__name__}: give it a W&B run, mlflow "
        "or an MLflow run, a TensorBoard writer, or a function of a dictionary and a "
        "step"
    )
    raise JaxmonError(msg)


def _mlflow_run(tracker: Any) -> str | None:
    found = getattr(getattr(tracker, "info", None), "run_id", None)
    return found if isinstance(found, str) else None


def _method(owner: Any, *names: str) -> Callable[..., Any] | None:
    """Return the first method of *owner* that is called one of *names*."""
    for name in names:
        found = getattr(owner, name, None)
        if callable(found):
            method: Callable[..., Any] = found
            return method
    return None


_PEAK, _IN_USE = ('kind="peak"', 'kind="in_use"')
_STEP_TIME = series(catalog.TIME_SECONDS, STEP)


Ideal: TypeAlias = tuple[float, int]


class LoopReading(NamedTuple):
    """
    Counters of a loop at one step: finished steps and their time, seconds spent waiting
    for data, of wall time in steps, and in all. *ideal*: seconds that the FLOPs of all
    calls take the devices at their peak, and the number of calls whose FLOPs are
    unknown; `None` if the peak is.
    """

    steps: int
    seconds: float
    waited: float
    useful: float
    wall: float
    ideal: Ideal | None = None


class Sources(NamedTuple):
    """Where figures are read; *devices* are fast, *ideal* is as in `LoopReading`."""

    table: FunctionTable
    timeline: Timeline
    devices: tuple[Collect, ...]
    ideal: Callable[[], Ideal | None]


def reading(loop: StepLoop, sources: Sources) -> LoopReading:
    """Return the counters of *loop* now; microseconds."""
    spent = dict(sources.timeline.collect()[0].samples)
    return LoopReading(
        loop.steps,
        loop.seconds.sum,
        loop.waited,
        spent.get(_STEP_TIME, 0.0),
        sum(spent.values()),
        sources.ideal(),
    )


def times(
    now: LoopReading, before: LoopReading | None, *, ideal: float = 0.0
) -> dict[str, float]:
    """
    Return times and ratios between *before*, `None` at first, and *now*. *ideal*:
    seconds that a step would take at the peak of its devices, as the program says; 0 if
    it does not.
    """
    found: dict[str, float] = {}
    if before is None:
        before = LoopReading(0, 0.0, 0.0, 0.0, 0.0)
    steps, seconds = now.steps - before.steps, now.seconds - before.seconds
    if steps > 0:
        found["step_seconds"] = seconds / steps
        found["data_wait_seconds"] = (now.waited - before.waited) / steps
    if ideal and seconds > 0:
        found["mfu"] = ideal * steps / seconds
    elif (counted := _ideal_between(now, before)) and now.wall > before.wall:
        found["mfu"] = counted / (now.wall - before.wall)
    if now.wall > before.wall:
        found["goodput"] = (now.useful - before.useful) / (now.wall - before.wall)
    return found


def _ideal_between(now: LoopReading, before: LoopReading) -> float | None:
    """Return the ideal seconds; `None` if FLOPs are unknown of a call in between."""
    if now.ideal is None or before.ideal is None or now.ideal[1] != before.ideal[1]:
        return None
    return now.ideal[0] - before.ideal[0]


def totals(sources: Sources) -> dict[str, float]:
    """Return what is known of compiles and devices; about 2 µs per function."""
    names = ("compiles", "recompiles", "compile_seconds")
    compiles = zip(names, sources.table.totals(), strict=True)
    return {**dict(compiles), **_devices(sources.devices)}


def _devices(sources: Iterable[Collect]) -> Mapping[str, float]:
    peaks, used, busy = [], [], []
    for families in sources:
        for family in families():
            metric, samples = family.metric, family.samples
            if metric is catalog.DEVICE_MEMORY_BYTES:
                peaks += [value for name, value in samples if _PEAK in name]
                used += [value for name, value in samples if _IN_USE in name]
            elif metric is catalog.ACCELERATOR_UTILIZATION_RATIO:
                busy += [value for _, value in samples]
    found = {}
    if peaks:
        found["device_memory_peak_bytes"] = max(peaks)
    if used:
        found["device_memory_in_use_bytes"] = max(used)
    if busy:
        found["accelerator_utilization_ratio"] = sum(busy) / len(busy)
    return found


SITE: Final = "trackers"

_WAITING = 100
"""Rows that wait for a tracker; more are dropped."""


@dataclass(eq=False)
class Tracker:
    """
    One *target* that rows are written to, each after *every* so many steps of *loop*;
    *start* steps were done before this process. *ideal_seconds* is what a step would
    take if the devices did nothing but its model's arithmetic; 0 if unknown. *findings*
    returns what to say at the end.
    """

    kind: str
    target: TrackerTarget
    _: KW_ONLY
    loop: str
    every: int
    start: int
    ideal_seconds: float = 0.0
    findings: Callable[[], str]

    def __post_init__(self) -> None:
        # Of its own: what it calls may take long, or hang.
        self._scheduler: Scheduler | None = None
        self._worker: Worker | None = None
        self._taken = self._refused = 0
        self._done = Tally()
        self._before: LoopReading | None = None
        self._step = self.start

    def attach(self, context: Context, number: int) -> None:
        """Prepare its thread, of a name by which each of its kind fails by itself."""
        name = f"tracker_{self.kind}" + (f"_{number}" if number > 1 else "")
        self._scheduler = Scheduler(context.guard)
        self._worker = Worker(name, self._scheduler, limit=_WAITING, theirs=True)

    @property
    def dropped(self) -> int:
        """Rows that were dropped; once closed, with those that were still waiting."""
        return self._taken - self._done.value if self._worker is None else self._refused

    def take(self, now: LoopReading, counted: Mapping[str, float]) -> None:
        """Queue a row of the loop *now*, with what else is *counted*; never blocks."""
        if self._worker is None:
            return
        row = {**times(now, self._before, ideal=self.ideal_seconds), **counted}
        self._before, self._step = now, self.start + now.steps
        named = {f"{PREFIX}{name}": value for name, value in row.items()}
        self._taken += 1
        if not self._worker.submit(partial(self._write, named, self._step)):
            self._refused += 1

    def _write(self, values: Mapping[str, float], step: int) -> None:
        """Write a row, on the tracker's thread."""
        try:
            self.target.write(values, step)
        finally:
            self._done.add()

    def finish(self, findings: str) -> None:
        """Queue the *findings*, behind all rows."""
        if self._worker is not None:
            self._worker.submit(partial(self.target.finish, findings, self._step))

    def close(self) -> None:
        """Write what is queued, within the deadline."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.finish()
        if self._scheduler is not None:
            self._scheduler.stop()


class Trackers(Part):
    """The program's trackers, of figures of *loops*; *all_devices* are fast."""

    name = SITE

    def __init__(
        self,
        context: Context,
        loops: Loops,
        timeline: Timeline,
        all_devices: Iterable[Collect],
        ideal: Callable[[], Ideal | None],
    ) -> None:
        self._context = context
        self._guard = context.guard
        self._loops = loops
        self._sources = Sources(context.table, timeline, tuple(all_devices), ideal)
        self._trackers: list[Tracker] = []
        self._dropped = 0

    def add(self, tracker: Tracker) -> None:
        """
        Write to *tracker* from now on, and to its end at exit: before the library of a
        tracker that the program set up earlier ends it.
        """
        if not self._trackers:
            atexit.register(self._exit)
        others = [other for other in self._trackers if other.kind == tracker.kind]
        tracker.attach(self._context, len(others) + 1)
        self._trackers = [*self._trackers, tracker]
        self._loops.on_step = self._on_step
        self._loops.attend()

    def _on_step(self, loop: StepLoop) -> None:
        """
        Take a row where one is due. Called in the program's loop; raises nothing. In a
        loop of a tracker, a row would be written by the same tracker, and so on.
        """
        steps = loop.steps
        due = [
            tracker
            for tracker in self._trackers
            if not steps % tracker.every and tracker.loop == loop.name
        ]
        if not due or not self._guard.on(SITE) or threads.current() is not None:
            return
        try:
            now, counted = reading(loop, self._sources), totals(self._sources)
            for tracker in due:
                tracker.take(now, counted)
        except Exception:  # noqa: BLE001 - contained: the loop goes on
            self._guard.failed(SITE)

    def dropped(self) -> Mapping[str, int]:
        """Return how many rows were dropped."""
        waiting = sum(tracker.dropped for tracker in self._trackers)
        return {"tracker": self._dropped + waiting}

    def send(self) -> None:
        """Have the findings written, once, and take no more rows."""
        atexit.unregister(self._exit)
        if self._trackers and self._loops.on_step is not None:
            # The same for all of them.
            findings = "the findings are not available"
            with self._guard.contained(SITE, stays_on=True):  # the rows are written
                findings = self._trackers[0].findings()
            for tracker in self._trackers:
                tracker.finish(findings)
        self._loops.on_step = None

    def stop(self) -> None:
        """Wait until all is written, within the deadline."""
        while self._trackers:
            # After an interruption, the next call waits for the others.
            tracker, *self._trackers = self._trackers
            # The others are to be closed.
            with self._guard.contained(SITE, stays_on=True):
                tracker.close()
            self._dropped += tracker.dropped

    def _exit(self) -> None:
        deadline = self._guard.deadline
        self._guard.last(deadline.begin, self.send, self.stop, deadline.pause)

    def abandon(self) -> None:
        """Leave the trackers to the parent process."""
        if self._trackers:
            atexit.unregister(self._exit)
        self._trackers = []
