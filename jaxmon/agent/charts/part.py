"""
Keeps how a run went, for its report: charts, and how times of steps and requests vary.

Polls what others count, once a second on the sampling thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxmon.agent.calibration import work
from jaxmon.agent.charts.counters import MOST_MEANS, Counters
from jaxmon.agent.charts.moments import Moment, Moments
from jaxmon.agent.context import Context
from jaxmon.agent.part import Explanation, Part
from jaxmon.clocks import monotonic, perf_counter, wall_time
from jaxmon.facts.spread import spread_of
from jaxmon.indicators.figures import Indicators
from jaxmon.resources.process import peak_resident_bytes, resident_bytes
from jaxmon.resources.processors import scheduling


_SECONDS = 1.0
# A poll comes a little early or late; the last one may be of less than a second.
_EARLY, _LEAST = 0.1, 0.5
_MEMORY = ("device_memory", "host_memory")


class Charts(Part):
    """
    Args:
        context: shared state of the agent.
        indicators: the loops and routes that the program marks.
        memory: returns the last snapshot of device memory.
    """

    name = "charts"

    def __init__(
        self,
        context: Context,
        indicators: Indicators,
        memory: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._counters = Counters(context.table, indicators.loops, indicators.routes)
        self._memory = memory
        self._moments = Moments(_MEMORY)
        self._polled = monotonic()
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
        self._moments.add(Moment(time, values))
        before = perf_counter()
        work()
        self._work.append(perf_counter() - before)

    def _bytes(self) -> Iterator[tuple[str, float]]:
        if (resident := resident_bytes()) is not None:
            yield "host_memory", resident
        for key in ("in_use", "live_bytes"):
            known = [one.get(key) for one in self._memory().get("devices", ())]
            if found := [one for one in known if one]:
                yield "device_memory", sum(found)
                return

    def explain(self) -> Explanation:
        """Return the charts, and what is usual."""
        return Explanation({"charts": self._moments.as_json, "usual": self.usual})

    def usual(self) -> dict[str, Any]:
        """
        Return how the times of steps and requests vary, by loop and route, and those of
        the same piece of work in every run; the peak of the process's memory in bytes;
        for which part of the time in which its threads could run they waited for a
        processor.
        """
        scheduled = scheduling()
        return {
            "steps": self._counters.steps.spreads(),
            "requests": self._counters.requests.spreads(),
            "work": spread_of(list(self._work)),
            "peak_resident_bytes": peak_resident_bytes(),
            "waiting": None if scheduled is None else scheduled.waiting(),
        }
