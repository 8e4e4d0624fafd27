"""What loops, routes and compiles did between two moments."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from jaxmon.agent.functions import FunctionTable
from jaxmon.facts.spread import spread_of
from jaxmon.indicators.loops import Loops
from jaxmon.indicators.routes import Routes


MOST_MEANS = 100
"""Number of means kept of each loop and route."""

_WARM = ("success", "warm")


class Means:
    """
    The mean times of things by name, each over the time between two polls: at most
    `MOST_MEANS` of each, so that a moment of noise is one of a hundred.
    """

    def __init__(self) -> None:
        self._kept: dict[str, deque[float]] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    def add(self, name: str, count: int, seconds: float) -> tuple[int, float]:
        """
        Add what happened since the last time, out of the *count* and the sum of
        *seconds* so far; return by how much they rose.
        """
        before, spent = self._seen.get(name, (0, 0.0))
        self._seen[name] = count, seconds
        fresh, took = count - before, max(seconds - spent, 0.0)
        if fresh > 0:
            kept = self._kept.setdefault(name, deque(maxlen=MOST_MEANS))
            kept.append(took / fresh)
        return fresh, took

    def spreads(self) -> dict[str, Mapping[str, float] | None]:
        """Return how the means of each vary."""
        return {name: spread_of(list(one)) for name, one in self._kept.copy().items()}


class Counters:
    """
    Polls the counters of a program.

    Attributes:
        steps: mean times of steps, by loop.
        requests: mean latencies of successful requests that waited for no compile, by
            route.
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
        """
        Yield what happened since the last time, *seconds* ago, by series. Costs 10 µs,
        and one or two for each function.
        """
        if (rose := _total(self._stepped())) is not None:
            yield "steps", rose[0] / seconds
            if rose[0]:
                yield "step_seconds", rose[1] / rose[0]
        if (rose := _total(self._served())) is not None:
            yield from self._rates(seconds)
            if rose[0]:
                yield "latency", rose[1] / rose[0]
        spent, self._compiling = self._compiling, self._compiled()
        yield "compiling", min(max(self._compiling - spent, 0.0) / seconds, 1.0)

    def _stepped(self) -> Iterator[tuple[int, float]]:
        for loop in self._loops:
            yield self.steps.add(loop.name, loop.steps, loop.seconds.sum)

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
        return sum(
            phase.sum
            for function in self._table
            for name, phase in function.phases.copy().items()
            if name != "cache_retrieval"
        )


def _total(rises: Iterable[tuple[int, float]]) -> tuple[int, float] | None:
    """Return the sums of *rises*, `None` without any."""
    every = list(rises)
    if not every:
        return None
    return sum(count for count, _ in every), sum(spent for _, spent in every)
