"""
The record of a run: what all its attempts took together.

One small file of JSON, ``run-NAME.json``, on storage that survives the attempts.
Process 0 of each attempt reads it, adds to it and replaces it as a whole; see
`jaxmon.agent.goodput`. Nothing in it is trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2s
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from jaxmon.catalog import RUN_ACTIVITIES, RUN_ENDINGS
from jaxmon.errors import ConfigFileError, JaxmonError
from jaxmon.facts.reader import from_json
from jaxmon.facts.record import NOTHING, Fact, encoded
from jaxmon.host.files import bounded
from jaxmon.host.formats import json_text
from jaxmon.host.formats.layout import clean


SCHEMA = 1

STEP, DATA_WAIT, CHECKPOINT, WAITING = "step", "data_wait", "checkpoint", "waiting"
STARTUP, RECOVERY, LOST = "startup", "recovery", "lost_progress"
STOPPED, CRASHED, KILLED, UNSEEN = "stopped", "crashed", "killed", "unseen"

_MOST_BYTES = 64 << 10
_LONGEST = 100
_MOST = 1e15


class RunRecordError(JaxmonError):
    """The file is not the record of a run."""


class NewerRecordError(RunRecordError):
    """The record is of a later release."""


class RunRecord(Fact):
    """
    What is known of a run.

    Attributes:
        schema: of the file.
        run: its name.
        writer: the process that keeps the record; see `jaxmon.agent.goodput.writer`.
        host: where that runs.
        starts: attempts that kept the record, with this one.
        attempt: what the scheduler, or the user, calls the latest; `None` if unknown.
        began: Unix time at which the first of them began.
        time: Unix time up to which all is accounted for.
        boot: which start of the host's kernel *boottime* belongs to.
        boottime: the same moment, by the host's clock that cannot be set.
        ended: how the latest attempt ended, empty if it has not, or had no time to say.
        seconds: wall time by activity.
        interruptions: attempts that ended, by how.
        first: steps that were done before the first attempt.
        step: number of the latest step.
        furthest: highest number of a step so far.
        unfinished: seconds spent in the step in progress.
        owed: seconds of an unfinished step of an earlier attempt that are counted as
            progress, and not yet done again.
        marked: whether the run marks steps.
        by_epoch: whether it numbers the steps of each epoch from 0.
        saves: checkpoints that were saved.
        saved: a step that the latest of them contains at least.
        saved_before: the same of the one before; no restart should begin earlier.
        behind: steps before that at which the latest attempt began all the same.
        behind_in_all: the same of all attempts.
        lost_steps: steps that had to be done again.
        resumes: interruptions after which a step was done.
        resume_seconds: time from each of these interruptions to that step.
        down: seconds since the interruption after which no step was done yet; `None`
            if there is none.
        fruitless: attempts in a row without a new step.
    """

    schema: int = 0
    run: str = ""
    writer: str = ""
    host: str = ""
    starts: int = 0
    attempt: int | None = None
    began: float = 0.0
    time: float = 0.0
    boot: str = ""
    boottime: float = 0.0
    ended: str = ""
    seconds: Mapping[str, float] = NOTHING
    interruptions: Mapping[str, int] = NOTHING
    first: int = 0
    step: int = 0
    furthest: int = 0
    unfinished: float = 0.0
    owed: float = 0.0
    marked: bool = False
    by_epoch: bool = False
    saves: int = 0
    saved: int = 0
    saved_before: int = 0
    behind: int = 0
    behind_in_all: int = 0
    lost_steps: int = 0
    resumes: int = 0
    resume_seconds: float = 0.0
    down: float | None = None
    fruitless: int = 0

    @property
    def wall(self) -> float:
        """Seconds since the first attempt began."""
        return sum(self.seconds.values())

    @property
    def goodput(self) -> float | None:
        """
        Fraction of the wall time that went into steps that were not done again; `None`
        if the run marks no steps.
        """
        if not self.marked or not self.wall:
            return None
        return self.seconds.get(STEP, 0.0) / self.wall

    @property
    def interrupted(self) -> int:
        """Number of attempts that ended before the latest."""
        return sum(self.interruptions.values())

    @property
    def up(self) -> float:
        """Seconds in which an attempt ran."""
        return self.wall - self.seconds.get(WAITING, 0.0)

    @property
    def seconds_between(self) -> float | None:
        """Mean time between interruptions, without waiting for machines."""
        return self.up / self.interrupted if self.interrupted else None

    @property
    def seconds_to_resume(self) -> float | None:
        """Mean time from an interruption to the end of the next step."""
        return self.resume_seconds / self.resumes if self.resumes else None

    @property
    def steps(self) -> int:
        """Steps that were done, each counted once."""
        return max(self.furthest - self.first, 0)

    def as_json(self) -> bytes:
        """Return the content of its file."""
        return json.dumps(encoded(self.filled())).encode() + b"\n"


def path_of(directory: Path, run: str) -> Path:
    """Return the path of the record of *run*."""
    name = re.sub(r"[^\w.-]", "-", run, flags=re.ASCII)[:_LONGEST]
    if name != run:
        digest = blake2s(run.encode("utf-8", "backslashreplace"), digest_size=4)
        name = f"{name}-{digest.hexdigest()}"
    return directory / f"run-{name}.json"


def paths(path: Path) -> list[Path]:
    """Return *path*, or the records in it if it is a directory."""
    return sorted(path.glob("run-*.json")) if path.is_dir() else [path]


def read(path: Path) -> RunRecord:
    """
    Return the record in the file *path*. Raises `ConfigFileError`: the file cannot be
    read; `RunRecordError`: it has no record that this release can read.
    """
    try:
        return from_document(json_text.parse(bounded.read(path, most=_MOST_BYTES)))
    except ValueError as error:
        if isinstance(error, ConfigFileError):
            raise
        msg = f"is not the record of a run: {error}"
        raise RunRecordError(msg) from error


def from_document(document: Any) -> RunRecord:
    """
    Return the record that *document* is, without what is impossible. Raises
    `RunRecordError`: it is none.
    """
    found = from_json(RunRecord, document)
    if found.schema > SCHEMA:
        msg = f"is of a later release (schema {found.schema}); upgrade jaxmon"
        raise NewerRecordError(msg)
    record = plausible(found)
    if record is None:
        msg = "is not the record of a run"
        raise RunRecordError(msg)
    return record


def plausible(found: RunRecord) -> RunRecord | None:
    """Return *found* without what is impossible, `None` if it is no record."""
    is_record = found.run and found.writer and found.starts > 0 and found.time > 0
    if found.schema != SCHEMA or not is_record:
        return None
    numbers = {
        name: min(max(getattr(found, name), 0), type(getattr(found, name))(_MOST))
        for name in _NUMBERS
    }
    return found.replace(
        **{
            **numbers,
            "attempt": None if found.attempt is None else max(found.attempt, 0),
            "down": None if found.down is None else min(max(found.down, 0.0), _MOST),
            "furthest": max(numbers["furthest"], numbers["step"], numbers["first"]),
            "seconds": _positive(found.seconds, RUN_ACTIVITIES),
            "interruptions": _positive(found.interruptions, RUN_ENDINGS),
        }
    )


def latest(found: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the latest record of each run, of those that attempts of it left."""
    runs: dict[tuple[str, float], RunRecord] = {}
    for record in found:
        other = runs.setdefault((record.run, record.began), record)
        if (record.starts, record.time) > (other.starts, other.time):
            runs[record.run, record.began] = record
    return list(runs.values())


def name(text: str) -> str:
    """Return *text* as the name of a run: printable, and not too long."""
    return clean(text)[:_LONGEST]


_NUMBERS = [
    field
    for field in RunRecord.fields
    if type(getattr(RunRecord, field)) in (int, float)
]


def _positive(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: min(value, type(value)(_MOST))
        for name in names
        if (value := found.get(name, 0)) > 0
    }


FEWEST_FAILURES = 2
"""Of fewer, the mean time between them says little."""

OUTSIDE = (CHECKPOINT, STARTUP, RECOVERY, WAITING)
"""Activities in which nothing is done that could be lost."""


class Saving(NamedTuple):
    """
    The saves of a run.

    Attributes:
        seconds: for which each held up the loop, on average.
        every: seconds from one to the next.
        best: what *every* would have to be to lose least, `None` if unknown.
        least: the fraction of the time that is lost then.
        steps: that are done in *best*.
    """

    seconds: float
    every: float
    best: float | None = None
    least: float = 0.0
    steps: int = 0


def failures(record: RunRecord) -> int:
    """Return how many attempts ended without a chance to save."""
    return record.interrupted - record.interruptions.get(STOPPED, 0)


def seconds_of_a_step(record: RunRecord) -> float:
    """Return how long a new step takes, its wait for data included; 0 if unknown."""
    spent = record.seconds.get(STEP, 0.0) + record.seconds.get(DATA_WAIT, 0.0)
    return spent / record.steps if record.steps else 0.0


def saving(record: RunRecord) -> Saving | None:
    """
    Return how *record* says the run saves, `None` if it is not known to save.

    Saves cost time, and so do steps since the latest save if the run fails. With
    failures at a constant rate, the sum is least if the time between saves is the root
    of twice the time of a save times the mean time between failures: J. W. Young, *A
    first order approximation to the optimum checkpoint interval*, Communications of the
    ACM 17(9), 1974. J. T. Daly, *A higher order estimate of the optimum checkpoint
    interval for restart dumps*, Future Generation Computer Systems 22(3), 2006, refines
    it for saves that are not much shorter than that.
    """
    if not record.saves:
        return None
    spent = record.seconds
    seconds = spent.get(CHECKPOINT, 0.0) / record.saves
    looping = sum(s for name, s in spent.items() if name not in OUTSIDE)
    found = Saving(seconds, looping / record.saves)
    failed = failures(record)
    if failed < FEWEST_FAILURES or not seconds:
        return found
    between = record.up / failed
    best = sqrt(2 * seconds * between)
    if best >= between:
        return found  # the formula does not hold
    step = seconds_of_a_step(record)
    steps = best / step if step else 0.0
    whole_steps = round(steps) if isfinite(steps) else 0
    return found._replace(best=best, least=best / between, steps=whole_steps)
