"""What a program says about its requests, steps and queues, as typed data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a route; *fill_ratio* is their mean fill, `None` without any."""

    count: int = 0
    fill_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Finished requests of one outcome and start, and their latency."""

    outcome: str = ""
    start: str = ""
    count: int = 0
    mean_seconds: float | None = None
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """
    Requests that failed with one exception on one line.

    Attributes:
        error: class of the exception, or how the program responded.
        where: ``file:line``; empty if it raised none.
        latest: Unix time of the latest.
    """

    error: str = ""
    where: str = ""
    count: int = 0
    latest: float = 0.0


@dataclass(frozen=True, slots=True)
class Route:
    """The requests of one route; the oldest in progress began *oldest_seconds* ago."""

    name: str = ""
    in_progress: int = 0
    oldest_seconds: float = 0.0
    finished: tuple[Finished, ...] = ()
    failures: tuple[Failure, ...] = ()
    batches: Batches = field(default_factory=Batches)


@dataclass(frozen=True, slots=True)
class Loop:
    """
    The steps of the loops of one name; `None` if there are none yet.

    Attributes:
        running: number of such loops that run now.
        mean_seconds: of a step, waiting for its data included.
        data_wait_ratio: fraction of the steps spent waiting for data.
        last_step_seconds: since the last step, or the start of a loop.
    """

    name: str = ""
    steps: int = 0
    running: int = 0
    mean_seconds: float | None = None
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    data_wait_ratio: float | None = None
    last_step_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """
    Saves or restores of checkpoints.

    Attributes:
        name: the operation, such as ``save``.
        failures: those that failed.
        failed_in_a_row: those of them after the latest that succeeded.
    """

    name: str = ""
    failures: int = 0
    failed_in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class Queue:
    """
    The depth of one queue.

    Attributes:
        depth: items waiting now.
        maximum: the most that ever waited.
        growth: items more than *growth_seconds* ago; `None` if unknown.
        growth_seconds: the time over which the depth is known, at most ten minutes.
        lows: the lowest depth in each third of that time; empty if it was read too
            rarely.
        highs: the highest ones.
    """

    name: str = ""
    depth: int = 0
    maximum: int = 0
    growth: int | None = None
    growth_seconds: float = 0.0
    lows: tuple[int, ...] = ()
    highs: tuple[int, ...] = ()
