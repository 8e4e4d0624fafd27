"""
Sends spans in batches, on a thread of ours.

Not the SDK's processor: its thread comes back in each forked child, and its shutdown
may take half a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jaxmon.deadline import Deadline
from jaxmon.otel.unobserved import exported
from jaxmon.threads import DaemonThread, Event, RLock


if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter


_MOST = 2048
_BATCH = 512
_EVERY_SECONDS = 5.0


class Batches:
    """
    Keeps at most 2,048 spans, and sends them every five seconds, or 512 at once.

    A receiver that is down or slow costs the spans that have no room; the program never
    waits for it.

    Args:
        send: the exporter; called on our thread alone.
        run: runs the body of the thread, and contains its failures.
        timer: whether to send every five seconds, besides when asked.
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
            for one in asked:
                one.set()
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
