"""Providers of spans: the application's, or one of our own."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import SpanContext, StatusCode

from jaxmon.otel.exporters import exported
from jaxmon.otel.traces import spans as conventions
from jaxmon.threads import Deadline, ExportThread, RLock


if TYPE_CHECKING:
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


class SpanBatches(ExportThread):
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
        super().__init__("jaxmon-traces", _EVERY_SECONDS if timer else None, run)
        self._send = send
        self._waiting: deque[ReadableSpan] = deque()
        self._closed = False
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
                self.start()
        if len(self._waiting) >= _BATCH:
            self._wake.set()

    def stop(self, deadline: Deadline) -> None:
        """Send what is left, and stop the thread, which has until the *deadline*."""
        self.end_by(deadline)
        with self._lock:
            self._dropped += len(self._waiting)
            self._waiting.clear()

    def abandon(self) -> None:
        """Drop everything, in a forked child, where the thread does not exist."""
        self._stopped = True
        self._waiting = deque()

    def _close(self) -> None:
        """Close the exporter, which logs it if that happens twice."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._send.shutdown()

    def _export(self) -> None:
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


class OwnSpans(NamedTuple):
    """Of our own provider, never set globally: *tail* decides, *batches* send."""

    tail: Tail
    batches: SpanBatches
