"""
Finds the ranks for which the others wait at each step of a job that makes progress.

In a job in step all ranks take the same time for a step. What differs is how much of it
they wait for their devices, which wait for other ranks in collectives: the one that
waits least is the one that the others wait for, by what its wait is shorter. Unless the
device works anyway: a host may be slow as long as it keeps ahead of its device. So it
must hardly wait at all, or its device must have idled for as long as those of the
others have waited: by calls that were seen finished while no other had been dispatched,
or by sampled execution times. These are estimates: that a call is seen in flight is
certain, and outweighs them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import median_low
from typing import NamedTuple

from jaxmon.facts.host import JobHost
from jaxmon.facts.rank import Rank, RecentLine
from jaxmon.job.comparison import (
    WINDOW,
    WINDOWS,
    ComparedRank,
    Excess,
    RankComparison,
    TimeFractions,
    busy_by_estimate,
    busy_for_certain,
    compare,
    idleness,
    stoppages,
)
from jaxmon.job.model import SlowKind, Slowness, Straggler
from jaxmon.limits import Limits


# A host that waits less is not ahead of its device, unless samples say that this works
# all the time; with still less it is not, whatever they say: they are estimates.
_LITTLE_WAIT, _NO_WAIT = 0.1, 0.03
# Who works a lot waits for a processor now and then, too.
_MOST_OF_IT = 2 / 3
FASTER_BEFORE = 1.1
"""From how many times as long as before on a rank is slower."""

# Described of those that are slow, and others whose lines are compared.
_MOST_SLOW, _MOST_PEERS = 1_000, 200
_OTHERS = 20

_OWN = {
    "data_wait": SlowKind.DATA,
    "python": SlowKind.PYTHON,
    "gil": SlowKind.GIL,
    "blocked": SlowKind.BLOCKED,
    "compile": SlowKind.COMPILE,
    "transfer": SlowKind.TRANSFER,
}
_COLUMNS = {
    **{kind: (column,) for column, kind in _OWN.items()},
    SlowKind.HOST: ("held", "starved"),
    SlowKind.COMPUTE: ("alone",),
}
# States of the ledger of time.
_STATES = {
    SlowKind.DATA: ("data_wait",),
    SlowKind.PYTHON: ("python", "startup", "eager", "gc"),
    SlowKind.GIL: ("gil",),
    SlowKind.BLOCKED: ("blocked", "idle"),
    SlowKind.COMPILE: ("compile",),
    SlowKind.TRANSFER: ("transfer",),
}


class _SlowWindows(NamedTuple):
    """
    Windows in which the others waited *lag* longer for a rank, or its device worked
    that much longer; in those *explained* it is known what it did.
    """

    side: ComparedRank
    windows: range
    lag: float
    explained: range
    kind: SlowKind | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is as fast as the others again: the latest window may mislead."""
        return self.windows.start > 1


def find_stragglers(
    ranks: Sequence[Rank],
    hosts: Sequence[JobHost] = (),
    limits: Limits | None = None,
    *,
    window: float = WINDOW,
) -> Slowness | None:
    """
    Return what is known of slow *ranks*, which respond and make progress, `None` if
    they cannot be compared; in a time that grows with their number.
    """
    found = compare(ranks, window)
    gpus = _GpuStates(hosts, ranks)
    throttled = tuple((rank, why) for rank in ranks if (why := gpus.throttled(rank)))
    if found is None:
        return Slowness(throttled=throttled) if throttled else None
    least = (limits or Limits()).rank_slow_share
    waits = TimeFractions(found, ("waits",), least)
    # What waits in a copy to the device may wait for others there.
    either = TimeFractions(found, ("waits", "transfer"), least)
    held = stoppages(found.sides)
    alone = TimeFractions(found, ("alone",), least)
    together = TimeFractions(found, ("together",), least, sampled=True)
    devices = [idleness(found.sides, of) for of in (busy_for_certain, busy_by_estimate)]
    runs: dict[int, _SlowWindows] = {}
    for number in range(len(found.sides)):
        run = (
            _host_bound(waits, devices, held, number)
            or _host_bound(either, devices, held, number)
            or _device_bound(alone, together, number)
        )
        if run is not None:
            runs[number] = run
    accounts = _Accounts(found)
    worst = sorted(runs.values(), key=lambda run: -run.lag)[:_MOST_SLOW]
    slow = [_straggler(run, found, accounts, gpus) for run in worst]
    step = accounts.step(range(WINDOWS), *found.sides)
    return Slowness(
        tuple(straggler for straggler in slow if not straggler.ended_seconds),
        tuple(straggler for straggler in slow if straggler.ended_seconds),
        step,
        _lost(found, runs, waits, alone) * step,
        throttled,
    )


def _host_bound(
    waits: TimeFractions,
    devices: Sequence[Excess],
    held: Callable[[ComparedRank, range], float],
    number: int,
) -> _SlowWindows | None:
    """Return when the others waited for the rank *number*, which did not."""
    row = waits.rows[number]
    lags = [usual - fraction for usual, fraction in zip(waits.high, row, strict=True)]
    for windows in waits.slow(number, lags):
        lag = waits.usual(number, windows, high=True) - waits.of(number, windows)
        if lag < waits.least(number, lags, windows):
            continue
        side = waits.sides[number]
        wait = median_low([row[window] for window in windows])
        certain, likely = [idle(side, windows) for idle in devices]
        if (
            held(side, windows) >= lag / 2
            or (certain is not None and certain >= lag / 2)
            or _is_behind(side, windows, lag / 2, wait, likely)
        ):
            return _SlowWindows(side, windows, lag, windows)
    return None


def _is_behind(
    side: ComparedRank, windows: range, least: float, wait: float, idle: float | None
) -> bool:
    """
    Return whether the host of *side* has not kept ahead of its device in *windows*:
    this must have been without work for *least* of the time. For *wait* the host has
    waited for it, and for *idle* it worked less than those of others, by estimates.
    """
    surely = side.ratio("ahead", windows) + side.ratio("held", windows)
    if 1.0 - surely < least:
        return False
    if wait <= _NO_WAIT:
        return True
    return wait <= _LITTLE_WAIT if idle is None else idle >= least


def _device_bound(
    alone: TimeFractions, together: TimeFractions, number: int
) -> _SlowWindows | None:
    """Return when a rank's device waited less than others, for programs of its own."""
    row, side = together.rows[number], together.sides[number]
    lags = [
        usual - fraction for usual, fraction in zip(together.high, row, strict=True)
    ]
    for windows in together.slow(number, lags):
        lag = together.usual(number, windows, high=True) - together.of(number, windows)
        # It takes a while until enough of its own programs have been sampled.
        latest = range(windows.start, windows.start + 1)
        longer = alone.of(number, latest) - alone.usual(number, latest, high=False)
        if lag >= together.least(number, lags, windows) and longer >= lag / 2:
            return _SlowWindows(side, windows, longer, latest, SlowKind.COMPUTE)
    return None


class _Accounts:
    def __init__(self, found: RankComparison) -> None:
        self._found = found

    def step(self, windows: range, *sides: ComparedRank) -> float:
        """Return the seconds of a step in *windows*, of the median of *sides*."""
        steps = self._found.steps(windows)
        seconds = median_low([side.spent("seconds", windows) for side in sides])
        return seconds / steps if steps > 0 else 0.0

    def of(self, side: ComparedRank, windows: range, kind: SlowKind | None) -> float:
        """Return the part of time spent on *kind*, or if `None`, not waiting."""
        if kind is None:
            return 1.0 - side.ratio("waits", windows)
        # A thread without a processor is a process that does not run.
        return max(side.ratio(column, windows) for column in _COLUMNS[kind])

    @cache  # noqa: B019 - as long as the comparison
    def usual(self, windows: range, kind: SlowKind | None) -> float:
        """Return that of the median rank."""
        return median_low([self.of(side, windows, kind) for side in self._found.sides])

    def was_faster(self, side: ComparedRank, kind: SlowKind | None, now: float) -> bool:
        """Return whether it took less of a step than *now*, before all windows."""
        steps = self._found.steps_before
        if kind is None:
            spent = side.spent_before("seconds") - side.spent_before("waits")
        else:
            spent = max(side.spent_before(column) for column in _COLUMNS[kind])
        return spent * FASTER_BEFORE < now * steps

    def kind(self, run: _SlowWindows) -> SlowKind:
        """Return what the rank does while others wait."""

        def more(kind: SlowKind) -> float:
            fraction = self.of(run.side, run.windows, kind)
            return fraction - self.usual(run.windows, kind)

        # A process whose threads contend for the GIL seems to lack processors, too.
        if more(SlowKind.HOST) >= max(run.lag * _MOST_OF_IT, 2 * more(SlowKind.GIL)):
            return SlowKind.HOST
        return max(_OWN.values(), key=more)


def _straggler(
    run: _SlowWindows, found: RankComparison, accounts: _Accounts, gpus: _GpuStates
) -> Straggler:
    side, windows, explained = run.side, run.windows, run.explained
    kind = run.kind or accounts.kind(run)
    whole = kind if kind is SlowKind.COMPUTE else None
    step = accounts.step(explained, side)
    busy = accounts.of(side, explained, whole) * step
    before = range(windows.stop, found.windows)
    past = None
    if before:
        past = accounts.of(side, before, whole) * accounts.step(before, side)
    place = _place(side.rank, kind, [side.rank for side in found.sides[:_MOST_PEERS]])
    ended = found.ages[windows.start] if run.is_over else 0.0
    return Straggler(
        side.rank,
        kind,
        run.lag,
        accounts.of(side, explained, kind) * step,
        accounts.usual(explained, kind) * step,
        busy,
        _times(busy, accounts.usual(explained, whole) * step),
        None if past is None else _times(busy, past),
        # Where it was lately says nothing of what was before.
        "" if ended else place.place,
        "" if ended else place.activity,
        side.rank.alone if kind is SlowKind.COMPUTE and not ended else "",
        found.ages[windows.stop] - found.ages[windows.start],
        always=not (before or accounts.was_faster(side, whole, busy)),
        ended_seconds=ended,
        throttled=gpus.throttled(side.rank),
        xids=gpus.xids(side.rank),
    )


def _place(rank: Rank, kind: SlowKind, others: Sequence[Rank]) -> RecentLine:
    states = _STATES.get(kind, ())

    def ratio(line: RecentLine) -> float:
        found = [
            {of.place: of.ratio for of in other.places if of.state in states}
            for other in others
        ]
        return line.ratio - median_low([of.get(line.place, 0.0) for of in found])

    lines = [line for line in rank.places if line.state in states and line.place]
    return max(lines, key=ratio, default=RecentLine())


def _times(seconds: float, other: float) -> float:
    return seconds / other if other > 0 else math.inf


def _lost(
    found: RankComparison,
    runs: Mapping[int, _SlowWindows],
    waits: TimeFractions,
    alone: TimeFractions,
) -> float:
    now = {number: run for number, run in runs.items() if not run.is_over}
    rest = [number for number in range(len(found.sides)) if number not in now]
    lost = 0.0
    for device, scale in ((False, waits), (True, alone)):
        latest = range(1 if device else WINDOWS)
        slow = [
            scale.of(number, latest)
            for number, run in now.items()
            if (run.kind is SlowKind.COMPUTE) is device
        ]
        others = sorted([scale.of(number, latest) for number in rest], reverse=device)
        if slow and others:
            # The very slowest of thousands is an error of sampling.
            usual = others[len(others) // _OTHERS]
            lost = max(lost, max(slow) - usual if device else usual - min(slow))
    return lost


class _GpuStates:
    def __init__(self, hosts: Sequence[JobHost], ranks: Sequence[Rank]) -> None:
        self._reasons: dict[str, tuple[str, ...]] = {}
        self._xids: dict[str, list[str]] = {}
        for host in hosts:
            for gpu in host.gpus:
                self._reasons[gpu.uuid] = gpu.throttled
            for xid in host.xids:
                self._xids.setdefault(xid.uuid, []).append(xid.xid)
        found = [self._of(rank) for rank in ranks] if self._reasons else []
        times = Counter(reason for reasons in found for reason in reasons)
        # If it holds for most, it is how they are set up.
        self._usual = {reason for reason in times if 2 * times[reason] >= len(found)}

    def throttled(self, rank: Rank) -> tuple[str, ...]:
        """Return why GPUs of *rank* are throttled, if those of most are not."""
        return tuple(sorted(self._of(rank) - self._usual))

    def xids(self, rank: Rank) -> tuple[str, ...]:
        """Return the errors of its GPUs."""
        found = {xid for uuid in rank.gpus for xid in self._xids.get(uuid, ())}
        return tuple(sorted(found))

    def _of(self, rank: Rank) -> set[str]:
        return {reason for uuid in rank.gpus for reason in self._reasons.get(uuid, ())}
