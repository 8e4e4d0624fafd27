"""
Threads as the kernel sees them: processor time, and whether they run. Linux only.

And what stops them all: collections of garbage.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import repeat
from types import CodeType
from typing import Any, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.jaxlink.activity import COMPILE, STARTUP
from jaxmon.agent.jaxlink.source_lines import UNKNOWN, SourceLine, SourceLineFinder
from jaxmon.clocks import perf_counter
from jaxmon.facts.walltime import FailedHelper
from jaxmon.host.files.descriptor import Descriptor, DescriptorLostError
from jaxmon.host.resources.process import read_short
from jaxmon.threads import get_ident, is_ours, main_ident


_MOST = 64
MOST_THREADS = 8
"""Threads that a look reads."""
# Between two readings for `Starvation`.
_EVERY_SECONDS = 5.0
# A timer that fires so late did not wait for a busy processor only.
_LATE = 0.02
# Kernel: proc_pid_stat(5), counted from the state.
_USER_TICKS = 11
# The unit of these, per second: Linux has no other.
_TICKS = 100
# Share of a processor that what is asleep may use: a wait for a lock of JAX wakes up a
# few times a second, only to wait again.
_WAKES_UP = 0.004
_OF_POOL, _MOST_FAILED = "PoolWorker-", 5
_NAMED = re.compile(r"(?:Fork|ForkServer|Spawn)?(?:Process|PoolWorker)-(?:\d+:)*(\d+)")
_LINUX = sys.platform == "linux"
# Kernel: include/linux/posix-timers.h, the clock of a thread's processor time.
_CPU_CLOCK_OF_THREAD = 6
_THREAD = getattr(resource, "RUSAGE_THREAD", None)
_clock_gettime = getattr(time, "clock_gettime", None)


def times_slept() -> int:
    """Return how often this thread has given up its processor to wait."""
    return 0 if _THREAD is None else resource.getrusage(_THREAD).ru_nvcsw


def seconds_held(late: float, pause: float, waits: int) -> float:
    """
    Return for how many seconds nothing let this process run, if its timer was *late*
    after a *pause*, and it has waited for the interpreter so many times since: it was
    stopped, or without a processor. 0 if that is short, or unknown.
    """
    found = late - waits * sys.getswitchinterval()
    if found <= _LATE or waits < 0:
        return 0.0
    # On average it began half a pause before the timer was due.
    return found + min(found, pause / 2)


def program_threads() -> list[int]:
    """Return the threads of the program, without ours, at most 64."""
    # Without its lock, which the program may hold.
    active = threading._active.copy()  # type: ignore[attr-defined] # noqa: SLF001
    return [ident for ident in active if not is_ours(ident)][:_MOST]


def other_threads(thread: int, idents: Collection[int]) -> list[int]:
    """Return threads of the program that are among *idents*, other than *thread*."""
    every = [ident for ident in program_threads() if ident in idents]
    return [ident for ident in every if ident != thread][-MOST_THREADS:]


def is_still(ident: int, number: int) -> bool:
    """Return whether thread *ident* has that *number* in the kernel, if it is known."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined] # noqa: SLF001
    return getattr(thread, "native_id", None) in {None, number}


def started_by_others(idents: Collection[int]) -> list[int]:
    """Return threads of *idents* that Python has not started."""
    active = threading._active.copy()  # type: ignore[attr-defined] # noqa: SLF001
    unknown = (threading._DummyThread, type(None))  # noqa: SLF001
    found = [ident for ident in idents if isinstance(active.get(ident), unknown)]
    return [ident for ident in found if not is_ours(ident)][:MOST_THREADS]


class Task:
    """One thread, by its *number* in the kernel."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._clock = (~number << 3) | _CPU_CLOCK_OF_THREAD
        self._used = self._now()
        self._state = Descriptor()

    def cpu(self) -> float:
        """Return the processor seconds used since the last time; a microsecond."""
        before, self._used = self._used, self._now()
        return max(self._used - before, 0.0)

    def runs(self) -> bool:
        """
        Return whether it is running, or ready to.

        A thread that waits for the interpreter does not run. One that runs uses its
        processor since `cpu`: to read its state, this thread gives up the interpreter,
        twice, and would wait for it again.
        """
        if self.computes():
            return True
        try:
            # "123 (name) R ...": the name may contain anything.
            read = os.pread(self._opened(), 512, 0)
        except OSError as error:  # it has ended
            interrupts.pass_on(error)
            return False
        return read[read.rfind(b")") + 2 :][:1] == b"R"

    def _opened(self) -> int:
        with suppress(DescriptorLostError):
            return self._state.fileno()
        self._state.close()
        self._state.open(f"/proc/self/task/{self.number}/stat", os.O_RDONLY)
        return self._state.fileno()

    def computes(self) -> bool:
        """Return whether it has used its processor since the last call of `cpu`."""
        return self._now() > self._used

    def waited(self) -> float | None:
        """Return seconds ready without a processor so far; `None` if unknown."""
        with interrupts.expected(OSError, ValueError, IndexError):
            # Nanoseconds that it ran, and that it waited.
            read = read_short(f"/proc/self/task/{self.number}/schedstat")
            return int(read.split()[1]) / 1e9
        return None

    def close(self) -> None:
        """Close its file."""
        self._state.close()

    def _now(self) -> float:
        try:
            return 0.0 if _clock_gettime is None else float(_clock_gettime(self._clock))
        except OSError as error:  # it has ended
            interrupts.pass_on(error)
            return 0.0


class Tasks:
    """Threads of this process by Python's number, at most 64 at a time."""

    def __init__(self) -> None:
        self._by_ident: dict[int, Task] = {}
        self._main = main_ident()

    def get(self, ident: int) -> Task | None:
        """Return the thread *ident*, `None` if the kernel's number is unknown."""
        if not _LINUX:
            return None
        # Without its lock, which the program may hold.
        thread = threading._active.get(ident)  # type: ignore[attr-defined] # noqa: SLF001
        number = getattr(thread, "native_id", None)  # eventlet's have none
        if ident == self._main:
            number = os.getpid()  # in a forked child Python has the parent's
        found = self._by_ident.get(ident)
        if found is not None and found.number == number:
            return found
        if found is not None:
            self._by_ident.pop(ident).close()
        if number is None:
            return None
        if len(self._by_ident) >= _MOST:
            self.close()
        made = self._by_ident[ident] = Task(number)
        return made

    def used(self) -> dict[int, float]:
        """Return seconds of the program's threads since the last call; 1 µs each."""
        found = {ident: self.get(ident) for ident in program_threads()}
        return {ident: task.cpu() for ident, task in found.items() if task is not None}

    def close(self) -> None:
        """Close all files."""
        for task in self._by_ident.values():
            task.close()
        self._by_ident.clear()


def _children() -> list[Any]:
    module = sys.modules.get("multiprocessing.process")
    return list(getattr(module, "_children", ()))[:_MOST]


def time_of_workers() -> dict[int, int]:
    """Return ticks that processes of multiprocessing used, by number; 20 µs each."""
    found = {}
    for child in _children():
        try:
            number = int(child.pid)
            read = read_short(f"/proc/{number}/stat")
            # "123 (name) R ...": the name may contain anything.
            used = read[read.rfind(b")") + 2 :].split()[_USER_TICKS:][:2]
            found[number] = sum(map(int, used))
        except Exception as error:  # noqa: BLE001 - of another release, or gone
            interrupts.pass_on(error)
    return found


class WorkerProcesses:
    """
    Follows whether the processes of multiprocessing do anything, how many have been
    *started*, and were there *at_once*, and which workers of a `Pool` fail: that waits
    for them, starts others, and mentions it nowhere. Those are asleep that rest for
    *every* so many seconds, of which *read* returns what each has used so far, in ticks
    of the kernel.
    """

    def __init__(
        self, every: float, read: Callable[[], Mapping[int, int]] = time_of_workers
    ) -> None:
        self._every = every
        self._read = read
        self._most = _WAKES_UP * _TICKS * every
        self._used: Mapping[int, int] = {}
        self._worked_at = self.read_at = 0.0
        self._pooled: list[tuple[str, Any]] = []
        self.started = self.at_once = 0
        self._failed: deque[tuple[float, FailedHelper]] = deque(maxlen=_MOST_FAILED)

    def look(self, now: float) -> None:
        """
        Note how many processes there are and have been, and which workers of a `Pool`
        have failed since the last look; 1 µs each.
        """
        before, children = self._pooled, _children()
        # Each name that is not given ends with how many processes there have been.
        names = (_NAMED.fullmatch(str(child.name)) for child in children)
        self.started = max((self.started, *[int(of[1]) for of in names if of]))
        module = sys.modules.get("multiprocessing.process")
        self.at_once = max(self.at_once, len(getattr(module, "_children", ())))
        # Not the process, which refers to what the program gave it.
        self._pooled = [
            (str(child.name), getattr(child, "_popen", None))
            for child in children
            if _OF_POOL in str(child.name)
        ]
        for name, ended in before:
            code = getattr(ended, "returncode", None)
            # A pool ends its workers by SIGTERM.
            if code and code != -signal.SIGTERM and (name, ended) not in self._pooled:
                failed = FailedHelper("process", name, pid=ended.pid, code=code)
                self._failed.append((now, failed.replace(pooled=True)))

    def failed(self, now: float, since: float) -> tuple[FailedHelper, ...]:
        """Return the workers of a `Pool` that have failed *since*, the latest first."""
        latest = since - self._every  # a death may have interrupted what goes on since
        failed = [item for item in self._failed.copy() if item[0] >= latest]
        return tuple([of.replace(age_seconds=now - at) for at, of in reversed(failed)])

    def worked(self, now: float) -> bool:
        """Read what they have used; return whether they have worked since then."""
        used = self._read()
        works = self._works(used)
        self._used, self.read_at = used, now
        if works:
            self._worked_at = now
        return works

    def asleep(self, now: float) -> int:
        """Return how many there are, if all have been asleep for a while."""
        used = self._read()
        rests = now - self._worked_at >= self._every and not self._works(used)
        return len(used) if rests else 0

    def close(self) -> None:
        """Release what it has of the program's."""
        self._pooled = []

    def _works(self, used: Mapping[int, int]) -> bool:
        return used.keys() != self._used.keys() or any(
            [ticks - self._used[number] > self._most for number, ticks in used.items()]
        )


# Of the processor time that threads of the program have used.
_MOST_OF_IT = 0.5
AWAKE = 5e-5
"""Seconds of processor time: what waits for something else uses less."""


def holder(used: Mapping[int, float]) -> int | None:
    """
    Return the thread that had the interpreter for most of a moment, `None` if none had.

    Only a thread that has the interpreter runs Python, so the one that used most
    processor time in a moment at which the interpreter was taken had it. Threads that
    Python does not know, such as those of XLA, need none.
    """
    most = max(used, key=used.__getitem__, default=None)
    return most if most and used[most] > _MOST_OF_IT * sum(used.values()) else None


class Starvation:
    """Follows how much of its time a thread waits for a processor; 20 µs every 5 s."""

    def __init__(self) -> None:
        self.ratio: float | None = None
        self.seconds = 0.0
        self._number = 0
        self._read = 0.0
        self._waited: float | None = None

    def check(self, task: Task | None, now: float) -> None:
        """Read the times of *task*, if that is due at *now*, by a monotonic clock."""
        number = 0 if task is None else task.number
        passed = now - self._read
        if number == self._number and passed < _EVERY_SECONDS:
            return
        waited = None if task is None else task.waited()
        before = self._waited if number == self._number else None
        if waited is not None and before is not None:
            fresh = min(max(waited - before, 0.0), passed)
            self.ratio = fresh / passed
            self.seconds += fresh
        else:
            self.ratio = None
        self._number, self._read, self._waited = number, now, waited


_MOST_RECORDS = 20_000

_Place: TypeAlias = tuple[CodeType | None, int | None]
# Of the collector: its phase, when, on which thread, and in which code and line.
_Record: TypeAlias = tuple[str, float, int, _Place]


class GarbageCollections:
    """
    Measures the collections of garbage on *threads* of the program that call JAX, and
    on the main one.

    A collection has the interpreter until it ends, so looks do not find it. Python
    drops what is raised in a callback of the collector, such as an exception by which
    the program's signal handler ends a wait. So nothing in ours looks for signals: it
    gets the attribute ``start`` or ``stop`` of an object, each a property in C that
    appends a record. Costs 0.5 µs for each collection. Since Python 3.12 their lines
    are those of the looks that find them.
    """

    def __init__(self, finder: SourceLineFinder, threads: Collection[int]) -> None:
        self._finder = finder
        self._threads = threads
        self._main = main_ident()
        self._records: deque[_Record] = deque(maxlen=_MOST_RECORDS)
        # Python 3.12 crashes here, while it is traced, if it is asked for a frame.
        places = _callers() if sys.version_info < (3, 12) else repeat((None, None))
        next(places)
        phases = {
            name: property(self._recorder(name, places)) for name in ("start", "stop")
        }
        # Called as ``getattr(phases, "start", details)``.
        self._callback = partial(getattr, type("Phases", (), phases)())
        self._began: _Record | None = None
        self._owed: dict[SourceLine, float] = {}

    @property
    def measures(self) -> bool:
        """Whether Python reports collections; a program may have removed that."""
        return self._callback in gc.callbacks

    def begin(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._callback)

    def end(self) -> None:
        """Measure no more."""
        if self.measures:
            gc.callbacks.remove(self._callback)

    def take(
        self, most: float, moment: float, state: str
    ) -> tuple[Mapping[SourceLine, float], bool]:
        """
        Return the seconds of collections by line since the last time, at most so many,
        the rest next time; and whether one was going on at that *moment*, by the
        performance counter. Those of compiling and starting up are a part of that.
        """
        during = False
        for _ in range(len(self._records)):
            record = self._records.popleft()
            phase, now, thread, _ = record
            began, self._began = self._began, record if phase == "start" else None
            calls_jax = thread in {self._main, *self._threads}
            if phase == "start" or began is None or not calls_jax:
                continue
            during = during or began[1] <= moment <= now
            if state not in {COMPILE, STARTUP}:
                line = self._line_of(*began[3])
                self._owed[line] = self._owed.get(line, 0.0) + now - began[1]
        during = during or (self._began is not None and self._began[1] <= moment)
        taken: dict[SourceLine, float] = {}
        for line, seconds in self._owed.copy().items():
            taken[line] = min(seconds, most)
            most -= taken[line]
            self._owed[line] -= taken[line]
            if not self._owed[line]:
                del self._owed[line]
        return {line: seconds for line, seconds in taken.items() if seconds}, during

    def _recorder(
        self, phase: str, places: Iterator[_Place]
    ) -> Callable[[object], object]:
        """Return a function in C that appends a record of that *phase*."""
        records: Iterator[_Record] = zip(
            repeat(phase),
            iter(perf_counter, None),
            iter(get_ident, None),
            places,
            strict=False,
        )
        return partial(next, map(self._records.append, records))

    def _line_of(self, code: CodeType | None, line: int | None) -> SourceLine:
        if code is None or not self._finder.is_user(code.co_filename):
            return UNKNOWN
        return SourceLine(code.co_filename, line or 0, code.co_name)


def _callers() -> Iterator[_Place]:
    """
    Yield the code and line that advance this, from the second time on without a check
    for signals: ``yield from`` makes none (CPython: ``RESUME`` with 2 or 3).

    A frame of Python is needed here, if only to ask for the one before it: that skips
    a frame which Python has not completed yet, such as one that becomes a generator.
    `sys._getframe`, called from C, would show it, and Python 3.11 crashes later.
    """
    ours = repeat(sys._getframe())  # noqa: SLF001 - no public way

    def caller(attribute: str) -> Iterator[Any]:
        frames = map(getattr, ours, repeat("f_back"))
        return map(getattr, frames, repeat(attribute), repeat(None))

    yield from zip(caller("f_code"), caller("f_lineno"), strict=False)
