"""The current recorder of application markers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol


if TYPE_CHECKING:
    from jaxmon.indicators.compile_log import CompileLog
    from jaxmon.indicators.loops import Loops
    from jaxmon.indicators.routes import Routes
    from jaxmon.indicators.timeline import Timeline
    from jaxmon.indicators.tracing import RequestTracer


class FailureGuard(Protocol):
    """Contains failures of our own code."""

    def on(self, site: str) -> bool:
        """Return whether *site* is enabled."""
        ...

    def failed(
        self, site: str, *, stays_on: bool = False, theirs: bool = False
    ) -> None:
        """
        Record the exception being handled at *site*, which it may disable unless it
        *stays_on*. Raises exceptions of the program; *theirs*: code of the program was
        called on purpose.
        """
        ...


class InvocationSink(Protocol):
    """Where invocations are counted."""

    def begin(self, route: str) -> None:
        """Count an invocation of *route*, which is a label."""
        ...


class BatchSink(Protocol):
    """Where batches are counted."""

    def observe(self, route: str, size: int, capacity: int) -> None:
        """Count a batch. Raises `ValueError` if *size* exceeds *capacity*."""
        ...


class Queues(Protocol):
    """Where queue depths are kept."""

    def set(self, name: str, depth: int) -> None:
        """Keep *depth*. Raises `ValueError` if it is not a valid depth."""
        ...

    def forget(self, name: str) -> None:
        """Forget the depth that was set."""
        ...


class ValueSink(Protocol):
    """Where logged quantities are kept."""

    def put(self, values: tuple[tuple[str, Any], ...], step: Any) -> None:
        """Keep *values* by name until they are read. May raise to reject them."""
        ...


class Recorder(Protocol):
    """The metrics that markers write to: those of one agent."""

    routes: Routes
    loops: Loops
    timeline: Timeline
    compiles: CompileLog
    tracer: RequestTracer | None
    flush: Callable[[float], bool]
    serverless: bool
    guard: FailureGuard
    on_error: Callable[[BaseException], None]
    place_of: Callable[[BaseException], str]

    @property
    def invocations(self) -> InvocationSink:
        """Invocations by route."""
        ...

    @property
    def batches(self) -> BatchSink:
        """Batches by route."""
        ...

    @property
    def queues(self) -> Queues:
        """Depths by queue."""
        ...

    @property
    def logged(self) -> ValueSink:
        """Logged quantities."""
        ...


class _Current:
    recorder: Recorder | None = None


current = _Current()
"""Where markers that run often read it, without a call."""


def recorder() -> Recorder | None:
    """Return the current recorder."""
    return current.recorder


def report(error: BaseException) -> None:
    """Report an exception that propagated from marked code."""
    if current.recorder is not None:
        current.recorder.on_error(error)


def attach(figures: Recorder) -> None:
    """Make *figures* the recorder."""
    before, current.recorder = current.recorder, figures
    if before is not None:
        before.loops.attend()


def detach(figures: Recorder) -> None:
    """Stop recording if *figures* is the recorder."""
    if current.recorder is figures:
        current.recorder = None
        figures.loops.attend()
