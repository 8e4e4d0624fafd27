"""
What the time went into between some calls and others, for a job's ranks to be compared,
and how long ago the program made the latest of these calls.

Rows of seconds by state, each from one number of calls to another: of two seconds in
the latest half minute, six in the latest two, longer the older they are. Evaluated by
`jaxmon.job.comparison`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from jaxmon.agent.functions import OTHER, Function
from jaxmon.agent.jaxlink import activity
from jaxmon.agent.jaxlink.activity import COMPILE
from jaxmon.agent.jaxlink.call_sites import DEVICE, EAGER, FETCH, TRANSFER
from jaxmon.agent.walltime.ledger import BLOCKED, LookEntry
from jaxmon.clocks import perf_counter
from jaxmon.facts.rank import COLUMNS, MOST_ROWS, CallPause
from jaxmon.facts.walltime import Now


_EVERY_SECONDS = 2.0
# From which age on rows may last so long; later, for a part of their age.
_NEW_SECONDS, _SHORT_SECONDS = 30.0, 6.5
_RECENT_SECONDS, _PART = 135.0, 1 / 4
_COLUMNS = {
    DEVICE: "waits",
    FETCH: "waits",
    TRANSFER: "transfer",
    activity.DATA_WAIT: "data_wait",
    activity.PYTHON: "python",
    activity.STARTUP: "python",
    EAGER: "python",
    activity.GC: "python",
    activity.GIL: "gil",
    BLOCKED: "blocked",
    activity.IDLE: "blocked",
    COMPILE: "compile",
}
_DIGITS = 7
# Of the latest sample in an average, and how long it is believed.
_WEIGHT, _KNOWN_SECONDS = 0.25, 30.0
_CHECKED_SECONDS = 1.0
_MOST_CALLED, _MOST_RATES = 3, 12
# Calls are counted over four to five of these, and at first over less.
_PAST_SECONDS, _PAST, _SHORTEST_SECONDS = 15.0, 5, 5.0
# Shorter ones cannot be distinguished.
_GAP = 2 * _CHECKED_SECONDS
# A pause is overdue if it is that long, and so many times as long as usual, once there
# were some calls.
_OVERDUE_SECONDS, _TIMES_AS_USUAL, _RHYTHM = 10.0, 3.0, 10

Sums: TypeAlias = dict[str, float]


class CallRow(NamedTuple):
    """Sums by column, the moment at which they end, and what is reported of them."""

    end: float
    sums: Sums
    text: str


class CallEstimate:
    """What a call of one function takes a device: a moving average of samples."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.seconds = 0.0
        self.sampled = 0.0


class DeviceTime(NamedTuple):
    """
    Seconds in which the device has worked on what several processes run together, and
    *alone* on other programs, most of them *function*. *is_known*: most calls of the
    former are of functions that were sampled.
    """

    together: float
    alone: float
    is_known: bool
    function: str = ""


class DeviceSeconds:
    """Estimates for how long the device has worked, from sampled calls."""

    def __init__(self, spanning: Callable[[], Collection[Function]]) -> None:
        self._spanning = spanning
        self._estimates: dict[Function, CallEstimate] = {}

    def executed(self, function: Function, _: object, seconds: float) -> None:
        """Add a sampled call."""
        estimate = self._estimates.get(function)
        if estimate is None:
            estimate = self._estimates[function] = CallEstimate(_calls(function))
            estimate.seconds = seconds
        estimate.seconds += (seconds - estimate.seconds) * _WEIGHT
        estimate.sampled = perf_counter()

    def since(self, now: float, calls: float) -> DeviceTime:
        """
        Return the seconds since the last time, until *now* by the performance counter,
        with so many *calls* of what several processes run together.
        """
        spanning, together, covered = set(self._spanning()), 0.0, 0
        alone: dict[str, float] = {}
        for function, estimate in self._estimates.copy().items():
            before, estimate.calls = estimate.calls, _calls(function)
            fresh = max(estimate.calls - before, 0)
            # What was sampled long ago may take longer now.
            if now - estimate.sampled > _KNOWN_SECONDS:
                continue
            if function in spanning:
                together += estimate.seconds * fresh
                covered += fresh
            elif fresh:
                alone[function.name] = estimate.seconds * fresh
        most = max(alone, key=alone.__getitem__, default="")
        return DeviceTime(together, sum(alone.values()), covered > calls / 2, most)


def _calls(function: Function) -> int:
    return function.objects.calls + function.missed


class TimeByCallRows:
    """
    Keeps the rows, at most 48; written by one thread, read by any. *alone*: label of
    the function with whose programs, of those that no other process takes part in, the
    device worked longest in the latest row.
    """

    def __init__(self, devices: DeviceSeconds) -> None:
        self.alone = ""
        self._devices = devices
        self._rows: list[CallRow] = []
        self._open: Sums = dict.fromkeys(COLUMNS, 0.0)
        self._totals: Sums = {}
        self._looked: float | None = None
        self._marked = 0.0

    def look(
        self,
        state: str,
        now: float,
        held: float,
        run_ahead: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """
        Add a look at *now* that found *state*; of the time since the look before, in
        *held* seconds nothing of the process ran although it was due. *run_ahead* is
        for how many seconds the program was ahead of its device, and behind it.
        """
        before, self._looked = self._looked, now
        if before is None:
            return
        seconds = max(now - before, 0.0)
        held, row = min(held, seconds), self._open
        row["seconds"] += seconds
        row["looks"] += 1
        row["held"] += held
        for name, ahead_or_behind in zip(("ahead", "behind"), run_ahead, strict=True):
            row[name] += min(ahead_or_behind, seconds - held)
        row[_COLUMNS.get(state, "blocked")] += seconds - held

    def mark(self, calls: int, now: float, starved: float) -> None:
        """Note a new number of *calls*, and the seconds *starved* so far."""
        if now - self._marked < _EVERY_SECONDS:
            return
        self._marked = now
        if calls < self._totals.get("calls", 0.0):
            # It has become known what the ranks call together: less than all.
            self._rows = []
        row = self._open
        totals: Sums = {"calls": calls, "starved": starved}
        for name, total in totals.items():
            row[name] = max(total - self._totals.get(name, 0.0), 0.0)
        devices = self._devices.since(now, row["calls"])
        # No longer than the row, also if a delayed sample stands for other calls.
        row["together"] = min(devices.together, row["seconds"])
        row["alone"] = min(devices.alone, row["seconds"])
        self.alone = devices.function
        row["known"] = row["seconds"] if devices.is_known else 0.0
        if not self._rows:
            row["calls"] = calls
        self._totals, self._open = totals, dict.fromkeys(COLUMNS, 0.0)
        self._rows = _thinned([*self._rows, _row(now, row)], now)

    def describe(self) -> tuple[str, ...]:
        """Return the rows, the oldest first, each as text: it takes least to read."""
        return tuple([row.text for row in self._rows])


def _row(end: float, sums: Sums) -> CallRow:
    return CallRow(end, sums, " ".join(f"{sums[n]:.{_DIGITS}g}" for n in COLUMNS))


def _thinned(rows: list[CallRow], now: float) -> list[CallRow]:
    """Return *rows*, two merged that are short for their age, or if there are many."""
    merged = next(_short(rows, now), 0 if len(rows) > MOST_ROWS * 3 // 4 else None)
    if merged is None:
        return rows
    first, other = rows[merged].sums, rows[merged + 1].sums
    sums = {name: first[name] + other[name] for name in COLUMNS}
    return [*rows[:merged], _row(rows[merged + 1].end, sums), *rows[merged + 2 :]]


def _short(rows: list[CallRow], now: float) -> Iterator[int]:
    """Yield which of *rows* are short for their age with the next, the oldest first."""
    for at, (first, other) in enumerate(pairwise(rows)):
        age = now - other.end
        if age <= _NEW_SECONDS:
            return
        if first.sums["seconds"] + other.sums["seconds"] <= _longest(age):
            yield at


def _longest(age: float) -> float:
    """Return how many seconds a row may last that ended so many seconds ago."""
    return age * _PART if age > _RECENT_SECONDS else _SHORT_SECONDS


class CallCount(NamedTuple):
    """Calls of a function, and how many of them have left the fast path."""

    calls: int = 0
    missed: int = 0


_NO_CALLS = CallCount()


class LatestCalls:
    """
    Counts the calls of jitted functions once a second; `called` are the latest, and the
    longest `pause` between two has ended.
    """

    def __init__(self, counts: Callable[[], dict[str, CallCount]]) -> None:
        self._read = counts
        self._counts: dict[str, CallCount] = {}
        self._repeats: dict[str, int] = {}
        self._checked = self._called_at = 0.0
        # Earlier counts, and when they were read.
        self._past: deque[tuple[float, dict[str, CallCount]]] = deque(maxlen=_PAST)
        self.called: tuple[str, ...] = ()
        self.pause = 0.0

    def rates(self) -> dict[str, float]:
        """Return the calls a second of the last minute, of those called most."""
        past = self._past[0][1] if self._past else {}
        if (seconds := self.window) < _SHORTEST_SECONDS:
            return {}
        found = {
            name: (count.calls - past.get(name, _NO_CALLS).calls) / seconds
            for name, count in self._counts.items()
            if name != OTHER
        }
        most = sorted(found, key=lambda name: -found[name])[:_MOST_RATES]
        return {name: found[name] for name in most if found[name] > 0}

    @property
    def window(self) -> float:
        """How many seconds `rates` are about."""
        return self._checked - self._past[0][0] if self._past else 0.0

    def age(self, now: float) -> float | None:
        """Return the seconds since the latest call, `None` without one."""
        return now - self._called_at if self.called else None

    @property
    def repeats(self) -> int:
        """How often each of these, at least, has run the same program before."""
        return min([self._repeats[name] for name in self.called], default=0)

    def count(self, now: float) -> bool:
        """Count, if that is due; return whether there are new calls, or none yet."""
        if now - self._checked < _CHECKED_SECONDS:
            return False
        self._checked = now
        before, self._counts = self._counts, self._read()
        if not self._past or now - self._past[-1][0] >= _PAST_SECONDS:
            self._past.append((now, self._counts))
        called = [name for name, n in self._counts.items() if n != before.get(name)]
        for name in called:
            count, earlier = self._counts[name], before.get(name, _NO_CALLS)
            missed = count.missed - earlier.missed
            hits = max(count.calls - earlier.calls - missed, 0)
            # Whether these came before or after a compile is known of first calls only.
            settled = self._repeats.get(name, 0) if not missed else 0
            fresh = hits if not missed or not earlier.calls else 0
            self._repeats[name] = settled + fresh
        called = [name for name in called if self._counts[name].calls]
        if called:
            self.pause = max(self.pause, self.age(now) or 0.0)
            self.called, self._called_at = tuple(called[:_MOST_CALLED]), now
        return bool(called) or not any(n.calls for n in self._counts.values())


class CallPauses:
    """
    Follows the *calls* of the functions that all processes of a job call together, 0 in
    a program that is no job. For one thread; read by any. Known to a second, which is
    how often it counts them.
    """

    def __init__(self, calls: Callable[[], int]) -> None:
        self._count = calls
        self.calls = 0
        self._checked = self._since = 0.0
        self._compiles = False
        # The two longest. One alone may be the start, or a restored checkpoint.
        self._gaps = (0.0, 0.0)

    def check(self, now: float, *, compiles: bool) -> bool:
        """
        Count the calls, if that is due *now* by the performance counter, and return
        whether there were some. If it *compiles*, a pause says nothing about others.
        """
        self._compiles = self._compiles or compiles
        if now - self._checked < _CHECKED_SECONDS and self._checked:
            return False
        self._checked = now
        found = self._count()
        if found == self.calls and self._since:
            return False
        gap = now - self._since
        if self.calls and not self._compiles and gap >= _GAP:
            _, *longest = sorted((*self._gaps, gap))
            self._gaps = (longest[0], longest[1])
        self.calls, self._since, self._compiles = found, now, False
        return found > 0

    def overdue(self, now: float) -> float | None:
        """Return the seconds since the latest call if unusually long, else `None`."""
        age = now - self._since
        limit = max(_OVERDUE_SECONDS, _TIMES_AS_USUAL * self._gaps[0])
        return age if self.calls >= _RHYTHM and age >= limit else None

    def describe(self, now: float) -> CallPause:
        """Return the seconds since the latest call, and of a pause that is usual."""
        age = max(now - self._since, 0.0) if self.calls else None
        return CallPause(age, self._gaps[0])


# A thread that has used less has not woken up: even a timer costs more.
_ASLEEP = 2e-5
# What a program that runs eagerly does is no call.
_IN_JAX = frozenset((COMPILE, DEVICE, FETCH, TRANSFER))
_MOST_TIMED = 1_000


class Current(NamedTuple):
    """What the program is doing, since when, and whether it waits for *work*."""

    entry: LookEntry
    thread: int
    since: float
    work: bool = False


class LineProgress:
    """
    Follows how long the program does the same without a pause; *changes*: how often it
    began to do something else.

    The same line may be found at every look although the program gets on, so it counts
    as the same only if the thread has not woken up, or no jitted function was called.
    Calls of what was compiled ahead of time are not counted, but seen: it was in JAX
    at *in_jax* for the last time.
    """

    def __init__(self, calls: LatestCalls) -> None:
        self._calls = calls
        self._called = False
        self._longest: dict[str, float] = {}
        self.in_jax: float | None = None
        self.current: Current | None = None
        self.changes = 0

    def since(self, entry: LookEntry, now: float) -> float:
        """Return since when it does *entry*: *now* if it did something else."""
        current = self.current
        return current.since if current is not None and current.entry == entry else now

    def seen(
        self,
        entry: LookEntry,
        thread: int,
        now: float,
        *,
        cpu: float,
        work: bool = False,
    ) -> None:
        """Record what a look found, and the *cpu* seconds used since the last."""
        current = self.current
        if entry.state in _IN_JAX:
            self.in_jax = now
        self._called = self._calls.count(now) or self._called
        if current is None:
            self.current = Current(entry, thread, now, work)
            return
        same = current.thread == thread
        what, before = ((of.state, of.function) for of in (entry, current.entry))
        if same and what == before and entry.state == COMPILE and entry.function:
            # The lines of a function that is being traced change.
            self.current = current = current._replace(entry=entry)
        same = same and current.entry == entry
        if same and (cpu < _ASLEEP or not self._called):
            return
        self._called = False
        took, state = max(now - current.since, 0.0), current.entry.state
        # A first compile says nothing about how long calls on that line take.
        place = "" if state in {COMPILE, activity.STARTUP} else current.entry.place
        for key in (state, place):
            if took > self._longest.get(key, 0.0):
                if len(self._longest) >= _MOST_TIMED:
                    self._longest.clear()
                self._longest[key] = took
        self.changes += 1
        self.current = Current(entry, thread, now, work)

    def describe(self, now: float) -> Now:
        """
        Return what the program is doing at *now*, since how many seconds, and the
        longest time that it has been doing such a thing, and on that line, before.
        """
        current = self.current
        if current is None:
            return Now()
        entry = current.entry
        return Now(
            *(entry.activity, entry.state, entry.place, entry.function),
            event_loop=entry.event_loop,
            seconds=max(now - current.since, 0.0),
            longest_before=self._longest.get(current.entry.state, 0.0),
            longest_there=self._longest.get(current.entry.place, 0.0),
            changes=self.changes,
            called=self._calls.called,
            repeats=self._calls.repeats,
            work=current.work,
        )
