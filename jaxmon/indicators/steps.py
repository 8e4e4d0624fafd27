"""Training steps: duration, items, data wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from jaxmon.indicators.endings import End, now
from jaxmon.indicators.marks import DATA_WAIT, LoopMark
from jaxmon.indicators.recorder import LoopTrace, RequestTracer, current, report
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.indicators.figures import Indicators


SITE = "steps"
ITEMS_SITE = "items"

# Turns of a loop that are accounted for together.
_MANY = 256

T = TypeVar("T")

Count = int | Callable[[Any], int] | None


class StepOptions(NamedTuple):
    """What was given to `steps`."""

    loop: str
    items: Count
    item: str
    start: int | None


class Steps(Generic[T]):
    """An iterable whose iterations are observed. See `steps`."""

    __slots__ = ("_iterable", "_options")

    def __init__(self, iterable: Iterable[T], options: StepOptions) -> None:
        self._iterable = iterable
        self._options = options

    def __iter__(self) -> LoopRun[T]:
        # Loaders with worker processes start them here, in each epoch.
        end: End = []
        began = _begin_to_open(end)
        try:
            source = iter(self._iterable)
        finally:
            end.append(now())
        return LoopRun(source, self._options, end[0] - began)


class LoopRun(Generic[T]):
    """
    One iteration over a `Steps`; it ends when its source does, when it is closed, or
    when it is no longer referenced. It took *opening* seconds to get *source*.
    """

    def __init__(
        self, source: Iterator[T], options: StepOptions, opening: float
    ) -> None:
        self._source = source
        self._options = options
        # For the first agent that follows it.
        self._first = opening, options.start
        # If that is known beforehand.
        self._per_batch = 0 if options.items is None else _constant(options.items)
        self._observed: _RunRecorder | None = None
        # Of the former.
        self._mark: LoopMark | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            # Most steps only note two times, since each reading and call counts.
            mark = self._mark
            if mark is not None and (note := mark.note) and len(mark.turns) < _MANY:
                note(-now())
                batch = next(self._source)
                if mark.note is not None:
                    note(now())
                    return batch
            else:
                self._wait()
                batch = next(self._source)
            if (run := self._observed) is not None:
                self._work(run, batch)
        except BaseException as error:
            theirs = None if isinstance(error, StopIteration) else error
            run = self._close(theirs)
            if theirs is not None:
                report(theirs)
            elif run is not None:
                # Not of an error: if it ends the program, that died in this loop.
                run.ended()
            raise
        return batch

    def close(self) -> None:
        """End the loop; a step in progress is not counted. Idempotent."""
        if (observed := self._close()) is not None:
            observed.ended()

    def _close(self, error: BaseException | None = None) -> _RunRecorder | None:
        observed = self._observed
        if observed is not None:
            observed.end.append(now())
            self._observed = self._mark = None
            if observed.trace is not None:
                observed.trace.leave(observed.end[0], error)
        return observed

    def _wait(self) -> None:
        """Finish the step that is open, and begin the next."""
        indicators, observed = current.recorder, self._observed
        if observed is not None and observed.indicators is not indicators:
            self._observed = self._mark = observed = None
        if indicators is None or not indicators.guard.on(SITE):
            return
        try:
            if observed is None:
                first, self._first = self._first, (0.0, None)
                self._observed = observed = _RunRecorder(
                    self, indicators, self._options, self._per_batch, *first
                )
                self._mark = observed.mark
            else:
                observed.finish()
        except Exception:  # noqa: BLE001 - contained: the program goes on
            indicators.guard.failed(SITE)

    def _work(self, observed: _RunRecorder, batch: T) -> None:
        guard = observed.indicators.guard
        if guard.on(SITE):
            try:
                observed.work()
            except Exception:  # noqa: BLE001 - contained: the program goes on
                guard.failed(SITE)
        if self._per_batch is None and guard.on(ITEMS_SITE):
            try:
                observed.mark.items = _number(self._options.items, batch)
            except Exception:  # noqa: BLE001 - theirs: counted, the loop goes on
                guard.failed(ITEMS_SITE, theirs=True)


class _RunRecorder:
    """A run of a loop as an agent follows it, and the traced loop around it."""

    def __init__(  # noqa: PLR0913, PLR0917 - what was given to `steps`, and the run
        self,
        run: object,
        indicators: Indicators,
        options: StepOptions,
        per_batch: int | None,
        opening: float,
        start: int | None,
    ) -> None:
        self.indicators = indicators
        self.loops = indicators.loops
        self._per_batch = per_batch
        self.end: End = []
        self.outer: _RunRecorder | None = None
        self.trace: LoopTrace | None = None
        self._tracer: RequestTracer | None = None
        try:
            self._figures = self.loops.of(str(options.loop))
            if start is not None:
                self._figures.number(int(start))  # before it is seen to run
            self.mark = self._figures.begin(
                indicators.timeline, self.end, run, opening=opening
            )
            if options.items is not None:
                self.loops.count_items(self.mark, self._figures, str(options.item))
                self.mark.items = per_batch or 0
            self.loops.changed()
            if indicators.tracer is not None:
                # After the loop, whose first run may have enabled it.
                self._follow(indicators.tracer)
        except BaseException:
            self.end.append(0)  # it was never there
            raise

    def work(self) -> None:
        """Note that the batch is here."""
        mark, indicators = self.mark, self.indicators
        innermost = indicators.timeline.turn(mark, now(), finished=False)
        # Of steps that have no spans and the same number of items, only times matter.
        plain = self._per_batch is not None and indicators.tracer is None
        if innermost and plain and self.loops.on_step is None:
            mark.note = mark.turns.append

    def finish(self) -> None:
        """Count the step that was open, and begin to wait."""
        indicators, mark, at, ids = self.indicators, self.mark, now(), None
        if self.trace is not None:
            indicators.timeline.settle(mark)
            ids = self.trace.finish(mark.arrived, at)
        indicators.timeline.turn(mark, at, finished=True, ids=ids)
        if self._tracer is not indicators.tracer:
            self._follow(indicators.tracer)
        mark.items = self._per_batch or 0
        if (on_step := self.loops.on_step) is not None:
            on_step(self._figures)

    def _follow(self, tracer: RequestTracer | None) -> None:
        """Have *tracer* make the spans, from the step that has just begun on."""
        first, self._tracer = self._tracer is None, tracer
        self.trace = None
        if tracer is not None:
            self.trace = tracer.loop(self._figures.name, self.mark.began, self.end)
            if first:
                self.outer = _innermost()
                _traced.set(self)

    def ended(self) -> None:
        """Note that the run has ended."""
        try:
            self.indicators.loops.changed()
        except Exception:  # noqa: BLE001 - contained: the program goes on
            self.indicators.guard.failed(SITE)


_traced: ContextVar[_RunRecorder | None] = ContextVar("jaxmon.steps", default=None)


def _innermost() -> _RunRecorder | None:
    run = _traced.get()
    while run is not None and run.end:
        run = run.outer
    return run


def loop_trace() -> LoopTrace | None:
    """Return the spans of the innermost loop that runs in this context, if any."""
    run = _innermost()
    return None if run is None or run.indicators is not current.recorder else run.trace


def _begin_to_open(end: End) -> float:
    """Return the time; until *end*, the loop waits for its source to begin."""
    indicators = current.recorder
    if indicators is not None and indicators.guard.on(SITE):
        try:
            indicators.timeline.open_pause(DATA_WAIT, end)
        except Exception:  # noqa: BLE001 - contained: the program goes on
            indicators.guard.failed(SITE)
    return now()


def steps(
    iterable: Iterable[T],
    *,
    loop: str = "train",
    items: Count = None,
    item: str = "example",
    start: int | None = None,
) -> Steps[T]:
    """
    Iterate over *iterable*, recording each iteration as a step.

    A step starts when the loop requests a batch and ends when it requests the next, so
    a step left by ``break`` or an exception is not counted. Data wait and work are
    recorded separately; the first wait includes what starting the loader takes. While
    the loop runs, ``jaxmon_step_age_seconds`` is the time since it started or last
    finished a step; it disappears when the loop ends, so a finished job is not mistaken
    for a stalled one.

    Dispatch is asynchronous: JAX may still be computing when the loop continues. Over
    many steps the times are accurate, because the queue is bounded.

    Costs a few microseconds per step, next to nothing without an agent. Raises only
    what *iterable* raises.

    Args:
        iterable: source of batches; each ``for`` iterates over it again.
        loop: name of the loop. At most ``max_functions`` are distinguished.
        items: number of items per step, or a function of the batch that returns it
            without waiting for the device.
        item: what is counted: ``"example"``, ``"token"``, ``"image"``.
        start: number of steps that the restored checkpoint contains, 0 without one;
            so goodput across restarts knows which steps are done again.

    Example:
        >>> import jaxmon
        >>> for batch in jaxmon.steps([[1, 2], [3, 4]], items=len):
        ...     total = sum(batch)
    """
    return Steps(iterable, StepOptions(loop, items, item, start))


def _constant(items: Count) -> int | None:
    return items if type(items) is int and items >= 0 else None


def _number(items: Count, batch: object) -> int:
    number = int(items(batch) if callable(items) else items or 0)
    if number < 0:
        msg = f"invalid number of items {number}; give 0 or more"
        raise ValueError(msg)
    return number
