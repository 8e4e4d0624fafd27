"""Which traces are kept, and what is sent."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from jaxmon.otel import environment as decision
from jaxmon.otel.traces.provider import Durations, SpanBatches, Tail
from jaxmon.threads import Deadline
from tests.helpers.processes import refuse_threads, until


class Kept:
    """A provider whose tail keeps spans here."""

    def __init__(self, ratio: float = 0) -> None:
        self.spans: list[ReadableSpan] = []
        self.tail = Tail(self.spans.extend, ratio)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self.tail)
        self.tracer = provider.get_tracer("test")

    def request(
        self, start: str = "warm", *, seconds: int = 1, failed: bool = False
    ) -> trace.Span:
        """Make a request with one child; return its span."""
        root = self.tracer.start_span(
            "predict", Context(), attributes={"jaxmon.start": start}, start_time=0
        )
        self.child(root)
        if failed:
            root.set_status(trace.StatusCode.ERROR)
        root.end(seconds)
        return root

    def child(self, root: trace.Span) -> None:
        """Make a child of *root*."""
        self.tracer.start_span("child", trace.set_span_in_context(root)).end()


def names(kept: Kept) -> list[str]:
    """Return the names of what was kept."""
    return [span.name for span in kept.spans]


@pytest.mark.parametrize(
    ("request_", "count"),
    [({"start": "cold"}, 2), ({"start": "delayed"}, 2), ({"failed": True}, 2), ({}, 0)],
)
def test_what_was_not_healthy_is_kept(request_: dict[str, Any], count: int) -> None:
    """Kept with its children, those that end later, too; of the healthy none is."""
    kept = Kept()
    root = kept.request(**request_)
    assert names(kept) == ["child", "predict"][:count]
    assert kept.tail.kept(root.get_span_context().trace_id) == bool(count)
    kept.child(root)
    assert len(kept.spans) == (3 if count else 0)


def test_slow_ones_are_kept() -> None:
    """Slower than 99 % of those before it, once there are enough to say."""
    kept = Kept()
    for number in range(128):
        kept.request(seconds=1000 + number % 10)
    assert kept.spans == []
    kept.request(seconds=1009)
    assert kept.spans == []
    kept.request(seconds=1010)
    assert names(kept) == ["child", "predict"]


@pytest.mark.parametrize("before", [10, 30, 99, 127])
def test_slow_ones_are_kept_while_there_are_few(before: int) -> None:
    """What takes far longer is kept."""
    usual, kept = Durations(), Kept()
    kept.request(seconds=2_000)
    for number in range(before):
        kept.request(seconds=15 + number % 7)
        assert not usual.is_slow("step", 15 + number % 7)
    assert kept.spans == []
    kept.request(seconds=300)
    assert names(kept) == ["child", "predict"]
    assert usual.is_slow("step", 300)


def test_a_fraction_of_the_healthy_is_kept() -> None:
    """About as many as asked for; all of them at 1."""
    kept = Kept(ratio=0.25)
    for _ in range(2000):
        kept.request()
    # Six standard deviations around 500.
    assert 380 < len(kept.spans) / 2 < 620
    every = Kept(ratio=1)
    every.request()
    assert names(every) == ["child", "predict"]


def test_waiting_spans_are_bounded() -> None:
    """Traces whose root never ends are dropped, the oldest first, and counted."""
    kept = Kept()
    roots = [kept.tracer.start_span("predict", Context()) for _ in range(1100)]
    for root in roots:
        kept.child(root)
    assert kept.tail.dropped == 1100 - 1024
    for _ in range(5000):
        kept.child(roots[-1])
    assert kept.tail.dropped > 1000


def ratio_of(text: str) -> dict[str, str]:
    """Return the variables that ask for a fraction."""
    return {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": text}


@pytest.mark.parametrize(
    ("environ", "ratio"),
    [
        ({}, 0.05),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, 1),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, 0),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.2"},
            0.2,
        ),
        (ratio_of("x"), 1),
        (ratio_of("7"), 1),
    ],
)
def test_the_environment_says_the_fraction(environ, ratio):
    """The variables of the SDK's samplers, invalid ones included."""
    assert decision.healthy_ratio(environ) == ratio


class Sink(SpanExporter):
    """Takes spans, once it is let."""

    def __init__(self, result: SpanExportResult | Exception) -> None:
        self.result = result
        self.taken = 0
        self.may = threading.Event()
        self.stopped = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert self.may.wait(60)
        if isinstance(self.result, Exception):
            raise self.result
        self.taken += len(spans)
        return self.result

    def shutdown(self) -> None:
        self.stopped = True
        self.may.set()


@pytest.fixture
def batches() -> Iterator[
    Callable[[SpanExportResult | Exception], tuple[Sink, SpanBatches]]
]:
    """Return a function that makes batches; they are stopped afterwards."""
    made: list[SpanBatches] = []

    def make(result: SpanExportResult | Exception) -> tuple[Sink, SpanBatches]:
        sink = Sink(result)
        made.append(SpanBatches(sink, lambda work: work()))
        return sink, made[-1]

    yield make
    for one in made:
        one.stop(Deadline())


def spans(number: int) -> list[ReadableSpan]:
    """Return *number* spans."""
    return [ReadableSpan("span")] * number


def test_a_slow_receiver_costs_spans_not_time(batches: Any) -> None:
    """What has no room is dropped and counted; the rest arrives when it can."""
    sink, sending = batches(SpanExportResult.SUCCESS)
    for _ in range(100):
        sending.put(spans(100))
    # While a batch is under way there is room for 2,048 more.
    assert 10_000 - 2048 - 512 <= sending.dropped <= 10_000 - 2000
    sink.may.set()
    sending.stop(Deadline())
    assert sink.taken + sending.dropped == 10_000
    assert sink.stopped
    sending.put(spans(5))
    assert sink.taken + sending.dropped == 10_005


def test_what_is_refused_is_counted(batches: Any) -> None:
    """A receiver that takes nothing shows in the number of dropped spans."""
    sink, sending = batches(SpanExportResult.FAILURE)
    sink.may.set()
    sending.put(spans(512))
    until(lambda: sending.dropped == 512, "the refusal")


def test_an_exporter_that_raises_costs_its_spans(batches: Any) -> None:
    """As some releases of the SDK do without a receiver; the next ones are sent."""
    sink, sending = batches(ConnectionError("refused"))
    sink.may.set()
    sending.put(spans(512))
    until(lambda: sending.dropped == 512, "the failure")
    sink.result = SpanExportResult.SUCCESS
    sending.put(spans(512))
    until(lambda: sink.taken == 512, "the spans after it")


def test_without_threads_spans_wait_for_one(batches, monkeypatch):
    """The next spans try again, and what waits for none ends."""
    sink, sending = batches(SpanExportResult.SUCCESS)
    sink.may.set()
    found = spans(5)

    with monkeypatch.context() as patched:
        refuse_threads(patched)
        with pytest.raises(RuntimeError):
            sending.put(found)
        assert sending.push().wait(600)
    sending.put(found)
    sending.stop(Deadline())
    assert (sink.taken, sink.stopped) == (10, True)


def test_a_provider_that_makes_way_is_not_waited_for(batches: Any) -> None:
    """What it has is sent by its own thread, which then closes the exporter."""
    sink, sending = batches(SpanExportResult.SUCCESS)
    sending.put(spans(5))
    sending.end()
    sending.put(spans(1))
    assert (sink.taken, sink.stopped, sending.dropped) == (0, False, 1)
    sink.may.set()
    until(lambda: sink.stopped, "the end of its thread")
    assert sink.taken == 5


def test_a_forked_child_sends_nothing(batches: Any) -> None:
    """What the parent has not sent yet is the parent's."""
    sink, sending = batches(SpanExportResult.SUCCESS)
    sending.put(spans(5))
    sending.abandon()
    sink.may.set()
    sending.stop(Deadline())
    assert sink.taken == 0
