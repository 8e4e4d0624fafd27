"""Queue depth: what the program set last, or what its function returns at a scrape."""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import BuiltinMethodType, MethodType, MethodWrapperType, ModuleType

from jaxmon import catalog, interrupts
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Family, family_of
from jaxmon.facts import marked
from jaxmon.indicators.recorder import OTHER, FailureGuard, Labels, recorder


WITHIN_SECONDS = 600.0
"""Depths older than this are dropped."""

_APART_SECONDS = 5.0
_LEAST = 2


class DepthHistory:
    """Depths of one queue in the last ten minutes, as they were read and set."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: deque[tuple[float, int]] = deque(
            maxlen=int(WITHIN_SECONDS / _APART_SECONDS)
        )
        self.depth = self.maximum = 0

    def note(self, depth: int) -> None:
        """Note that the depth is *depth* now."""
        self.depth = depth
        self.maximum = max(self.maximum, depth)
        time = self._clock()
        if not self._kept or time - self._kept[-1][0] >= _APART_SECONDS:
            self._kept.append((time, depth))

    def explain(self) -> marked.QueueFacts:
        """
        Return the depth now, the greatest ever, the growth since the oldest kept,
        `None` if there is only one; and the extremes in each third of those kept, if
        enough.
        """
        time = self._clock()
        kept = [(at, n) for at, n in list(self._kept) if time - at <= WITHIN_SECONDS]
        over = time - kept[0][0] if kept else 0.0
        thirds = _thirds([depth for _, depth in kept])
        long_enough = over >= _APART_SECONDS
        return marked.QueueFacts(
            depth=self.depth,
            maximum=self.maximum,
            growth=self.depth - kept[0][1] if long_enough else None,
            growth_seconds=over if long_enough else 0.0,
            lows=tuple([min(part) for part in thirds]),
            highs=tuple([max(part) for part in thirds]),
        )


def _thirds(depths: list[int]) -> list[list[int]]:
    third = len(depths) // 3
    if third < _LEAST:
        return []
    return [depths[:third], depths[third:-third], depths[-third:]]


log = logging.getLogger("jaxmon")

SITE = "queues"

Depth = Callable[[], int]

MOST_SOURCES = 1000
"""Maximum number of callbacks per scrape."""


class Queue:
    """A queue of the program. See `queue`."""

    def __init__(self, name: str, depth: Depth | None) -> None:
        self._name = name
        self._source: DepthSource | None = None
        if depth is not None:
            self._source = DepthSource(name, depth)
            if not add(self._source):
                log.warning(
                    "queue %r is not observed: the limit of %d is reached; "
                    "close() unused queues",
                    name,
                    MOST_SOURCES,
                )

    def set(self, depth: int) -> None:
        """
        Set the depth. Thread-safe; costs next to nothing without an agent.

        Never raises. Objects with the same name share one value.
        """
        figures = recorder()
        if figures is None:
            return
        try:
            figures.queues.set(str(self._name), depth)
        except Exception:  # noqa: BLE001 - theirs: counted, and the program goes on
            figures.guard.failed(SITE, stays_on=True, theirs=True)

    def close(self) -> None:
        """Stop exporting this queue. Idempotent."""
        if self._source is not None:
            remove(self._source)
        if (figures := recorder()) is not None:
            figures.queues.forget(str(self._name))


def queue(name: str, depth: Depth | None = None) -> Queue:
    """
    Export a queue's depth as ``jaxmon_queue_depth``.

    Pass a function that is called on each scrape, on a jaxmon thread (it must not block
    or wait for a device), or set the depth with `Queue.set`. A method such as
    ``requests.qsize`` does not keep its object alive, and is dropped with it. Any other
    function is called until `Queue.close`. Depths of queues with the same name are
    summed; unreadable ones are omitted.

    Works before `jaxmon.instrument`, and costs nothing between scrapes. Never raises.

    Args:
        name: a fixed name from a small set. At most ``max_functions`` are
            distinguished.
        depth: returns the number of waiting items.

    Example:
        >>> import jaxmon, queue
        >>> waiting = queue.Queue()
        >>> decode = jaxmon.queue("decode", waiting.qsize)
        >>> jaxmon.queue("prefill").set(3)
        >>> decode.close()
    """
    return Queue(name, depth)


class DepthSource:
    """A function that returns a depth; a method does not keep its object alive."""

    def __init__(self, name: str, function: Depth) -> None:
        self.name = name
        self.function = _weakly(function)


# Of this process, not of an agent: a program names its queues before it calls
# `instrument`, and may do so again. A dict, because its single steps need no lock.
_sources: dict[DepthSource, None] = {}


def add(source: DepthSource) -> bool:
    """Start calling *source*; return whether there was room for it. Thread-safe."""
    if len(_sources) >= MOST_SOURCES:
        for _ in sources():
            pass
    if len(_sources) >= MOST_SOURCES:
        return False
    _sources[source] = None
    return True


def remove(source: DepthSource) -> None:
    """Stop calling *source*. Thread-safe, idempotent."""
    _sources.pop(source, None)


def sources() -> Iterator[tuple[str, Depth]]:
    """Yield name and function of each live source; drop the others."""
    for source in list(_sources):
        if (function := source.function()) is None:
            remove(source)
        else:
            yield source.name, function


class QueueDepths:
    """Depths by queue, at most *limit* names. Depths of one name are summed."""

    def __init__(self, limit: int, guard: FailureGuard) -> None:
        self.labels = Labels(limit)
        self._guard = guard
        self._set: dict[str, int] = {}
        self._histories: dict[str, DepthHistory] = {}

    def set(self, name: str, depth: int) -> None:
        """Keep *depth* until another is set. Thread-safe."""
        name, depth = self.labels.admit(name), checked(depth)
        # The depth that the last of many queues set is the depth of none.
        if name != OTHER:
            self._set[name] = depth
            self._note(name, depth)

    def forget(self, name: str) -> None:
        """Forget the depth that was set."""
        self._set.pop(name, None)

    def explain(self) -> tuple[marked.QueueFacts, ...]:
        """Query all sources; return depth and growth by queue."""
        found = [(name, self._histories.get(name)) for name in self._read()]
        return tuple([of.explain().replace(name=name) for name, of in found if of])

    def collect(self) -> list[Family]:
        """Query all sources and return the depths."""
        return [family_of(catalog.QUEUE_DEPTH, self._read().items())]

    def _read(self) -> dict[str, int]:
        """Return the depths; a failing source omits only its own queue."""
        depths, failed = dict(self._set), set()
        for name, function in sources():
            label = OTHER
            try:
                label = self.labels.admit(str(name))
                depths[label] = depths.get(label, 0) + checked(function())
            except Exception:  # noqa: BLE001 - theirs: counted, asked again next time
                failed.add(label)
                self._guard.failed(SITE, stays_on=True, theirs=True)
        readable = {n: depth for n, depth in depths.items() if n not in failed}
        for name, depth in readable.items():
            self._note(name, depth)
        # What is no longer exported may come back, under another meaning.
        for name in set(self._histories) - set(depths) - failed:
            self._histories.pop(name, None)
        return readable

    def _note(self, name: str, depth: int) -> None:
        found = self._histories.get(name) or DepthHistory()
        self._histories.setdefault(name, found).note(depth)


def checked(depth: int) -> int:
    """Return *depth* as a whole number of 0 or more, or raise a `ValueError`."""
    if (number := int(depth)) < 0:
        msg = f"invalid queue depth {number}; give 0 or more"
        raise ValueError(msg)
    return number


def _weakly(function: Depth) -> Callable[[], Depth | None]:
    try:
        if isinstance(function, MethodType):
            return weakref.WeakMethod(function)
        if isinstance(function, BuiltinMethodType | MethodWrapperType):
            return _of_object(function.__self__, function.__name__, function)
    except TypeError as error:  # a list, or what has __slots__
        interrupts.pass_on(error)
    return lambda: function


def _of_object(owner: object, name: str, function: Depth) -> Callable[[], Depth | None]:
    """Return a reference to a method of a built-in object, or to a function."""
    if isinstance(owner, ModuleType):
        return lambda: function
    reference = weakref.ref(owner)

    def found() -> Depth | None:
        alive = reference()
        return None if alive is None else getattr(alive, name)

    return found
