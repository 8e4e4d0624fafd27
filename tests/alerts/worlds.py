"""
Random worlds of processes that end at any moment, as scrapes see them, and a ledger.

Each world is one slot: processes one after the other. Each exports how long it counts
from its start on, and each labelled series from its first event on. Most are killed; of
those that finish, the counts are served for a while, and the next process adds to them.
"""

import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.alerts.tape import Tape


STEP = 5
"""Seconds between two values of promtool's series; scrapes are multiples of it."""

_LEFT = 300.0


@dataclass(frozen=True)
class Process:
    """
    Args:
        start: when its agent started.
        end: when it ended.
        events: when what it counts happened, by label, in order.
        loads: how long before `start` the process itself started.
        finishes: whether it is not killed.
    """

    start: float
    end: float
    events: dict[str, list[float]]
    loads: float = 1.0
    finishes: bool = False

    def counts(self, at: float) -> dict[str, int]:
        """Return what it had counted at a moment: no series before its first event."""
        found = {label: bisect(times, at) for label, times in self.events.items()}
        return {label: count for label, count in found.items() if count}


class Page(NamedTuple):
    """
    What a scrape sees.

    Args:
        chain: number of the process that began at zero.
        counts: by label, since then.
        counting: seconds since then.
        process: that which responded, `None` for what is left of one.
    """

    chain: int
    counts: dict[str, int]
    counting: float
    process: Process | None


@dataclass
class World:
    """
    Args:
        scrapes: seconds between two scrapes.
        phase: of the first scrape.
        length: seconds.
        processes: one after the other.
        failed: moments of scrapes that fail.
    """

    scrapes: int
    phase: int
    length: int
    processes: list[Process]
    failed: set[int] = field(default_factory=set)

    def pages(self) -> Iterator[tuple[int, Page]]:
        """Yield what each scrape sees that succeeds."""
        for at in range(self.phase, self.length, self.scrapes):
            page = self._page(at)
            if page is not None and at not in self.failed:
                yield at, page

    def ledger(self, interval: int = 1, delay: int = 0) -> dict[str, int]:
        """
        Return what a rule can know, by label, that sees at each evaluation the latest
        sample since the previous one; by default, what scrapes can know.
        """
        counted: dict[tuple[int, str], int] = {}
        pages = dict(self.pages())
        for end in range(-delay, self.length + interval, interval):
            latest: dict[str, tuple[int, int]] = {}
            for at in range(end - interval + 1, end + 1):
                if at in pages:
                    for label, count in pages[at].counts.items():
                        latest[label] = pages[at].chain, count
            for label, (chain, count) in latest.items():
                counted[chain, label] = count
        total: dict[str, int] = {}
        for (_, label), count in counted.items():
            total[label] = total.get(label, 0) + count
        return total

    def series(self, metric: str, labels: str, of: str) -> dict[str, str]:
        """
        Return promtool's series: *metric* with the label *of*, and what says how old
        its process is. *labels* are those of the slot.
        """
        values: dict[str, dict[int, float]] = {}
        for at, page in self.pages():
            own = {
                f'{metric}{{{labels},{of}="{label}"}}': float(count)
                for label, count in page.counts.items()
            }
            own[f"jaxmon_counting_seconds{{{labels}}}"] = page.counting
            if page.process is not None:
                began = page.process.start - page.process.loads
                own[f"jaxmon_uptime_seconds{{{labels}}}"] = at - began
                own[f"process_start_time_seconds{{{labels}}}"] = 1e9 + began
            for name, value in own.items():
                values.setdefault(name, {})[at] = value
        return {name: self._text(found) for name, found in values.items()}

    def _page(self, at: float) -> Page | None:
        begun = [one for one in self.processes if one.start <= at]
        if not begun:
            return None
        latest = begun[-1]
        first = len(begun) - 1
        while first and self._continues(first):
            first -= 1
        counts: dict[str, int] = {}
        for one in begun[first:]:
            for label, count in one.counts(min(at, one.end)).items():
                counts[label] = counts.get(label, 0) + count
        page = Page(first, counts, at - begun[first].start, latest)
        if at < latest.end:
            return page
        left = latest.finishes and at - latest.end <= _LEFT
        return page._replace(process=None) if left else None

    def _continues(self, number: int) -> bool:
        before, process = self.processes[number - 1 : number + 1]
        return before.finishes and process.start - before.end <= _LEFT

    def _text(self, values: dict[int, float]) -> str:
        """Return *values*, with a mark where a scrape no longer has the series."""
        tape = Tape()
        for at in range(self.phase, self.length, self.scrapes):
            if at in values:
                tape.write(at // STEP, values[at])
            else:
                tape.end(at // STEP)
        return tape.text(self.length // STEP)


def world(seed: int, *, failures: float = 0.0, shortest: float = 2.0) -> World:
    """
    Return a random world of half an hour.

    Args:
        seed: of the world.
        failures: how many scrapes fail.
        shortest: life of a process, in scrapes.
    """
    chance = random.Random(seed)  # noqa: S311 - data, no secret
    scrapes, length = chance.choice((15, 15, 30, 60)), 1800
    finishing = chance.choice((0.0, 0.0, 0.5))
    # Alike, as runs of one program are, or not.
    program = chance.choice((None, chance.randrange(1 << 30)))
    processes: list[Process] = []
    now = chance.uniform(60, 200)
    while now < length - 300:
        own = chance if program is None else random.Random(program)  # noqa: S311 - likewise
        life = scrapes * shortest + own.choice((20, 60, 150, 400)) * own.random()
        first = life * own.choice((0.0, 0.2, 0.7))
        rate = own.choice((0.02, 0.5, 3.0))
        events: dict[str, list[float]] = {"success": [], "error": []}
        for label, often in (("success", rate), ("error", rate / own.choice((2, 40)))):
            at = first
            while (at := at + own.expovariate(often)) < life:
                events[label].append(now + at)
        end, loads = min(now + life, length - 200.0), own.uniform(0, 10)
        finishes = chance.random() < finishing
        processes.append(Process(now, end, events, loads, finishes))
        now = end + loads + chance.choice((0.5, 3, 20, 90, 400)) * chance.random()
    found = World(scrapes, STEP * chance.randrange(3), length, processes)
    found.failed = {
        at for at in range(found.phase, length, scrapes) if chance.random() < failures
    }
    return found
