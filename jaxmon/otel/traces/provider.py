"""Providers of spans: the application's, or one of our own."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, TraceIdRatioBased
from opentelemetry.trace import SpanContext, StatusCode

from jaxmon.otel.exporters import exported
from jaxmon.otel.resource import of_variables, resource
from jaxmon.otel.traces import spans as conventions
from jaxmon.threads import DaemonThread, Deadline, Event, RLock
from jaxmon.version import version


if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter


_NAMES = 200
# Of so many durations the slowest hundredth is slow, once there are enough. Of a few,
# what takes twice as long as nine tenths of them: the first may have been slow.
_LATEST = 512
_ENOUGH = 100
_UPDATED_EVERY = 32
_FEW = 10


class Durations:
    """The latest durations by name, in nanoseconds; 200 names. Not thread-safe."""

    def __init__(self) -> None:
        self._usual: dict[str, _Usual] = {}

    def is_slow(self, name: str, duration: int) -> bool:
        """Add *duration*; return if it exceeds 99 % before, or twice 90 %."""
        usual = self._usual.get(name)
        if usual is None:
            if len(self._usual) >= _NAMES:
                return False
            usual = self._usual[name] = _Usual()
        return usual.is_slow(duration)


class _Usual:
    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=_LATEST)
        self._count = 0
        self._limit: int | None = None

    def is_slow(self, duration: int) -> bool:
        limit = self._limit
        self._latest.append(duration)
        self._count += 1
        few = self._count < _ENOUGH
        if self._count % (_FEW if few else _UPDATED_EVERY) == 0:
            ordered = sorted(self._latest)
            self._limit = (
                2 * ordered[(len(ordered) - 1) * 9 // 10]
                if few
                else ordered[len(ordered) * 99 // 100]
            )
        return limit is not None and duration > limit


_MOST_TRACES = 1024
_MOST_SPANS = 4096
_DECIDED = 1024


class Tail(SpanProcessor):
    """
    Keeps traces of requests that were cold, delayed, failed, profiled, or slower than
    99 % of their kind, a *ratio* of others, and what is outside of requests.

    Children wait for their root, at most 4,096 spans in 1,024 traces; beyond, the
    oldest is dropped. The id of a trace chooses it, so that services keep the same
    ones.
    """

    def __init__(
        self, keep: Callable[[Sequence[ReadableSpan]], None], ratio: float
    ) -> None:
        self._keep = keep
        self._sampler = TraceIdRatioBased(ratio)
        self._waiting: OrderedDict[int, list[ReadableSpan]] = OrderedDict()
        self._count = 0
        self._decided: OrderedDict[int, bool] = OrderedDict()
        self._usual = Durations()
        # Reentrant: the garbage collector may end a request while it is held.
        self._lock = RLock()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Number of spans dropped because too many were waiting."""
        return self._dropped

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is known yet."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep *span* until its root ends, or decide."""
        context = span.context
        if context is None:
            return
        with self._lock:
            if span.parent is not None and not span.parent.is_remote:
                kept = self._wait(context, span)
            else:
                kept = self._decide(context, span)
        if kept:
            self._keep(kept)

    def kept(self, trace_id: int) -> bool:
        """Return whether the trace was kept, of those decided lately."""
        return self._decided.get(trace_id, False)

    def shutdown(self) -> None:
        """Nothing is sent from here."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is sent from here."""
        del timeout_millis
        return True

    def _wait(self, context: SpanContext, span: ReadableSpan) -> list[ReadableSpan]:
        trace_id = context.trace_id
        if (decided := self._decided.get(trace_id)) is not None:
            return [span] if decided else []
        self._waiting.setdefault(trace_id, []).append(span)
        self._count += 1
        while len(self._waiting) > _MOST_TRACES or self._count > _MOST_SPANS:
            _, oldest = self._waiting.popitem(last=False)
            self._count -= len(oldest)
            self._dropped += len(oldest)
        return []

    def _decide(self, context: SpanContext, root: ReadableSpan) -> list[ReadableSpan]:
        trace_id = context.trace_id
        reason = self._reason(trace_id, root)
        children = self._waiting.pop(trace_id, [])
        self._count -= len(children)
        # A trace may have several requests of this process.
        self._decided[trace_id] = reason is not None or self.kept(trace_id)
        if len(self._decided) > _DECIDED:
            self._decided.popitem(last=False)
        return [] if reason is None else [*children, root]

    def _reason(self, trace_id: int, root: ReadableSpan) -> str | None:
        """Return why to keep a trace, `None` to drop it."""
        attributes = root.attributes or {}
        start = attributes.get(conventions.START)
        if start is None:
            return "no request"  # decided before its span was made
        duration = (root.end_time or 0) - (root.start_time or 0)
        slow = start == "warm" and self._usual.is_slow(root.name, duration)
        if start in ("cold", "delayed"):
            return str(start)
        if conventions.PROFILE in attributes:
            return "profiled"
        if root.status.status_code is StatusCode.ERROR:
            return "failed"
        if slow:
            return "slow"
        sampled = self._sampler.should_sample(None, trace_id, root.name)
        return "sampled" if sampled.decision is not Decision.DROP else None


_MOST = 2048
_BATCH = 512
_EVERY_SECONDS = 5.0


class SpanBatches:
    """
    Keeps at most 2,048 spans, and sends them every five seconds if there is a *timer*,
    or 512 at once. A receiver that is slow costs what has no room; the program never
    waits. *send* is called on our thread; *run* runs its body.
    """

    def __init__(
        self,
        send: SpanExporter,
        run: Callable[[Callable[[], None]], Any],
        *,
        timer: bool = True,
    ) -> None:
        self._send = send
        self._interval = _EVERY_SECONDS if timer else None
        self._run = run
        self._waiting: deque[ReadableSpan] = deque()
        self._wake = Event()
        self._lock = RLock()
        self._thread: DaemonThread | None = None
        self._stopped = self._over = self._closed = False
        self._asked: list[Event] = []
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Number of spans that had no room, or that the receiver did not take."""
        return self._dropped

    def put(self, spans: Sequence[ReadableSpan]) -> None:
        """Send *spans* soon. Thread-safe; raises `RuntimeError` if no thread starts."""
        with self._lock:
            if self._stopped or len(self._waiting) + len(spans) > _MOST:
                self._dropped += len(spans)
                return
            self._waiting.extend(spans)
            if self._thread is None:
                self._start()
        if len(self._waiting) >= _BATCH:
            self._wake.set()

    def flush(self, seconds: float) -> None:
        """Send what is there now, and wait at most so many *seconds* for that."""
        done = Event()
        with self._lock:
            if self._thread is None or self._stopped:
                return
            self._asked.append(done)
        self._wake.set()
        done.wait(seconds)

    def send(self) -> None:
        """Begin to send what is there. Never blocks."""
        self._wake.set()

    def end(self) -> None:
        """Take no more spans, and have the thread stop once it has sent them."""
        with self._lock:
            self._stopped = True
            has_thread = self._thread is not None
        self._wake.set()
        if not has_thread:
            self._close()

    def stop(self, deadline: Deadline) -> None:
        """Send what is left, and stop the thread, which has until the *deadline*."""
        self.end()
        if (thread := self._thread) is not None:
            thread.join(deadline.portion())
            self._over = True
            self._close()  # ends a retry that is still waiting
            thread.join(deadline.portion())
        with self._lock:
            self._dropped += len(self._waiting)
            self._waiting.clear()

    def abandon(self) -> None:
        """Drop everything, in a forked child, where the thread does not exist."""
        self._stopped = True
        self._waiting = deque()

    def _start(self) -> None:
        # Stored before it starts: the garbage collector may end a span meanwhile, on
        # this thread.
        self._thread = thread = DaemonThread(
            "jaxmon-traces", lambda: self._run(self._work)
        )
        try:
            thread.start()
        except BaseException:  # no threads left, or the program's
            if thread.prevent():
                self._thread = None
            raise

    def _work(self) -> None:
        while not self._stopped:
            self._wake.wait(self._interval)
            self._wake.clear()
            with self._lock:
                asked, self._asked = self._asked, []
            if not self._stopped:
                self._send_all()
            for done in asked:
                done.set()
        self._send_all()
        self._close()

    def _close(self) -> None:
        """Close the exporter, which logs it if that happens twice."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._send.shutdown()

    def _send_all(self) -> None:
        while self._waiting and not self._over:
            with self._lock:
                count = min(_BATCH, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
            if not exported(self._send, batch):
                with self._lock:
                    self._dropped += len(batch)


def application_provider() -> TracerProvider | None:
    """Return the provider that the application has set, if it is the SDK's."""
    provider = trace.get_tracer_provider()
    return provider if isinstance(provider, TracerProvider) else None


class OwnProvider:
    """Our own provider, never set globally: `tail` decides, `batches` sends."""

    def __init__(
        self,
        send: SpanExporter,
        ratio: float,
        run: Callable[[Callable[[], None]], Any],
        environ: Mapping[str, str],
        *,
        timer: bool = True,
    ) -> None:
        self.batches = SpanBatches(send, run, timer=timer)
        self.tail = Tail(self.batches.put, ratio)
        # All are recorded; which are sent is decided when they have ended.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=resource(environ, of_variables(environ)),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(self.tail)

    def tracer(self) -> trace.Tracer:
        """Return what makes spans."""
        return self._provider.get_tracer(conventions.SCOPE, version())

    def abandon(self) -> None:
        """Send nothing, in a forked child."""
        self.batches.abandon()
