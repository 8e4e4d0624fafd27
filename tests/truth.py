"""Times that a test takes itself, beside those that are exported."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax

from jaxmon.agent.sampling.part import Sampling
from tests import naps
from tests.sampled import arm, execution_times, idle


# For a measurement that agrees: where there is much other work most are not exported.
SECONDS = 300.0


class Comparison:
    """
    Execution times of the function called *name* beside times that the test takes in
    between. Other load on the machine makes single ones of either longer, so the
    shortest are compared: figures that held another call's work would all be too long,
    and those of the dispatch alone next to nothing.
    """

    def __init__(self, sampling: Sampling, name: str) -> None:
        self._sampling, self._name = sampling, name
        self._seen = len(execution_times(sampling, name))
        self._truth: list[float] = []

    def __repr__(self) -> str:
        return f"{self._own()} beside {sorted(self._truth)}"

    def take(self, seconds: float) -> None:
        """Take a time of the test's own."""
        self._truth.append(seconds)

    def agree(self) -> bool:
        """Return whether they agree."""
        own = self._own()
        return bool(own) and 0.5 < own[0] / min(self._truth) < 1.6

    def silent(self) -> bool:
        """Return whether there are no execution times to compare."""
        return not self._own()

    def _own(self) -> list[float]:
        return sorted(execution_times(self._sampling, self._name)[self._seen :])


def agreed_once(attempt: Callable[[], Comparison], *, silent: bool = False) -> None:
    """
    Fail unless an attempt agrees, or is *silent*, where it may be: what is wrong is
    wrong each time, while other load on a small machine comes and goes.
    """

    def agree() -> bool:
        last = attempt()
        tried.append(last)
        return last.agree() or (silent and last.silent())

    tried: list[Comparison] = []
    sometime(agree, tried)


def sometime(attempt: Callable[[], bool], seen: object = "") -> None:
    """Fail with what was *seen* unless an *attempt* succeeds in time."""
    deadline = time.monotonic() + SECONDS
    while not attempt():
        assert time.monotonic() < deadline, seen


def looking(sampling: Sampling) -> float:
    """Return the processor seconds that the thread that polls has used."""
    thread = sampling._watcher._scheduler._ticker
    if thread is None:
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


def nearest(seconds: float, truth: list[float]) -> float:
    """
    Return *seconds* over the time in *truth* that is nearest. The calls there are
    alike, but for what else the machine has to do.
    """
    return seconds / min(truth, key=lambda one: abs(one - seconds))


def fifth(values: list[float]) -> float:
    """Return what a fifth of *values* are below."""
    return sorted(values)[len(values) // 5]


class Naps:
    """Napping programs, called and sampled, next to what they record."""

    def __init__(self, sampling: Sampling, milliseconds: int, *, waits: bool) -> None:
        self._sampling, self._waits = sampling, waits
        self._name = f"nap{milliseconds}"
        self._step = naps.napping(self._name)
        self._argument = naps.duration(milliseconds / 1000)
        jax.block_until_ready(self._step(self._step(self._argument)))

    def ratios(self, rounds: int, calls: int = 6) -> list[float]:
        """Return exported times over true ones."""
        found = []
        for _ in range(rounds):
            seen = len(execution_times(self._sampling, self._name))
            arm(self._sampling)
            begun, results = [], [self._argument]
            for _ in range(calls):
                begun.append(time.perf_counter())
                results.append(self._step(results[-1]))
                if self._waits:
                    jax.block_until_ready(results[-1])
            jax.block_until_ready(results)
            idle(self._sampling)
            # The second call is timed: it is the first whose predecessor is known.
            ends = [naps.told(result)[1] for result in results[1:3]]
            truth = ends[1] - max(ends[0], begun[1])
            own = execution_times(self._sampling, self._name)[seen:]
            found += [seconds / truth for seconds in own]
        return found
