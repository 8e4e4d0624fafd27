"""What a program marks: requests, steps, queues, checkpoints, values."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts.functions import Spread
from jaxmon.facts.record import NOTHING, Fact


class Batches(Fact):
    """The batches of a route; *fill_ratio* is their mean fill, `None` without any."""

    count: int = 0
    fill_ratio: float | None = None


class Finished(Fact):
    """Finished requests of one outcome and start, and their latency."""

    outcome: str = ""
    start: str = ""
    count: int = 0
    mean_seconds: float | None = None
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None


class Failure(Fact):
    """
    Requests that failed with one exception on one line.

    Attributes:
        error: class of the exception, or how the program responded.
        where: ``file:line``; empty if it raised none.
        latest: Unix time of the latest.
        message: first line of the message of one of them, as far as it may be shown.
    """

    error: str = ""
    where: str = ""
    count: int = 0
    latest: float = 0.0
    message: str = ""


class RouteFacts(Fact):
    """
    The requests of one route.

    Attributes:
        oldest_seconds: age of the oldest request in progress.
        queued: requests in progress with an item in a queue.
        left: finished requests whose caller left before the response began.
        left_lately: the same in the last ten minutes; 0 after two without any.
    """

    name: str = ""
    in_progress: int = 0
    oldest_seconds: float = 0.0
    queued: int = 0
    left: int = 0
    left_lately: int = 0
    failures: tuple[Failure, ...] = ()
    finished: tuple[Finished, ...] = ()
    batches: Batches = Batches()


class Loop(Fact):
    """
    The steps of the loops of one name; `None` if there are none yet.

    Attributes:
        running: number of such loops that run now.
        mean_seconds: of a step, waiting for its data included.
        data_wait_seconds: spent waiting for data.
        data_wait_ratio: fraction of the steps that this is.
        last_step_seconds: since the last step, or the start of a loop.
    """

    name: str = ""
    steps: int = 0
    running: int = 0
    mean_seconds: float | None = None
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None
    data_wait_seconds: float = 0.0
    data_wait_ratio: float | None = None
    last_step_seconds: float | None = None


class Checkpoints(Fact):
    """
    Saves or restores of checkpoints.

    Attributes:
        name: the operation, such as ``save``.
        count: those that finished, which took *mean_seconds*.
        failures: those that failed.
        failed_in_a_row: those of them after the latest that succeeded.
    """

    name: str = ""
    count: int = 0
    mean_seconds: float | None = None
    p95_seconds: float | None = None
    in_progress: int = 0
    failures: int = 0
    failed_in_a_row: int = 0
    bytes: float = 0.0


class QueueFacts(Fact):
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


class LoggedValue(Fact):
    """
    A value that the program logged.

    Attributes:
        step: of the program, or counted from 1.
        time: Unix time, if known.
        kind: ``nan`` or ``inf``; empty if finite.
        usual: the median before it.
    """

    step: int = 0
    value: float = 0.0
    time: float = 0.0
    kind: str = ""
    usual: float = 0.0


class Quantity(Fact):
    """
    A quantity that the program logs, as in `jaxmon.indicators.values`.

    Attributes:
        count: number of values.
        nonfinite: how many are not finite.
        run: how many of these are the latest.
        since: the first of these.
        latest: the latest finite value.
        spikes: values far above those before them.
        spike: the latest of these.
        first: median of the first values.
        best: lowest median of consecutive values.
        floor: what nine tenths of the latest 50 values exceed.
    """

    name: str = ""
    count: int = 0
    nonfinite: int = 0
    run: int = 0
    spikes: int = 0
    first: float | None = None
    best: float | None = None
    floor: float | None = None
    latest: LoggedValue | None = None
    since: LoggedValue | None = None
    spike: LoggedValue | None = None


class Usual(Fact):
    """
    How times vary, and what the process had at most.

    Attributes:
        steps: mean step times of a second each, by loop.
        requests: mean latencies of a second each, of successful requests that waited
            for no compile, by route.
        work: times of the same piece of work in every run, on every machine.
        peak_resident_bytes: the process's memory on its host, at most.
        waiting: for which part of the time in which its threads could run they waited
            for a processor.
    """

    steps: Mapping[str, Spread] = NOTHING
    requests: Mapping[str, Spread] = NOTHING
    work: Spread = Spread()
    peak_resident_bytes: float | None = None
    waiting: float | None = None


class Series(Fact):
    """Values at Unix *times*, as many."""

    times: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
