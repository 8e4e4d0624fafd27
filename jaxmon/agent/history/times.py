"""
The times of programs and loops in this run: what is usual, and what they are now.

They are slower only if most of the recent times are above nearly all of those before,
by a margin: so a few slow runs, or a function with two modes that were both seen
before, are no slowdown. The first times, of a program that warms up, do not count; if
it later becomes faster than what was usual, that is usual from then on.

What they took in earlier runs is in a file of the run directory, one per command of a
user, which keeps one run of each version (JAX, flags, driver, commit), the latest
first, so that a slow version does not displace what the one before took. Processes of
one version share an entry, and each replaces the whole file.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path
from typing import Any, NamedTuple

from jaxmon.agent.functions import Function
from jaxmon.agent.versions import start_of
from jaxmon.errors import ConfigFileError
from jaxmon.facts.functions import Spread, spread_of
from jaxmon.host.files import bounded, whole
from jaxmon.host.formats import json_text
from jaxmon.host.resources.process import Scheduling, scheduling
from jaxmon.indicators.loops import StepLoop


SCHEMA = 1
DIRECTORY = "history"

_MOST_BYTES = 1 << 20
_MOST_FILES = 64
_MOST_RUNS = 8
_MOST_PROGRAMS = 200
_DIGITS = 5
# What an invalid file raises.
_INVALID = (
    *(AttributeError, ConfigFileError, LookupError, OverflowError, TypeError),
    ValueError,
)

# Of a checkout.
_DEEPEST = 16
_COMMIT_DIGITS = 12


class ProgramTimes(NamedTuple):
    """Quantiles of the seconds that a program took in a run, and what HLO it had."""

    seconds: Spread
    fingerprint: str | None = None


class PastRun(NamedTuple):
    """
    A run, *written* last at that Unix time. *versions* are what its speed depends on;
    see `jaxmon.agent.versions`. Its threads waited for processors for a fraction of the
    time; programs are by function and shapes of the arguments.
    """

    written: float
    versions: Mapping[str, str]
    waiting: float | None
    programs: Mapping[tuple[str, str], ProgramTimes]


def path_of(directory: Path, command: Sequence[str]) -> Path:
    """Return the file for *command* of this user in the run directory *directory*."""
    words = "\0".join((str(os.getuid()), *command))
    digest = blake2s(words.encode("utf-8", "backslashreplace"), digest_size=8)
    return directory / DIRECTORY / f"{digest.hexdigest()}.json"


def read(path: Path) -> list[PastRun]:
    """Return the runs in the file *path*, the latest first; none if it is unusable."""
    with suppress(json_text.NewerSchemaError):
        return _runs(path)
    return []


def _runs(path: Path) -> list[PastRun]:
    """Return the runs as `read`, or raise a `NewerSchemaError`."""
    try:
        document = json_text.parse(bounded.read(path, most=_MOST_BYTES))
        json_text.require_schema(document, SCHEMA)
        return [_run(entry) for entry in document["runs"]]
    except json_text.NewerSchemaError:
        raise
    except _INVALID:
        return []


def add(path: Path, run: PastRun) -> None:
    """
    Add *run* to the file *path*: to the entry of its version, if there is one.

    Raises:
        OSError: it cannot be written, or a later release has.
    """
    try:
        runs = _runs(path)
    except json_text.NewerSchemaError as error:
        raise OSError(errno.EEXIST, str(error), str(path)) from error
    same = [other for other in runs if other.versions == run.versions]
    programs = dict(run.programs)
    for other in same:
        programs = {**other.programs, **programs}
    newest = list(programs.items())[-_MOST_PROGRAMS:]
    others = [other for other in runs if other.versions != run.versions]
    kept = [run._replace(programs=dict(newest)), *others][:_MOST_RUNS]
    document = {"schema": SCHEMA, "runs": [_as_json(entry) for entry in kept]}
    # Not its parents: a run directory that was removed is created for this user only.
    path.parent.mkdir(mode=0o700, exist_ok=True)
    directory = path.parent.lstat()
    if not stat.S_ISDIR(directory.st_mode) or directory.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "not a directory of this user's", str(path.parent))
    if not path.exists():
        _make_room(path.parent)
    whole.write(path, json.dumps(document).encode(), private=True, follow=False)


def _make_room(directory: Path) -> None:
    """Remove the oldest files beyond the limit."""
    found = []
    for path in directory.glob("*.json"):
        with suppress(OSError):  # removed by another process
            found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[_MOST_FILES - 1 :]:
        with suppress(OSError):
            path.unlink()


def _quantiles(times: ProgramTimes) -> tuple[float, float, float]:
    return times.seconds.low, times.seconds.middle, times.seconds.high


def _as_json(run: PastRun) -> dict[str, Any]:
    return {
        "written": round(run.written, 1),
        "versions": dict(run.versions),
        "waiting": run.waiting,
        "programs": [
            [name, shapes, times.fingerprint]
            + [float(f"{seconds:.{_DIGITS}g}") for seconds in _quantiles(times)]
            for (name, shapes), times in run.programs.items()
        ],
    }


def _run(found: Mapping[str, Any]) -> PastRun:
    waiting = found["waiting"]
    return PastRun(
        float(found["written"]),
        {str(key): str(value) for key, value in found["versions"].items()},
        None if waiting is None else float(waiting),
        {
            (str(name), str(shapes)): ProgramTimes(
                Spread(0, float(low), float(middle), float(high)),
                None if fingerprint is None else str(fingerprint),
            )
            for name, shapes, fingerprint, low, middle, high in found["programs"]
        },
    )


def commit_of(directory: Path) -> str:
    """
    Return the commit that is checked out in *directory* or a directory above it, empty
    if unknown. Uncommitted changes are not seen. Reads a few small files.
    """
    for place in (directory, *directory.parents)[:_DEEPEST]:
        git = place / ".git"
        if git.is_file():  # a worktree or a submodule
            git = place / _start_of(git).removeprefix("gitdir:").strip()
        if git.is_dir():
            return _head(git)
    return ""


def _head(git: Path) -> str:
    head = _start_of(git / "HEAD")
    if not head.startswith("ref:"):
        return _shortened(head)
    name = head.removeprefix("ref:").strip()
    common = git / (_start_of(git / "commondir") or ".")
    for found in (git, common):
        if commit := _shortened(_start_of(found / name)):
            return commit
    for line in _start_of(common / "packed-refs").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return _shortened(commit)
    return ""


def _shortened(commit: str) -> str:
    is_hex = commit and not commit.strip("0123456789abcdef")
    return commit[:_COMMIT_DIGITS] if is_hex else ""


def _start_of(path: Path) -> str:
    return start_of(path, _MOST_BYTES).strip()


ENOUGH = 24
"""Number of times that show what is usual, and as many that show what it is now."""

# Times of a program that is warming up.
_WARM_UP = 3
# Between two readings of how long threads waited for processors.
_SPACING_SECONDS = 1.0
_MOST = 1000


class Slowdown(NamedTuple):
    """
    A program or loop that is slower than before, *since* the Unix time of the first of
    the slow times; it had run so many *calls* by then.
    """

    settled: Spread
    recent: Spread
    since: float
    calls: float


class RecentTimes:
    """
    The times of one program or loop, since it *began*. One thread adds, another may
    judge: `slowdown` is how it is slower than what is usual, `settled` once known.
    """

    def __init__(self, now: float) -> None:
        self.began = now
        self.settled: Spread | None = None
        self.slowdown: Slowdown | None = None
        self._seen = 0
        self._first: list[float] = []
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=ENOUGH)

    def add(self, now: float, seconds: float, calls: float = 0.0) -> None:
        """Add a time, measured at Unix time *now* after so many *calls*; 1 µs."""
        self._seen += 1
        if self._seen <= _WARM_UP:
            return
        if self.settled is None:
            self._first.append(seconds)
            if len(self._first) >= ENOUGH:
                self.settled, self._first = spread_of(self._first), []
            return
        self._recent.append((now, seconds, calls))

    @property
    def recent(self) -> Spread | None:
        """What it is now, `None` until known."""
        recent = list(self._recent)
        if len(recent) < ENOUGH:
            return None
        return spread_of([seconds for _, seconds, _ in recent])

    def judge(self, margin: float) -> Slowdown | None:
        """Return whether it is slower by *margin*, until it is as fast again."""
        settled, recent = self.settled, self.recent
        if settled is None or recent is None:
            return None
        if settled.slower_than(recent, margin):
            self.settled = settled = recent
        slowdown = self.slowdown
        if recent.slower_than(settled, margin):
            if slowdown is None:
                slowdown = Slowdown(
                    settled, recent, *self._beginning(settled.limit(margin))
                )
            self.slowdown = slowdown._replace(settled=settled, recent=recent)
        elif slowdown is not None and recent.middle > settled.limit(margin):
            self.slowdown = slowdown._replace(recent=recent)
        else:
            self.slowdown = None
        return self.slowdown

    def _beginning(self, limit: float) -> tuple[float, float]:
        """Return when the slow times began, and after how many calls, if known."""
        found = (0.0, 0.0)
        for now, seconds, calls in reversed(self._recent):
            if seconds <= limit and found != (0.0, 0.0):
                break
            found = (now, calls)
        return found


class SlowerThanPast(NamedTuple):
    """A program that is slower than *then*, in an earlier *run*."""

    run: PastRun
    then: ProgramTimes
    changed: tuple[str, ...]


class Followed:
    """
    A program of a function, with the *shapes* of its arguments as text, or a loop.
    When it became slower, `beside` happened, and `crowded` says whether other processes
    held the processors; `past` is how it is slower than in an earlier run.
    """

    kind = ""

    def __init__(self, name: str, shapes: str, now: float) -> None:
        self.name = name
        self.shapes = shapes
        self.times = RecentTimes(now)
        self.beside: tuple[str, ...] = ()
        self.crowded = False
        self.past: SlowerThanPast | None = None

    @property
    def calls(self) -> float:
        """How often it has run, as far as that is known."""
        raise NotImplementedError


class TimedProgram(Followed):
    """
    A program of *function*. Its calls are those of the function, in the proportion of
    its samples, of *sampled* ones of all its programs, in one place. Samples were
    `added` up to that Unix time.
    """

    kind = "function"

    def __init__(
        self, function: Function, shapes: str, sampled: list[int], now: float
    ) -> None:
        super().__init__(function.name, shapes, now)
        self._function = function
        self.samples = 0
        self.added = 0.0
        self.sampled = sampled

    def add(self, now: float, seconds: float) -> None:
        """Add a sample."""
        self.added = now
        self.samples += 1
        self.sampled[0] += 1
        self.times.add(now, seconds, self.calls)

    @property
    def calls(self) -> float:
        """Calls of the function, as many as it has of the samples."""
        return self._function.objects.calls * self.samples / max(self.sampled[0], 1)


class LoopSteps(Followed):
    """Means of the steps of *loop* over intervals, and of their waits for data."""

    kind = "loop"

    def __init__(self, loop: StepLoop, now: float) -> None:
        super().__init__(loop.name, "", now)
        self.waits = RecentTimes(now)
        self._loop = loop
        self._seen = (loop.steps, loop.seconds.sum, loop.waited)

    def poll(self, now: float) -> None:
        """Add the mean of the steps since the last time, if there were any."""
        loop, (steps, seconds, waited) = self._loop, self._seen
        self._seen = (loop.steps, loop.seconds.sum, loop.waited)
        if (fresh := self._seen[0] - steps) > 0:
            self.times.add(now, max(self._seen[1] - seconds, 0.0) / fresh, steps)
            self.waits.add(now, max(self._seen[2] - waited, 0.0) / fresh)

    @property
    def calls(self) -> float:
        """Steps."""
        return self._loop.steps


class Waits:
    """Fractions of the time in which threads could run that they waited."""

    def __init__(self) -> None:
        self._found: deque[tuple[float, float | None]] = deque(maxlen=_MOST)
        self._latest: Scheduling | None = None

    def read(self, now: float) -> None:
        """Read how long they waited since, at most once a second: it costs 0.3 ms."""
        if self._found and now - self._found[-1][0] < _SPACING_SECONDS:
            return
        before, self._latest = self._latest, scheduling()
        if self._latest is not None and before is not None:
            self._found.append((now, self._latest.waiting(before)))

    def mean(self) -> float | None:
        """Return the mean, `None` if it is unknown."""
        return _mean([waited for _, waited in self._found])

    def around(self, moment: float) -> tuple[float | None, float | None]:
        """Return the means before and since the Unix time *moment*."""
        found = list(self._found)
        return (
            _mean([waited for time, waited in found if time < moment]),
            _mean([waited for time, waited in found if time >= moment]),
        )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
