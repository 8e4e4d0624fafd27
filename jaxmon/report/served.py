"""What a program says about its requests and queues, as typed data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a route; *fill_ratio* is their mean fill, `None` without any."""

    count: int = 0
    fill_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Finished requests of one outcome and start."""

    outcome: str = ""
    start: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """The requests of one route."""

    name: str = ""
    finished: tuple[Finished, ...] = ()
    batches: Batches = field(default_factory=Batches)


@dataclass(frozen=True, slots=True)
class Queue:
    """
    The depth of one queue.

    Attributes:
        depth: items waiting now.
        growth_seconds: the time over which the depth is known, at most ten minutes.
        lows: the lowest depth in each third of that time; empty if it was read too
            rarely.
        highs: the highest ones.
    """

    name: str = ""
    depth: int = 0
    growth_seconds: float = 0.0
    lows: tuple[int, ...] = ()
    highs: tuple[int, ...] = ()
