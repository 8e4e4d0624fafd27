"""What ended processes counted and no scrape has had yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from jaxmon.catalog import AGENT_ENDED_SECONDS, AGENT_STARTS
from jaxmon.exposition.families import Family
from jaxmon_exporter.collecting import Clock


_EVERY = 0.1


class Unseen:
    """
    Which ended processes were in a response, or a push.

    Args:
        families: returns the latest values.
        clock: seconds.
    """

    def __init__(
        self, families: Callable[[], Iterable[Family]], *, clock: Clock
    ) -> None:
        self._families = families
        self._clock = clock
        self._seen: set[tuple[str, float]] = set()

    def seen(self, families: Iterable[Family]) -> None:
        """Note that *families* are about to be sent."""
        self._seen = _ended(families)

    def wait(self, seconds: float, *, least: float) -> None:
        """
        Wait until all have been seen, at most *seconds*, and at least *least* of them,
        so that what has just ended is known.
        """
        begun = self._clock()
        pause = threading.Event()
        while (waited := self._clock() - begun) < seconds:
            if waited >= least and _ended(self._families()) <= self._seen:
                return
            pause.wait(_EVERY)


def _ended(families: Iterable[Family]) -> set[tuple[str, float]]:
    """Return the workers that have ended, with how many started in their slot."""
    ended: set[str] = set()
    starts: dict[str, float] = {}
    for family in families:
        if family.metric.name == AGENT_ENDED_SECONDS.name:
            ended |= {_labels(name) for name, _ in family.samples}
        elif family.metric.name == AGENT_STARTS.name:
            starts.update((_labels(name), number) for name, number in family.samples)
    return {(worker, starts.get(worker, 0)) for worker in ended}


def _labels(name: str) -> str:
    return name.partition("{")[2]
