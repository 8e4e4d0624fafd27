"""
Looks at the program a few times a second.

A look needs the interpreter. If a thread of the program has it, the look waits until
that thread gives it up, and knows then that some thread was running Python at the
moment it was due.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

from jaxmon.agent.jaxlink import orbax, other_threads
from jaxmon.agent.jaxlink.activity import (
    COMPILE,
    DATA_WAIT,
    GC,
    GIL,
    IDLE,
    ITEM,
    JOIN,
    MAKE,
    PYTHON,
    STARTUP,
    ActivityReader,
    Doing,
)
from jaxmon.agent.jaxlink.call_sites import (
    DEVICE,
    EAGER,
    FETCH,
    NUMPY,
    TRANSFER,
    CallSites,
)
from jaxmon.agent.jaxlink.other_threads import Position, Stack
from jaxmon.agent.jaxlink.source_lines import UNKNOWN, SourceLine
from jaxmon.agent.walltime import tasks
from jaxmon.agent.walltime.ledger import BLOCKED, LookEntry, ThreadState, TimeLedger
from jaxmon.agent.walltime.tasks import Task, Tasks
from jaxmon.agent.walltime.time_by_call import LatestCalls, LineProgress
from jaxmon.clocks import perf_counter
from jaxmon.facts.walltime import IDLE_SECONDS
from jaxmon.host.sources import display_path
from jaxmon.indicators.marks import COMPILE as MARKED_COMPILE
from jaxmon.indicators.marks import DATA_WAIT as MARKED_DATA_WAIT
from jaxmon.indicators.marks import STEP, Marked
from jaxmon.indicators.recorder import OTHER
from jaxmon.indicators.routes import Routes
from jaxmon.indicators.timeline import Timeline
from jaxmon.threads import is_ours, main_ident


_MOST_STACKS = 500
_MOST_LINES = 100
_AT_ONCE = 50


def stacks(reader: ActivityReader) -> dict[str, Any]:
    """
    Return the stack of each thread of the program, innermost line first, what it does,
    in which line of the user's, and what it waits for: a lock, another thread, a
    barrier of all processes, a callback, or Orbax. Those of ours are left out.
    Takes 50 µs per thread.
    """
    by_ident = {thread.ident: thread for thread in threading.enumerate()}
    main, pid = main_ident(), os.getpid()
    threads: list[int] = []

    def choose(idents: Collection[int]) -> list[int]:
        threads[:] = [ident for ident in idents if not is_ours(ident)]
        return []

    other_threads.read_stacks(choose)
    found = [
        {
            "name": "" if (thread := by_ident.get(ident)) is None else thread.name,
            "ident": ident,
            # In a forked child, Python has the number of the parent for its main one.
            "native_id": pid if ident == main else getattr(thread, "native_id", None),
            "main": ident == main,
            "daemon": thread is not None and thread.daemon,
            "state": (doing := reader.read(stack)).state,
            "place": line_text(doing.line),
            "function": doing.function,
            "lock": other_threads.waits_for_lock(stack),
            "needs_threads": other_threads.needs_threads(stack),
            "barrier": other_threads.barrier(stack),
            "callback": other_threads.calls_back(stack),
            "activity": orbax.activity_of(stack),
            "stack": [
                f"{line_text(line)} in {line.function}"
                for line in reader.lines(stack)[:_MOST_LINES]
            ],
        }
        for few in range(0, min(len(threads), _MOST_STACKS), _AT_ONCE)
        for ident, stack in _read(threads[few : few + _AT_ONCE]).items()
    ]
    found.sort(key=lambda thread: not thread["main"])
    return {"threads": found, "left_out": max(len(threads) - _MOST_STACKS, 0)}


def _read(idents: list[int]) -> dict[int, Stack]:
    return other_threads.repeatedly(
        partial(other_threads.read_stacks, lambda _: idents)
    )


def line_text(line: SourceLine) -> str:
    """Return ``file.py:12``, empty if it is none."""
    return f"{display_path(line.file)}:{line.line}" if line.file else ""


# C code has had the interpreter for so long: a look finds the line that called it.
_HELD = 0.05
# A look that waited for the interpreter waited for this thread, if the thread has
# worked for this share of the delay.
_BUSY = 0.2
_RUNS = frozenset((PYTHON, STARTUP, EAGER, COMPILE, DATA_WAIT, GC, MAKE))
# Of a thread that needs the interpreter to go on.
_NEEDS_PYTHON = frozenset((PYTHON, STARTUP, EAGER, TRANSFER, DEVICE, BLOCKED))
# The program waits for the device, which may wait for a callback.
_FOR_DEVICE = frozenset((DEVICE, FETCH, TRANSFER))
# Functions of NumPy that wait for nothing but an array of JAX.
_CONVERTS = frozenset(("asarray", "array", "asanyarray", "ascontiguousarray"))
# Whose line may be called by that of the loop.
_CALLED = frozenset((PYTHON, BLOCKED, DATA_WAIT, COMPILE, EAGER))
_SEVERAL = 2
_MOST_PLACES = 10_000

# Of several threads, the one that says most about what the process is doing. If one
# waits for work, another that is blocked may be the one that makes it.
_ORDER = (
    *(JOIN, BLOCKED, IDLE, ITEM, PYTHON, STARTUP, EAGER, GC, TRANSFER, FETCH),
    *(DATA_WAIT, DEVICE, COMPILE),
)
_RANK = {state: rank for rank, state in enumerate(_ORDER)}
_NOT_ACTIVITIES = frozenset((STEP, MARKED_DATA_WAIT, MARKED_COMPILE, OTHER))


class _LookMemory(NamedTuple):
    thread: int
    doing: Doing
    cpu: float
    how: ThreadState
    works: bool


class Looks:
    """
    Looks at the program and enters what it finds into a *ledger*.

    Attributes:
        awake: when a thread of the program was last found to have done something, by
            the performance counter.
        fed: when something that may give work was last found to run, likewise.
        garbage: the time of its collections.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each of them is read at every look
        self,
        ledger: TimeLedger,
        reader: ActivityReader,
        sites: CallSites,
        timeline: Timeline,
        routes: Routes,
        calls: LatestCalls,
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._sites = sites
        self._timeline = timeline
        self._routes = routes
        self._tasks = Tasks()
        self._holders = Tasks()
        self._places: dict[SourceLine, str] = {}
        self._main = main_ident()
        self._looked = self.awake = self.fed = perf_counter()
        self.progress = LineProgress(calls)
        self.garbage = tasks.GarbageCollections(reader.finder, sites.threads)

    def look(self, due: float, late: float) -> None:
        """
        Look now, as was *due* by the performance counter. It is worth the time from
        when the look before was due; for *late* seconds it had to wait for the
        interpreter then, which another thread has had since `begin`.

        Raises:
            NotNowError: the stacks cannot be read now.
        """
        asked, contended = due, 0 < late <= _HELD
        if late > _HELD:
            due += late
        marked = self._timeline.innermost()
        found = self._find(marked, late)
        seen = max(found, key=_rank)
        if seen.doing.ours:  # such as the report at the exit
            self._looked = due
            return
        seen, found = self._awaited(seen, found, late)
        if contended:
            seen = self._held_up(seen)
        state, activity = seen.doing.state, ""
        if marked is not None and marked.thread == seen.thread:
            if marked.name == MARKED_DATA_WAIT and state != COMPILE:
                state = DATA_WAIT
            elif marked.name not in _NOT_ACTIVITIES:
                activity = marked.name
        if state == JOIN:
            state = BLOCKED if seen.doing.drives else IDLE
        trains = marked is not None and marked.loops
        if state == ITEM or (state == BLOCKED and seen.doing.parked and not activity):
            state = self._waiting(seen, late, state, trains=trains)
        work = seen.doing.work and not trains and state in {DATA_WAIT, BLOCKED}
        place, function = self._place(seen.doing.line), seen.doing.function
        holds_loop = state == BLOCKED and seen.doing.holds_loop
        loops = holds_loop or (seen.doing.event_loop and self._routes.any())
        caller = self._place(seen.doing.caller) if state in _CALLED else ""
        divided = state == DATA_WAIT and seen.doing.divides
        divided = divided or (state == BLOCKED and self._divides(seen, found))
        loop = "" if seen.doing.event_loop else self._place(seen.doing.loop)
        parts = activity, state, place, function, loops, caller, divided, loop
        entry = LookEntry(*parts, seen.doing.sleeps, seen.doing.once)
        spent = self._called_back(entry, late)
        if work or (seen.doing.state == ITEM and state == DATA_WAIT):
            spent = self._fed(entry, seen, due, late, work=work)
        how = seen.how if spent is entry else ThreadState.WAITING
        self._add(spent, how, asked, due)
        self.progress.seen(entry, seen.thread, due, cpu=seen.cpu, work=work)

    def _awaited(
        self, seen: _LookMemory, found: list[_LookMemory], late: float
    ) -> tuple[_LookMemory, list[_LookMemory]]:
        """Return what drives the device, if *seen* waits for it, and all that do."""
        parked = seen.doing.parked and not seen.doing.holds_loop
        if seen.doing.state == BLOCKED and parked:
            # A thread that only reads results calls nothing, and is not among *found*.
            others = self._read(partial(tasks.other_threads, seen.thread), late)
            reads = (o for o in others if o.doing.state == FETCH and o.doing.of_user)
            return next(reads, seen), found
        if seen.doing.state != JOIN:
            return seen, found
        others = self._read(partial(tasks.other_threads, seen.thread), late)
        driving = [other for other in others if other.doing.drives]
        seen = max(driving, key=_rank, default=seen)
        # It waits for threads that wait for work, as those of a server do.
        if seen.doing.state == JOIN and not all([other.works for other in others]):
            seen = seen._replace(doing=seen.doing._replace(state=IDLE))
        return seen, driving

    def _divides(self, seen: _LookMemory, found: list[_LookMemory]) -> bool:
        """
        Return whether *seen* waits for a pool of processes, or others of *found* wait
        there, too, and not for what it is about to give them: a lock, or an event. What
        serves requests waits for its own.
        """
        blocked = [other for other in found if other.doing.state == BLOCKED]
        there = [of for of in blocked if of.doing.line == seen.doing.line]
        few = len(there) < max(_SEVERAL, len(blocked))
        serving = self._routes.in_progress() if not few else ()
        if few or seen.doing.parked or seen.thread in {of.home for _, of in serving}:
            return seen.doing.divides
        stack = other_threads.read_stacks(lambda _: [seen.thread]).get(seen.thread, [])
        return bool(stack) and not other_threads.waits_for_lock(stack)

    def _add(
        self, entry: LookEntry, how: ThreadState, asked: float, due: float
    ) -> None:
        """
        Enter what was found, and the time of collections, which is measured.

        A collection has the interpreter. A look that is *asked* for during one finds
        the line after it, so only the next look is worth the rest of the time.
        """
        if entry.state == GC and self.garbage.measures:
            entry, how = entry._replace(state=PYTHON), ThreadState.RUNNING
        rest = max(due - self._looked, 0.0)
        collected, during = self.garbage.take(rest, asked, entry.state)
        for line, seconds in collected.items():
            place = entry.place if line == UNKNOWN else self._place(line)
            garbage = entry._replace(state=GC, place=place, function="", caller="")
            self._ledger.add(garbage, ThreadState.WAITING, seconds, int(during))
            rest -= seconds
        if not (during and collected):
            self._ledger.add(entry, how, rest)
            rest = 0.0
        self._looked = due - rest

    def loops(self) -> dict[str, str]:
        """Return by function the line of the only loop around a place that calls it."""
        found: dict[str, str] = {}
        for function, code, offset in self._sites.places():
            if line := self._reader.loop_at(code, offset):
                place = self._place(line)
                found[function] = place if found.get(function, place) == place else ""
        return found

    def called(self) -> dict[str, str]:
        """Return by function the line of the latest call of it that was seen."""
        found = {}
        for function, frames in self._sites.callers.copy().items():
            stack = [Position(code, offset, {}) for code, offset in frames]
            found[function] = self._place(self._reader.user_line(stack))
        return found

    def task(self, ident: int) -> Task | None:
        """Return the thread *ident* as the kernel sees it, `None` if unknown."""
        return self._tasks.get(ident)

    def begin(self) -> None:
        """Begin the pause before a look; a microsecond per thread."""
        if any([used > tasks.AWAKE for used in self._holders.used().values()]):
            self.awake = perf_counter()

    def close(self) -> None:
        """Release what is open."""
        self._tasks.close()
        self._holders.close()

    def _candidates(self, marked: Marked | None, idents: Collection[int]) -> list[int]:
        if marked is not None and marked.loops and marked.thread in idents:
            return [marked.thread]
        # Another thread, or one of ours, may have the identifier of one that has ended.
        calling = [
            ident
            for ident, number in self._sites.threads.copy().items()
            if ident in idents and not is_ours(ident) and tasks.is_still(ident, number)
        ]
        return calling[-tasks.MOST_THREADS :] or [self._main]

    def _find(self, marked: Marked | None, late: float) -> list[_LookMemory]:
        found = self._read(partial(self._candidates, marked), late)
        if all(of.doing.state == IDLE and of.thread != self._main for of in found):
            # It may run the event loop that gives them work.
            found = [*self._read(lambda _: [self._main], late), *found]
        idle = max(found, key=_rank).doing.state == IDLE
        return (self._in_requests(late) if idle else []) or found

    def _in_requests(self, late: float) -> list[_LookMemory]:
        """Return the threads of requests that have waited for a lock for a while."""
        latest = perf_counter() - IDLE_SECONDS
        oldest = self._routes.oldest().values()
        waits = other_threads.locked({of.home for of in oldest if of.started <= latest})
        found = [self._of_thread(ident, at, late) for ident, at in waits.items()]
        return [of._replace(doing=of.doing._replace(state=BLOCKED)) for of in found]

    def _read(
        self, choose: Callable[[Collection[int]], list[int]], late: float
    ) -> list[_LookMemory]:
        stacks = other_threads.read_stacks(choose)
        return [self._of_thread(ident, stack, late) for ident, stack in stacks.items()]

    def _held_up(self, seen: _LookMemory) -> _LookMemory:
        """
        Return *seen* as waiting, if another thread, which does not call JAX, had the
        interpreter since `begin`: for what it asked for, or for that thread.
        """
        used = self._holders.used()
        had_it, task = tasks.holder(used), self._tasks.get(seen.thread)
        if had_it is None or had_it in {seen.thread, *self._sites.threads}:
            return seen
        waits = seen._replace(how=ThreadState.WAITING)
        # What waits for something else does not wake up.
        asleep = (
            seen.doing.state == BLOCKED and used.get(seen.thread, 0.0) < tasks.AWAKE
        )
        if asleep or seen.doing.state not in _NEEDS_PYTHON:
            return waits
        if task is None or task.computes():
            return seen
        stack = other_threads.read_stacks(lambda _: [had_it]).get(had_it)
        if not stack:
            return seen
        doing = self._reader.read(stack)._replace(state=GIL, function="")
        return waits._replace(doing=doing)

    def _waiting(
        self, seen: _LookMemory, late: float, state: str, *, trains: bool
    ) -> str:
        """
        Return what it is that *seen* waits for an item, or for another thread: idle if
        it is a thread of a library's pool, or the main thread waits for connections or
        in an event loop, unless the program *trains*.
        """
        if not trains and seen.thread != self._main:
            if state == ITEM and not seen.doing.of_user:
                return IDLE
            (main,) = self._read(lambda _: [self._main], late) or [seen]
            if main.doing.state == IDLE:
                return IDLE
        return DATA_WAIT if state == ITEM else state

    def _called_back(self, entry: LookEntry, late: float) -> LookEntry:
        """
        Return what a callback does, if the program waits for a device that waits for
        it; else *entry*. XLA calls back on threads that Python has not started.
        """
        if entry.state not in _FOR_DEVICE:
            return entry
        for stack in other_threads.read_stacks(tasks.started_by_others).values():
            if other_threads.calls_back(stack):
                doing = self._reader.read(stack)
                # Whether that thread runs is unknown; who delayed the look did.
                runs = doing.state == PYTHON and late > 0
                state = BLOCKED if doing.state == PYTHON and not runs else doing.state
                place = self._place(doing.line)
                found = entry._replace(state=state, place=place, function="")
                return found._replace(once=False)
        return entry

    def _fed(
        self,
        entry: LookEntry,
        seen: _LookMemory,
        due: float,
        late: float,
        *,
        work: bool,
    ) -> LookEntry:
        """
        Return what the time of *entry* went into, a wait of *seen* for an item or other
        *work*: it is idle if it answers requests, or nothing has made any for a while.
        """
        if work and seen.doing.answers:
            return entry._replace(state=IDLE)
        made = self._made(entry, seen.thread, late)
        if made is not entry:
            self.fed = due
        latest = max(self.progress.since(entry, due), self.fed)
        if work and due - latest >= IDLE_SECONDS:
            return entry._replace(state=IDLE)
        return made if entry.state == DATA_WAIT else entry

    def _made(self, entry: LookEntry, waits: int, late: float) -> LookEntry:
        """
        Return *entry* on the line of the thread that works while *waits* waits for an
        item of a queue; as it is if none does.
        """
        others = self._read(partial(tasks.other_threads, waits), late)
        working = [o for o in others if o.works and o.how is ThreadState.RUNNING]
        maker = max(working, key=lambda worker: worker.cpu, default=None)
        place = "" if maker is None else self._place(maker.doing.line)
        return entry._replace(place=place, caller="", once=False) if place else entry

    def _of_thread(self, ident: int, stack: Stack, late: float) -> _LookMemory:
        doing = self._reader.read(stack)
        works = doing.state != IDLE
        task = self._tasks.get(ident)
        cpu = 0.0 if task is None else task.cpu()
        if late > 0 and cpu > late * _BUSY:
            how = ThreadState.RUNNING if doing.state in _RUNS else ThreadState.STOPPED
        elif task is not None and task.runs():
            how = ThreadState.RUNNING
        else:
            how = ThreadState.WAITING
        if doing.state == MAKE:
            doing = doing._replace(state=TRANSFER)
        elif doing.state == NUMPY:
            # A thread that has got its array may still wait for a processor.
            runs = how is ThreadState.RUNNING and task is not None and task.computes()
            reads = (doing.drives or doing.function in _CONVERTS) and not runs
            doing = doing._replace(state=FETCH if reads else PYTHON, function="")
        if doing.state == PYTHON and how is ThreadState.WAITING:
            # It may wait for the interpreter, if another thread has it.
            holds_loop = doing.holds_loop and not late
            waits = ITEM if doing.work and not doing.parked else BLOCKED
            state = waits if doing.drives or holds_loop else IDLE
            doing = doing._replace(state=state, holds_loop=holds_loop)
        elif doing.state == EAGER and how is ThreadState.WAITING:
            # The runtime accepts no more work, or computes before it returns.
            doing = doing._replace(state=FETCH)
        if doing.state == ITEM and self._routes.any():  # it waits for requests
            doing = doing._replace(state=IDLE)
        return _LookMemory(ident, doing, cpu, how, works)

    def _place(self, line: SourceLine) -> str:
        found = self._places.get(line)
        if found is None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            found = self._places[line] = line_text(line)
        return found


def _rank(seen: _LookMemory) -> float:
    # No thread gets work while the event loop is blocked that gives it some.
    blocks_loop = seen.doing.state == BLOCKED and seen.doing.holds_loop
    return _RANK[IDLE] + 0.5 if blocks_loop else _RANK[seen.doing.state]
