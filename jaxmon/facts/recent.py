"""What happened between two readings, process by process."""

from __future__ import annotations

from collections import deque

from jaxmon.catalog import Metric
from jaxmon.facts.distributions import Observations
from jaxmon.facts.reading import Key, Reading


YOUNG = 90.0
_SAME_START = 1.0

MINUTE, TEN_MINUTES = 60.0, 600.0
_MOST = 6
# Shorter differences are chance; longer ones, as multiples, are not of that time.
_LEAST, _OLDEST = 10.0, 3


class Recent:
    """
    Differences of two readings.

    Args:
        now: the latest one.
        before: the one to compare with, `None` if there is none.
        young: age in seconds up to which all that a process did is recent.
    """

    def __init__(
        self, now: Reading, before: Reading | None, *, young: float = YOUNG
    ) -> None:
        self._now, self._before, self._young = now, before, young
        self._known = _processes(before) if before is not None else frozenset()

    def seconds(self, worker: str) -> float | None:
        """
        Return the time that the differences of the process *worker* are about; `None`
        if it was not read before, and is not young, or adds to what others counted.
        """
        if self._before is not None and self._is_old(worker):
            return self._now.time - self._before.time
        return self._age(worker)

    def values(self, metric: Metric) -> dict[Key, float]:
        """Return by how much each counter *metric* rose, if that is known."""
        found = {}
        for key, value in self._now.of(metric).items():
            if self.seconds(key[0]) is not None:
                before = self._value_before(metric, key)
                found[key] = value - before if before <= value else value
        return found

    def distributions(self, metric: Metric) -> dict[Key, Observations]:
        """Return what each histogram *metric* observed, if that is known."""
        return {
            key: one.since(self._distribution_before(metric, key))
            for key, one in self._now.distributions(metric).items()
            if self.seconds(key[0]) is not None
        }

    def sums(self, metric: Metric) -> dict[str, float]:
        """Return how fast the sum over all functions of *metric* rose, by process."""
        before = self._before
        found = {}
        for worker, value in self._now.sums.get(metric.name, {}).items():
            if seconds := self.seconds(worker):
                old = before is not None and self._is_old(worker)
                past = before.sums.get(metric.name, {}) if before and old else {}
                rose = value - past.get(worker, 0.0)
                found[worker] = (rose if rose >= 0 else value) / seconds
        return found

    def usual(self, metric: Metric) -> dict[Key, Observations]:
        """Return what each histogram *metric* of processes that are old observed."""
        return {
            key: one
            for key in self._now.distributions(metric)
            if (one := self._distribution_before(metric, key)) is not None
        }

    def _value_before(self, metric: Metric, key: Key) -> float:
        if self._before is None or not self._is_old(key[0]):
            return 0.0
        return self._before.of(metric).get(key, 0.0)

    def _distribution_before(self, metric: Metric, key: Key) -> Observations | None:
        if self._before is None or not self._is_old(key[0]):
            return None
        return self._before.distributions(metric).get(key)

    def _is_old(self, worker: str) -> bool:
        """Return whether the process is the one that was read before, and not young."""
        before, now = self._before, self._now
        if before is None or worker not in self._known:
            return False
        first, started = before.started(worker), now.started(worker)
        if first is None or started is None:
            return True
        return abs(first - started) < _SAME_START and self._age(worker) is None

    def _age(self, worker: str) -> float | None:
        """Return the age of a process that is young, and alone counted in its slot."""
        started = self._now.started(worker)
        if started is None or self._now.inherited(worker):
            return None
        age = self._now.time - started
        return age if 0 < age < self._young else None


class Window:
    """Keeps a few readings: there is one from about a minute ago, and from ten."""

    def __init__(self) -> None:
        self._kept: dict[float, deque[Reading]] = {
            seconds: deque() for seconds in (MINUTE, TEN_MINUTES)
        }

    def add(self, reading: Reading) -> None:
        """Keep *reading*, unless there is one from just before it."""
        compared = reading.compared()
        for seconds, kept in self._kept.items():
            if kept and kept[-1].time > reading.time:  # the clock was set back
                kept.clear()
            if kept and reading.time - kept[-1].time < seconds / _MOST:
                continue
            kept.append(compared)
            # The first one is the youngest that is old enough.
            while len(kept) > 1 and reading.time - kept[1].time >= seconds:
                kept.popleft()

    def before(self, time: float, seconds: float = MINUTE) -> Reading | None:
        """
        Return the reading of so many *seconds* before *time* to compare with, of less
        if there is none as old; `None` without one.
        """
        kept = self._kept[seconds]
        if not kept or not _LEAST <= time - kept[0].time < _OLDEST * seconds:
            return None
        return kept[0]


def _processes(reading: Reading) -> frozenset[str]:
    """Return the processes that *reading* has something of."""
    every = (*reading.values.values(), *reading.histograms.values())
    return frozenset(key[0] for of in every for key in of)
