"""
Keeps how a run went, for its report: charts, and how times of steps and requests vary.

Polls what others count, once a second on the sampling thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from jaxmon.agent.context import Context
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.versions import calibration_work
from jaxmon.clocks import monotonic, perf_counter, wall_time
from jaxmon.facts.functions import Spread, spread_of
from jaxmon.facts.marked import Series, Usual
from jaxmon.facts.memory import Memory
from jaxmon.host.resources import process
from jaxmon.indicators.figures import Indicators
from jaxmon.indicators.loops import Loops
from jaxmon.indicators.routes import Routes


MOST = 240
"""Maximum number of moments kept: as many as a chart has room for."""

_DIGITS = 4


class ChartMoment(NamedTuple):
    """Values by series at a Unix *time*; a value that is not known is absent."""

    time: float
    values: Mapping[str, float]


class Moments:
    """
    Keeps at most `MOST` moments: when there are more, each two become one, and each
    later one stands for twice as long.

    later one stands for twice as long. Of *highest*, series, the highest value stands
    for several moments; of others, the mean.

    One thread adds; another may read.
    """

    def __init__(self, highest: Iterable[str] = ()) -> None:
        self._highest = frozenset(highest)
        self._every = 1
        self._kept: list[ChartMoment] = []
        self._waiting: list[ChartMoment] = []

    def add(self, moment: ChartMoment) -> None:
        """Add a moment; costs microseconds."""
        self._waiting.append(moment)
        if len(self._waiting) < self._every:
            return
        kept = [*self._kept, self._merged(self._waiting)]
        self._waiting = []
        if len(kept) >= MOST:
            kept = [self._merged(kept[i : i + 2]) for i in range(0, len(kept), 2)]
            self._every *= 2
        self._kept = kept

    def series(self) -> dict[str, Series]:
        """Return times and values by name."""
        kept, waiting = self._kept, list(self._waiting)
        every = [*kept, self._merged(waiting)] if waiting else kept
        found: dict[str, list[tuple[float, float]]] = {}
        for sample in every:
            for name, value in sample.values.items():
                rounded = round(sample.time, 2), float(f"{value:.{_DIGITS}g}")
                found.setdefault(name, []).append(rounded)
        return {name: Series(*zip(*of, strict=True)) for name, of in found.items()}

    def _merged(self, several: list[ChartMoment]) -> ChartMoment:
        if len(several) == 1:
            return several[0]
        values = {}
        for name in {name: None for moment in several for name in moment.values}:
            found = [moment.values[name] for moment in several if name in moment.values]
            values[name] = (
                max(found) if name in self._highest else sum(found) / len(found)
            )
        return ChartMoment(several[-1].time, values)


MOST_MEANS = 100
"""Number of means kept of each loop and route."""

_WARM = ("success", "warm")


class Means:
    """The mean times of things by name between two polls, at most `MOST_MEANS` each."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[float]] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    def add(self, name: str, count: int, seconds: float) -> tuple[int, float]:
        """Add what the *count* and the sum of *seconds* rose by, and return that."""
        before, spent = self._seen.get(name, (0, 0.0))
        self._seen[name] = count, seconds
        fresh, took = count - before, max(seconds - spent, 0.0)
        if fresh > 0:
            self._kept.setdefault(name, deque(maxlen=MOST_MEANS)).append(took / fresh)
        return fresh, took

    def spreads(self) -> dict[str, Spread]:
        """Return how the means of each vary."""
        kept = self._kept.copy().items()
        found = ((name, spread_of(list(means))) for name, means in kept)
        return {name: spread for name, spread in found if spread is not None}


class ChartCounters:
    """
    Polls the counters of a program: mean times by loop of `steps`, and by route of
    successful `requests` that waited for no compile.
    """

    def __init__(self, table: FunctionTable, loops: Loops, routes: Routes) -> None:
        self._table = table
        self._loops = loops
        self._routes = routes
        self._finished = self._failed = 0
        self._compiling = 0.0
        self.steps = Means()
        self.requests = Means()

    def poll(self, seconds: float) -> Iterator[tuple[str, float]]:
        """Yield what happened in the last *seconds*, by series."""
        stepped = (self.steps.add(o.name, o.steps, o.seconds.sum) for o in self._loops)
        if (rose := _total(stepped)) is not None:
            yield "steps", rose[0] / seconds
            if rose[0]:
                yield "step_seconds", rose[1] / rose[0]
        if (rose := _total(self._served())) is not None:
            yield from self._rates(seconds)
            if rose[0]:
                yield "latency", rose[1] / rose[0]
        spent, self._compiling = self._compiling, self._compiled()
        yield "compiling", min(max(self._compiling - spent, 0.0) / seconds, 1.0)

    def _served(self) -> Iterator[tuple[int, float]]:
        for route in self._routes:
            warm = route.seconds.get(_WARM)
            count, spent = (0, 0.0) if warm is None else (warm.count, warm.sum)
            yield self.requests.add(route.name, count, spent)

    def _rates(self, seconds: float) -> Iterator[tuple[str, float]]:
        finished = failed = 0
        for route in self._routes:
            for (outcome, _), count in route.counts.copy().items():
                finished += count
                failed += count if outcome == "error" else 0
        before, self._finished = self._finished, finished
        yield "requests", max(finished - before, 0) / seconds
        before, self._failed = self._failed, failed
        yield "errors", max(failed - before, 0) / seconds

    def _compiled(self) -> float:
        every = [
            phase.sum
            for function in self._table
            for name, phase in function.phases.copy().items()
            if name != "cache_retrieval"
        ]
        return sum(every)


def _total(rises: Iterable[tuple[int, float]]) -> tuple[int, float] | None:
    every = list(rises)
    if not every:
        return None
    return sum(count for count, _ in every), sum(spent for _, spent in every)


_SECONDS = 1.0
# A poll comes a little early or late; the last one may be of less than a second.
_EARLY, _LEAST = 0.1, 0.5
_MEMORY = ("device_memory", "host_memory")


class Charts(Part):
    """Charts of what *indicators* mark, and of the last snapshot of *memory*."""

    name = "charts"

    def __init__(
        self, context: Context, indicators: Indicators, memory: Callable[[], Memory]
    ) -> None:
        self._counters = ChartCounters(
            context.table, indicators.loops, indicators.routes
        )
        self._memory = memory
        self._moments = Moments(_MEMORY)
        self._polled = context.began
        self._work: deque[float] = deque(maxlen=MOST_MEANS)
        context.observers.timer.append(self._tick)

    def _tick(self) -> None:
        if monotonic() - self._polled >= _SECONDS - _EARLY:
            self._poll()

    def refresh(self, *, asked: bool) -> None:
        """Poll what happened since the last time, unless that was just now."""
        del asked
        if monotonic() - self._polled >= _LEAST:
            self._poll()

    def _poll(self) -> None:
        # Together: on a busy machine, what follows may take as long as it likes.
        now, time = monotonic(), wall_time()
        seconds, self._polled = now - self._polled, now
        values = dict([*self._counters.poll(seconds), *self._bytes()])
        self._moments.add(ChartMoment(time, values))
        before = perf_counter()
        calibration_work()
        self._work.append(perf_counter() - before)

    def _bytes(self) -> Iterator[tuple[str, float]]:
        if (resident := process.resident_bytes()) is not None:
            yield "host_memory", resident
        for key in ("in_use", "live_bytes"):
            sizes = [getattr(device, key) for device in self._memory().devices]
            if found := [size for size in sizes if size]:
                yield "device_memory", sum(found)
                return

    def explain(self) -> Explanation:
        """Return the charts, and what is usual."""
        return Explanation({"charts": self._moments.series, "usual": self.usual})

    def usual(self) -> Usual:
        """Return how times vary, and what the process had at most."""
        scheduled = process.scheduling()
        return Usual(
            steps=self._counters.steps.spreads(),
            requests=self._counters.requests.spreads(),
            work=spread_of(list(self._work)) or Spread(),
            peak_resident_bytes=process.peak_resident_bytes(),
            waiting=None if scheduled is None else scheduled.waiting(),
        )
