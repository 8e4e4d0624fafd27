"""
What a mark costs: a request, a step, an activity, a batch, a depth, each with an agent
and without.

A figure is the median over rounds of some hundred marks around nothing, less the same
loop without them in the same round. Beside it, what prometheus_client takes for the
three metrics of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import repeat
from time import perf_counter_ns
from typing import Any, NamedTuple

from benchmarks.rows import Row, added, agent


ROUNDS = 200
MARKS = 200
REQUEST_GOAL_NS = 5000.0
STEP_GOAL_NS = 5000.0

Run = Callable[[], object]


class Mark(NamedTuple):
    """
    A loop with a mark in it, the same loop without, and a goal for the difference.
    """

    marked: Run
    bare: Run
    goal: float | None = None


def measure() -> list[Row]:
    """Return nanoseconds for each kind of mark."""
    import jaxmon

    request, decode = jaxmon.request("predict"), jaxmon.queue("decode")
    empty = _blocks(nullcontext)
    marks = {
        "with jaxmon.request(route)": Mark(
            _blocks(lambda: jaxmon.request("predict")), empty, REQUEST_GOAL_NS
        ),
        "@jaxmon.request(route)": Mark(
            _calls(request(_nothing)), _calls(_nothing), REQUEST_GOAL_NS
        ),
        "jaxmon.steps, a step": Mark(
            _loop(lambda batches: jaxmon.steps(batches, items=32)),
            _loop(lambda batches: batches),
            STEP_GOAL_NS,
        ),
        "with jaxmon.activity(name)": Mark(
            _blocks(lambda: jaxmon.activity("work")), empty
        ),
        "jaxmon.batch(route, ...)": Mark(
            _calls(lambda: jaxmon.batch("predict", size=5, capacity=8)),
            _calls(lambda: None),
        ),
        "Queue.set(depth)": Mark(_calls(lambda: decode.set(5)), _calls(lambda: None)),
    }
    theirs = {"prometheus_client, a request's metrics": _prometheus_client()}
    with agent():
        rows = _rows({**marks, **theirs})
    tracked = marks["jaxmon.steps, a step"]
    with agent():
        jaxmon.log_to(lambda _values, _step: None, every=100)
        rows += _rows({"jaxmon.steps, a step, with log_to(every=100)": tracked})
    rows += _traced(marks["with jaxmon.request(route)"], tracked)
    return [
        *rows,
        *_rows(
            {
                f"{name}, no agent": mark._replace(goal=None)
                for name, mark in marks.items()
            }
        ),
    ]


def _traced(request: Mark, step: Mark) -> list[Row]:
    """
    Return what a request costs with a span, which its provider drops, and a step, of
    which one in 20 has one.
    """
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
    with agent(traces=True):
        return _rows(
            {
                "with jaxmon.request(route), traces": request._replace(goal=None),
                "jaxmon.steps, a step, traces": step._replace(goal=None),
            }
        )


def _rows(marks: dict[str, Mark]) -> list[Row]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in marks}
    for _ in range(ROUNDS):
        for name, mark in marks.items():
            bare, marked = _nanoseconds(mark.bare), _nanoseconds(mark.marked)
            times[name].append((marked, bare))
    return [
        added(name, "ns", *zip(*times[name], strict=True), at_most=mark.goal)
        for name, mark in marks.items()
    ]


def _nanoseconds(run: Run) -> float:
    started = perf_counter_ns()
    run()
    return (perf_counter_ns() - started) / MARKS


def _nothing() -> None:
    pass


def _blocks(make: Callable[[], Any]) -> Run:
    def run() -> None:
        for _ in repeat(None, MARKS):
            with make():
                pass

    return run


def _calls(function: Callable[[], object]) -> Run:
    def run() -> None:
        for _ in repeat(None, MARKS):
            function()

    return run


def _loop(steps: Callable[[Iterable[None]], Iterable[None]]) -> Run:
    def run() -> None:
        for _ in steps(repeat(None, MARKS)):
            pass

    return run


def _prometheus_client() -> Mark:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

    registry = CollectorRegistry()
    labels = ("route", "outcome", "start")
    seconds = Histogram("seconds", "Time.", ("route", "start"), registry=registry)
    count = Counter("requests", "Requests.", labels, registry=registry)
    running = Gauge("running", "Running.", ("route",), registry=registry)

    @contextmanager
    def request() -> Iterator[None]:
        with (
            running.labels("predict").track_inprogress(),
            seconds.labels("predict", "warm").time(),
        ):
            yield
        count.labels("predict", "success", "warm").inc()

    return Mark(_blocks(request), _blocks(nullcontext))
