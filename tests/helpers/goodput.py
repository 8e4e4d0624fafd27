"""
A run that is killed and restarted, a ledger of it that the supervisor keeps, and what
ml-goodput-measurement says of that ledger.

The ledger has the supervisor's clock at each start and end, and what the program wrote
into a file as it went along. Nothing in it comes from jaxmon.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from subprocess import DEVNULL
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from jaxmon.catalog import RUN_ACTIVITIES
from jaxmon.facts import run as record
from jaxmon.facts.run import RunRecord
from tests.helpers.preloaded import Program, run_preloaded, start_preloaded
from tests.helpers.processes import ROOT, clean_environ, free_port, until


PROGRAM = ROOT / "tests" / "programs" / "goodput.py"
RUN = "train"
_SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGTERM}
# By an exception, uncaught or handled by an exit; see the program.
_RAISES = {"crashed": 1, "exits": -1}
# The kernel counts the start of a process in hundredths of a second.
_TICK = 0.02


_NAMES = (
    *("step", "compile", "data_wait", "checkpoint", "startup", "recovery"),
    *("lost_progress", "waiting", "unknown"),
)


@dataclass(frozen=True)
class Fault:
    """How an attempt ends, and in which step: `RunRecord` calls it the same."""

    ending: str
    step: int


@dataclass
class Attempt:
    """
    Attributes:
        began: by the supervisor's clock.
        ended: when it was killed or, by its own account, left.
        recorded: up to when the record had it after that.
        events: what the program wrote.
    """

    began: float
    ended: float = 0.0
    recorded: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)

    def as_recorded(self) -> Attempt:
        """Return it as if it had ended when the record was last written."""
        seen = [event for event in self.events if event["at"] <= self.recorded]
        return replace(self, ended=self.recorded, events=seen)


@dataclass
class Ledger:
    """
    What a run took; seconds by the names that `RunRecord` has for them.

    Attributes:
        traced: seconds of tracing and lowering, which may count as a step if the
            record was written meanwhile.
        repeated: by how much the steps that were done again, finished, differ between
            the first time and the last.
        tolerance: seconds of the run that the record cannot have: from its last write
            before each end on, and of each attempt, a step that is split.
    """

    seconds: dict[str, float]
    lost_steps: int
    resume_seconds: float
    traced: float
    repeated: float
    tolerance: float

    def allowed(self, activity: str) -> float:
        """Return by how much the record's seconds of *activity* may differ."""
        return self.tolerance + self.traced * (activity in {"step", "compile"})


class Supervised:
    """
    A run of so many *steps* in *directory*, in *count* processes.

    Attributes:
        steps: as given.
        attempts: so far.
    """

    def __init__(
        self, directory: Path, steps: int, *, count: int = 1, library: str = "numpy"
    ) -> None:
        self._directory = directory
        self.steps, self._count, self._library = steps, count, library
        self.attempts: list[Attempt] = []
        # What it forks from imports JAX first.
        run_preloaded("-c", "").ok()

    @property
    def path(self) -> Path:
        return record.path_of(self._directory / "state", RUN)

    def record(self) -> RunRecord:
        return record.read(self.path)

    def attempt(self, fault: Fault | None, *, pause: float = 0.0) -> None:
        """Run it until *fault*, or until all steps are done, after *pause* seconds."""
        time.sleep(pause)
        begins = len(self._truth())
        attempt = Attempt(clock())
        raises_at = _RAISES.get(fault.ending, 0) * fault.step if fault else 0
        programs = self._start(raises_at)
        try:
            if fault and fault.ending in _SIGNALS:
                until(lambda: self._reached(begins, fault.step), "that step")
                programs[0].send_signal(_SIGNALS[fault.ending])
                if fault.ending == "killed":
                    attempt.ended = clock()
            programs[0].wait(240)
        finally:
            attempt.ended = attempt.ended or clock()
            for one in programs:
                one.kill()
                one.wait()
        attempt.events = self._truth()[begins:]
        if attempt.events[-1]["what"] in {"leaves", "end"}:
            attempt.ended = attempt.events[-1]["at"]
        attempt.recorded = self.record().boottime
        self.attempts.append(attempt)

    def _start(self, raises_at: int) -> list[Program]:
        address = f"127.0.0.1:{free_port()}"
        found = []
        for rank in range(self._count):
            arguments = (self._directory, self.steps, rank, self._count)
            found.append(
                start_preloaded(
                    *map(str, (PROGRAM, *arguments, address, self._library, raises_at)),
                    environ=clean_environ(),
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=self._log(),
                )
            )
        return found

    def _log(self) -> int:
        path = self._directory / "log"
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def _reached(self, begins: int, step: int) -> bool:
        return any(one.get("number", 0) >= step for one in self._truth()[begins:])

    def _truth(self) -> list[dict[str, Any]]:
        try:
            text = (self._directory / "truth").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def noted(self, what: str) -> int:
        """Return how often the program noted *what*."""
        return sum(one["what"] == what for one in self._truth())

    def page(self) -> dict[str, float]:
        """Return what the last process exported in the end."""
        found: dict[str, float] = json.loads((self._directory / "page").read_text())
        return found

    def ledger(self, *, as_recorded: bool = False) -> Ledger:
        """
        Return what the run took; *as_recorded*, if each attempt had ended when the
        record was last written.
        """
        if as_recorded:
            return ledger([one.as_recorded() for one in self.attempts])
        return ledger(self.attempts)


def clock() -> float:
    """Return the time by the clock that cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def ledger(attempts: Sequence[Attempt]) -> Ledger:
    """Return what *attempts* took, the last of which finished the run."""
    found = Ledger(dict.fromkeys(_NAMES, 0.0), 0, 0.0, 0.0, 0.0, 0.0)
    furthest, latest, longest = 0, 0, 0.0
    times: dict[int, list[float]] = {}
    interrupted: float | None = None
    for index, one in enumerate(attempts):
        steps = _steps(one, attempts[index + 1 :])
        if index:
            found.seconds["waiting"] += one.began - attempts[index - 1].ended
        if not steps:
            found.seconds["recovery" if index else "startup"] += one.ended - one.began
            continue
        if index:
            restored = steps[0].number - 1
            found.lost_steps += max(latest - restored, 0)
            latest = restored
        found.seconds["recovery" if index else "startup"] += steps[0].begin - one.began
        for step in steps:
            again = step.number <= furthest or not step.lasts
            inside = _inside(one.events, step.begin, step.end)
            waited = inside.pop("data", 0.0)
            work = step.end - step.begin - waited - sum(inside.values())
            found.seconds["lost_progress" if again else "step"] += work
            found.seconds["lost_progress" if again else "data_wait"] += waited
            for name, spent in inside.items():
                found.seconds[name] += spent
            if step.finished:
                longest = max(longest, work + waited)
                times.setdefault(step.number, []).append(work + waited)
                latest, furthest = step.number, max(furthest, step.number)
                if interrupted is not None:
                    found.resume_seconds += step.end - interrupted
                    interrupted = None
        # After the last step of the run.
        found.seconds["unknown"] += one.ended - steps[-1].end
        interrupted = one.ended if interrupted is None else interrupted
    found.repeated = sum(abs(one[-1] - one[0]) for one in times.values())
    unrecorded = sum(abs(one.ended - one.recorded) for one in attempts)
    found.traced = sum(
        event["seconds"]
        for one in attempts
        for event in one.events
        if event.get("traced")
    )
    found.tolerance = unrecorded + len(attempts) * (longest + _TICK)
    return found


class _Step(NamedTuple):
    """
    One step of an attempt.

    Attributes:
        finished: whether the next one was asked for.
        lasts: whether the next attempt continued after it, or it was finished.
    """

    number: int
    begin: float
    end: float
    finished: bool
    lasts: bool


def _steps(attempt: Attempt, later: Sequence[Attempt]) -> list[_Step]:
    asked = _asked(attempt)
    ends = [*[event["at"] for event in asked[1:]], attempt.ended]
    numbers = [event["number"] for one in later for event in _asked(one)]
    after = next(iter(numbers), 0)
    steps = [
        _Step(
            event["number"],
            event["at"],
            end,
            event is not asked[-1],
            event is not asked[-1] or event["number"] < after,
        )
        for event, end in zip(asked, ends, strict=False)
    ]
    return steps if later else steps[:-1]


def _asked(attempt: Attempt) -> list[dict[str, Any]]:
    return [event for event in attempt.events if event["what"] == "step"]


def _inside(events: list[dict[str, Any]], begin: float, end: float) -> dict[str, float]:
    """Return the seconds of what the program did between *begin* and *end*."""
    found: dict[str, float] = {}
    opened: dict[str, float] = {}
    for event in events:
        name, _, moment = event["what"].partition(" ")
        if begin <= event["at"] <= end and moment:
            if moment == "begins":
                opened[name] = event["at"]
            elif name in opened:
                found[name] = found.get(name, 0.0) + event["at"] - opened.pop(name)
        elif begin <= event["at"] <= end and "seconds" in event:
            found[name] = found.get(name, 0.0) + event["seconds"]
    for name, at in opened.items():  # it was killed meanwhile
        found[name] = found.get(name, 0.0) + end - at
    return found


_NOT_INSTALLED = ("google", "tensorboardX")
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Anything(type):
    """A class whose attributes are all classes."""

    @staticmethod
    def of(name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (Exception,), {})

    def __getattr__(cls, name: str) -> Anything:
        return cls.of(name)


class Missing(MetaPathFinder, Loader):
    """Finds an empty module for each one that it imports and that is not installed."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name.partition(".")[0] in _NOT_INSTALLED:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        found = ModuleType(spec.name)
        found.__getattr__ = Anything.of  # type: ignore[method-assign]
        return found

    def exec_module(self, _: ModuleType) -> None:
        """Nothing is in it."""


class ListLogger:
    """Stands for the connection to Cloud Logging."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        """Keep *entry*."""
        self.entries.append(entry)

    def read_cloud_logging_entries(self, *_: Any, **__: Any) -> tuple[Any, Any]:
        return list(self.entries), (_EPOCH, "last")

    def flush(self) -> None:
        """Nothing is in flight."""


def as_theirs(record: RunRecord) -> dict[str, float]:
    """Return the same of *record*."""
    seconds = {name: record.seconds.get(name, 0.0) for name in RUN_ACTIVITIES}
    return {
        "total": record.wall,
        "productive": sum(seconds[one] for one in ("step", "data_wait", "checkpoint")),
        "startup": seconds["compile"],
        "lost": seconds["lost_progress"] + seconds["waiting"],
        "other": seconds["startup"] + seconds["recovery"],
        "interruptions": record.interrupted,
    }


def figures(
    run: Supervised, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    """Return what it says of *run*, in seconds; *directory* is for its files."""
    known = set(sys.modules)
    try:
        return _figures(run, directory, monkeypatch)
    finally:
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in {*_NOT_INSTALLED, "ml_goodput_measurement"}:
                del sys.modules[name]


def _figures(
    run: Supervised, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Missing()])
    goodput = pytest.importorskip(
        "ml_goodput_measurement.src.goodput",
        reason="needs `pip install --no-deps ml-goodput-measurement`",
    )
    logger = ListLogger()
    recorder = goodput.GoodputRecorder(
        "run", "log", logging_enabled=True, cloud_logger=logger
    )
    for attempt in run.attempts:
        recorder.record_job_start_time(_time(attempt.began))
        for event in attempt.events:
            # The last is asked for when there are no more.
            if event["what"] == "step" and event["number"] <= run.steps:
                recorder.record_step_start_time(event["number"], _time(event["at"]))
    recorder.record_job_end_time(_time(run.attempts[-1].ended))
    calculator = goodput.GoodputCalculator(
        "run", "log", logger, cache_dir=str(directory)
    )
    percent, badput, _ = calculator.get_job_goodput(include_badput_breakdown=True)
    total = run.attempts[-1].ended - run.attempts[0].began
    parts = {kind.name: part for kind, part in badput.items()}
    seconds = {
        name: part * total / 100 for name, part in parts.items() if _is_number(part)
    }
    return {
        "total": total,
        "productive": percent * total / 100,
        "startup": seconds["PROGRAM_STARTUP"],
        "lost": seconds["WASTED_PROGRESS_FROM_DISRUPTION"]
        + seconds["INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"],
        "other": seconds["OTHER"],
        "interruptions": calculator._number_of_interruptions,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _time(boottime: float) -> datetime:
    return _EPOCH + timedelta(seconds=boottime)
