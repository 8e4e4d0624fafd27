"""What the wall time of the process goes into, as a part of an agent."""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function, FunctionTable
from jaxmon.agent.jaxlink import activity
from jaxmon.agent.jaxlink.activity import JOIN
from jaxmon.agent.jaxlink.backends import cluster
from jaxmon.agent.jaxlink.call_sites import DEVICE, FETCH
from jaxmon.agent.jaxlink.other_threads import NotNowError, make_room, repeatedly
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.walltime import tasks
from jaxmon.agent.walltime import time_by_call as calls
from jaxmon.agent.walltime.ledger import MARKED, LedgerPeriod, TimeLedger
from jaxmon.agent.walltime.looks import Looks, stacks
from jaxmon.clocks import perf_counter, process_time, thread_time
from jaxmon.exposition.families import Family, family_of
from jaxmon.facts import walltime as facts
from jaxmon.facts.rank import Rank, RecentLine
from jaxmon.host.http.messages import Request, Response
from jaxmon.host.http.server import Handler
from jaxmon.indicators.routes import Routes
from jaxmon.indicators.timeline import Timeline
from jaxmon.threads import DaemonThread, Event, current


SITE = "wall_time"

# At first more often: a short program has few looks.
_AT_FIRST = 0.4
_FIRST_SECONDS = 20.0
# Of the time, until looks are enough to judge and later, with what waking up takes:
# looks at deep stacks, as while JAX traces, are rarer. Once it is not young, a process
# that has little of a busy machine's processors gives up as much of that, or a third.
_MOST_AT_FIRST, _MOST = 0.012, 0.003
_LEAST_BUSY = 1 / 3
_TO_JUDGE = facts.ENOUGH_LOOKS * 1.1
# How many looks the usual is a mean of, and how many times as long it may seem by a
# single one.
_LATEST, _LONGER = 4, 2
# Looks are due at random moments, so that they do not fall in step with the program.
_SPREAD = 0.5
_MOST_PLACES = 40
_MOST_LINES = 20
_MOST_OTHERS = 5
_MOST_BUSY = 6
_FOR_DEVICE = frozenset((DEVICE, FETCH))
_SOON = 0.001
# Doing the same thing for so many seconds is worth a stack; less, if a job is judged.
_LONG, _LONG_FOR_OTHERS = 5.0, 2.0


class WallTimePart(Part):
    """
    Looks at the program's threads, and keeps what their time went into.

    Costs 50 to 100 µs per look on its own thread, of which the program notices only
    that it must give up the interpreter.

    Args:
        spanning: returns the functions that run on devices of other processes, too.
        run_ahead: returns for how many seconds the program has been ahead of its device
            in these, and for how many behind, as far as is certain.
    """

    name = SITE

    def __init__(  # noqa: PLR0913 - what it looks at
        self,
        context: Context,
        timeline: Timeline,
        routes: Routes,
        spanning: Callable[[], Collection[Function]],
        run_ahead: Callable[[], tuple[float, float]],
        *,
        failed_helpers: Callable[[], tuple[facts.FailedHelper, ...]],
        look_at_children: Callable[[], None],
    ) -> None:
        self._guard = context.guard
        self._routes = routes
        self._every = context.settings.time_interval
        self._ledger = TimeLedger()
        reader = activity.ActivityReader(context.jax, context.sites)
        self._latest_calls = calls.LatestCalls(partial(_call_counts, context.table))
        self._looks = Looks(
            self._ledger, reader, context.sites, timeline, routes, self._latest_calls
        )
        self._reader = reader
        self._pauses = calls.CallPauses(partial(_calls_together, context, spanning))
        self._run_ahead = run_ahead
        self._failed_helpers = failed_helpers
        self._look_at_children = look_at_children
        self._starvation = tasks.Starvation()
        devices = calls.DeviceSeconds(spanning)
        context.observers.executed.append(devices.executed)
        self._time_by_call = calls.TimeByCallRows(devices)
        self._held = 0.0
        self._ended = Event()
        self._thread: DaemonThread | None = None
        self._stopped = False
        self._workers = tasks.WorkerProcesses(_LONG)
        self._began = perf_counter()
        self.spent = 0.0

    def start(self) -> None:
        """Start looking, if enabled."""
        if not self._every or self._thread is not None:
            return
        run = partial(self._guard.run, SITE, self._run)
        thread = DaemonThread("jaxmon-wall-time", run)
        if self._guard.start(thread, SITE):
            self._thread = thread
            self._looks.garbage.begin()

    def refresh(self, *, asked: bool) -> None:
        """Forget what went on, if the program came to its end: that is over."""
        if not asked and interrupts.printed() is None:
            self._looks.progress.current = None

    def stop(self) -> None:
        """Stop looking."""
        thread = self._thread
        self.abandon()
        if thread is not None:
            self._ended.set()
            if thread is not current():
                self._guard.join(thread)

    def abandon(self) -> None:
        """Leave the thread to the parent process; called in a forked child."""
        self._stopped = True
        self._looks.garbage.end()
        self._thread = None

    def collect(self) -> list[Family]:
        """Return the wall time by state, and whether it does not get on in a job."""
        if self._thread is None:
            return []
        found = self._ledger.by_state()
        rows = [(state, found.get(state, 0.0)) for state in catalog.WALL_STATES]
        current, overdue = self._looks.progress.current, []
        if (age := self._pauses.overdue(perf_counter())) is not None and current:
            state = MARKED if current.entry.activity else current.entry.state
            overdue = [(state, age)]
        return [
            family_of(catalog.WALL_SECONDS, rows),
            family_of(catalog.CALL_AGE_SECONDS, overdue),
        ]

    def explain(self) -> Explanation:
        """Return the ledger."""
        return Explanation({"time": self.snapshot})

    def snapshot(self) -> facts.WallTime:
        """Return the ledger since the start and lately, and what is going on now."""
        if self._thread is None:
            return facts.WallTime()
        progress, moment = self._looks.progress, perf_counter()
        now, current = progress.describe(moment), progress.current
        if current is not None and now.seconds >= _LONG:
            now = facts.Now(**{**self._standing(current.thread), **vars(now)})
        turns, turn_seconds = self._routes.turns.lately()
        return facts.WallTime(
            since_start=_described(self._ledger.since_start()),
            lately=_described(self._ledger.lately()),
            recent=_described(self._ledger.recent()),
            now=now,
            requests=self._hanging(),
            failed=self._failed_helpers(),
            rates=self._latest_calls.rates(),
            rates_seconds=self._latest_calls.window,
            call_age=self._latest_calls.age(moment),
            jax_age=None if (at := progress.in_jax) is None else moment - at,
            call_pause=self._latest_calls.pause,
            loops=self._looks.loops(),
            called=self._looks.called(),
            turns=turns,
            turn_seconds=turn_seconds,
            processes=self._workers.started,
            processes_at_once=self._workers.at_once,
        )

    def doing(self) -> Rank:
        """
        Return, of a rank, what goes on now, with its stack if the program does not get
        on, how long ago it called a jitted function last, how much of its time it waits
        for a processor, and, in a job, what its time went into; nothing if the ledger
        is disabled.
        """
        if self._thread is None:
            return Rank()
        moment = perf_counter()
        now = self._looks.progress.describe(moment)
        pause = self._pauses.describe(moment)
        current = self._looks.progress.current
        if current is not None:
            is_long = max(now.seconds, pause.age_seconds or 0.0) >= _LONG_FOR_OTHERS
            there = self._standing(current.thread) if is_long else {}
            marked = now.activity or there.get("activity", "")
            now = now.replace(**{**there, "activity": marked})
        rows = self._time_by_call.describe()
        return Rank(
            now=now,
            pace=pause,
            starved_ratio=self._starvation.ratio,
            course=rows,
            alone=self._time_by_call.alone,
            places=self._busy_places() if rows else (),
        )

    def compiling(self) -> dict[str, dict[tuple[str, str], float]]:
        """
        Return for how long each function was traced or compiled, by line, and that of
        the outermost loop around it in the function; a fraction of a millisecond.
        """
        found = defaultdict[str, dict[Any, float]](partial(defaultdict, float))
        for of, seconds in self._ledger.since_start().corrected().items():
            if of.state == activity.COMPILE:
                found[of.function][of.place, of.caller] += seconds
        return found

    def position(self) -> dict[str, str]:
        """Return what goes on now, by field of the record that outlives the process."""
        if (current := self._looks.progress.current) is None:
            return {}
        now = current.entry
        awaited = now.function if now.state in _FOR_DEVICE else ""
        return {"activity": now.activity, "place": now.place, "awaited": awaited}

    def _busy_places(self) -> tuple[RecentLine, ...]:
        """Return the lines where it was lately, without waits for the device."""
        recent = self._ledger.recent()
        entries = Counter(recent.corrected()).most_common()
        busy = [item for item in entries if item[0].state not in _FOR_DEVICE]
        return tuple(
            RecentLine(of.state, of.place, of.activity, seconds / recent.seconds)
            for of, seconds in busy[:_MOST_BUSY]
        )

    def pages(self) -> dict[str, Handler]:
        """Return the endpoint that shows the stacks of all threads."""
        return {"/debug/stacks": self._page}

    def _page(self, _: Request) -> Response:
        found = repeatedly(partial(stacks, self._reader))
        found["failed"] = list(map(str, self._failed_helpers()))
        return Response(json.dumps(found).encode(), "application/json")

    def _standing(self, thread: int) -> dict[str, Any]:
        """
        Return where *thread* is, which others wait for a lock if it does, or may fill
        its queue, and which helpers of the program have failed, as fields of what goes
        on now.
        """
        found = self._threads()
        mine = next((row for row in found if row["ident"] == thread), None)
        if mine is None:
            return {}
        others = [row for row in found if row is not mine]
        locked = [row for row in others if row["lock"] and mine["lock"]]
        failed: tuple[facts.FailedHelper, ...] = ()
        current = self._looks.progress.current
        pools = any("/multiprocessing/pool.py:" in line for line in mine["stack"])
        if pools and current is not None:
            # What has failed before may be of a pool that the program has no longer.
            failed = self._workers.failed(perf_counter(), current.since)
        takes, puts = _in_queue(mine, " in get"), _in_queue(mine)
        free = [row for row in others if not row["needs_threads"]]
        return {
            "stack": tuple(mine["stack"][:_MOST_LINES]),
            **{key: mine[key] for key in ("lock", "barrier", "callback", "activity")},
            "others": _standing(locked),
            "gone": (*failed, *self._failed_helpers()),
            "alone": (takes or puts) and not free,
            "fillers": _standing([row for row in free if takes and row["place"]]),
            "full": self._full(mine, others),
            "asleep": self._workers.asleep(perf_counter()),
        }

    def _full(
        self, mine: dict[str, Any], others: list[dict[str, Any]]
    ) -> tuple[facts.Standing, ...]:
        """
        Return which of *others* wait for room in a queue, or for a thread to end, if
        *mine* does so, too, one of them for room, and no thread has done anything for a
        while.
        """
        still = perf_counter() - self._looks.awake >= _LONG
        waits = [row for row in others if row["state"] == JOIN or _in_queue(row)]
        full = list(filter(_in_queue, [mine, *others]))
        if not still or not full or not (mine["state"] == JOIN or _in_queue(mine)):
            return ()
        # What sleeps elsewhere may be what takes from the only queue that is full.
        rests = _is_parked if len(full) == 1 else _may_sleep
        return _standing(waits) if all(map(rests, others)) else ()

    def _hanging(self) -> tuple[facts.Hanging, ...]:
        """
        Return where the oldest request of each route is, if it has been in progress for
        long: the stack of the thread that it began on. Not of one in an event loop,
        whose stack is that of whatever runs there now.
        """
        oldest = {
            name: request
            for name, request in self._routes.oldest().items()
            if perf_counter() - request.started >= _LONG
        }
        threads = self._threads() if oldest else []
        rows = {row["ident"]: row for row in threads}
        return tuple(
            facts.Hanging(
                name, tuple(row["stack"][:_MOST_LINES]), row["place"], row["state"]
            )
            for name, request in oldest.items()
            if (row := rows.get(request.home))
            and not any("asyncio/" in line for line in row["stack"][:_MOST_LINES])
        )

    def _threads(self) -> list[dict[str, Any]]:
        with interrupts.expected(NotNowError):
            return list(repeatedly(partial(stacks, self._reader))["threads"])
        return []

    def _run(self) -> None:
        shuffled = random.Random()  # noqa: S311 - spreads looks, hides nothing
        pid = os.getpid()
        soon, looks, usual, used = False, 0, 0.0, thread_time()
        worked = process_time()
        while not self._stopped and self._guard.on(SITE):
            now = perf_counter()
            lived = now - self._began
            most = _MOST_AT_FIRST if looks < _TO_JUDGE else _MOST
            if lived >= _FIRST_SECONDS:
                busy = (process_time() - worked) / lived
                most *= min(max(busy, _LEAST_BUSY), 1.0)
            every = max(
                self._every * (_AT_FIRST if lived < _FIRST_SECONDS else 1.0),
                usual / most,
            )
            spread = shuffled.uniform(1 - _SPREAD, 1 + _SPREAD)
            pause = _SOON if soon else every * spread
            self._looks.begin()
            slept = tasks.times_slept()
            soon_again, soon = soon, False
            if self._ended.wait(pause):
                break
            # Once until it is due, and again for the interpreter.
            slept = tasks.times_slept() - slept
            if os.getpid() != pid:  # nothing stops the thread of a forked child
                break
            due = now + pause
            late = perf_counter() - due
            self._held += tasks.seconds_held(late, pause, slept - 1)
            try:
                self._looks.look(due, late if slept > 1 else 0.0)
                self._follow()
            except NotNowError:
                soon = True
            except Exception:  # noqa: BLE001 - contained: our own thread goes on
                self._guard.failed(SITE)
            if soon and soon_again:
                make_room()
            if not soon:
                looks += 1
                took = thread_time() - used
                used += took
                self.spent += took
                # One that learns of new code takes longer, once.
                usual += (min(took, _LONGER * (usual or took)) - usual) / _LATEST
        self._looks.close()
        self._workers.close()

    def _follow(self) -> None:
        current, now = self._looks.progress.current, perf_counter()
        if current is not None:
            state, held, self._held = current.entry.state, self._held, 0.0
            self._time_by_call.look(state, now, held, self._run_ahead())
            waited = now - max(current.since, self._workers.read_at)
            if waited >= _LONG and self._workers.worked(now):
                self._looks.fed = now
            self._starvation.check(self._looks.task(current.thread), now)
            if self._pauses.check(now, compiles=state == activity.COMPILE):
                starved = self._starvation.seconds
                self._time_by_call.mark(self._pauses.calls, now, starved)
        self._workers.look(now)
        self._look_at_children()


def _in_queue(row: dict[str, Any], how: str = " in put") -> bool:
    """Return whether a thread waits in a queue of this process: for room."""
    return any(line.endswith(how) and "/queue.py:" in line for line in row["stack"])


def _is_parked(row: dict[str, Any]) -> bool:
    return bool(row["stack"]) and "/threading.py:" in row["stack"][0]


def _may_sleep(row: dict[str, Any]) -> bool:
    return row["state"] in {activity.PYTHON, activity.IDLE, activity.ITEM, JOIN}


def _standing(rows: list[dict[str, Any]]) -> tuple[facts.Standing, ...]:
    return tuple(
        facts.Standing(row["name"], tuple(row["stack"][:_MOST_LINES]), row["place"])
        for row in rows[:_MOST_OTHERS]
    )


def _call_counts(table: FunctionTable) -> dict[str, calls.CallCount]:
    """Return the calls of the user's functions so far; what is only traced has none."""
    return {
        f.name: calls.CallCount(f.objects.calls + f.other_missed.value, missed)
        for f in table
        if not f.internal and (missed := f.missed)
    }


def _calls_together(
    context: Context, spanning: Callable[[], Collection[Function]]
) -> int:
    """
    Return the calls so far of what the processes of a job call together, or of all
    functions if that is unknown; none if this process belongs to no job.
    """
    place = cluster(context.jax)
    if place is None or place.size < 2:  # noqa: PLR2004 - alone
        return 0
    functions = spanning() or [f for f in context.table if not f.internal]
    return sum([function.objects.calls + function.missed for function in functions])


def _described(period: LedgerPeriod) -> facts.Period:
    entries = period.corrected()
    most = sorted(entries.items(), key=lambda item: -item[1])[:_MOST_PLACES]
    states: dict[str, float] = {}
    activities: dict[str, float] = {}
    for entry, seconds in entries.items():
        states[entry.state] = states.get(entry.state, 0.0) + seconds
        if entry.activity:
            activities[entry.activity] = activities.get(entry.activity, 0.0) + seconds
    whole = period.seconds
    return facts.Period(
        seconds=whole,
        looks=period.looks,
        states={
            state: facts.StateTime(
                seconds, period.error(seconds / whole if whole else 0.0) * whole
            )
            for state, seconds in states.items()
        },
        activities=activities,
        places=tuple([facts.PlaceTime(*entry, seconds) for entry, seconds in most]),
    )
