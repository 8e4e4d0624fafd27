"""
The depth of queues: what a program said last, and what it is asked at each scrape.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import BuiltinMethodType, MethodType, MethodWrapperType, ModuleType
from typing import TYPE_CHECKING

from jaxmon import catalog, interrupts
from jaxmon.exposition.families import Family, series
from jaxmon.indicators.labels import OTHER, Labels


if TYPE_CHECKING:
    from jaxmon.indicators.current import Guard


SITE = "queues"

Depth = Callable[[], int]

MOST_SOURCES = 1000
"""Functions that are asked at a scrape, at most; each takes time of it."""


class Source:
    """
    A function that tells the depth of the queue *name*.

    A method does not keep its object alive, and goes with it, unless the object takes
    no weak references.
    """

    __slots__ = ("_function", "name")

    def __init__(self, name: str, function: Depth) -> None:
        self.name = name
        self._function = _weakly(function)

    @property
    def function(self) -> Depth | None:
        """The function, while its object lives."""
        return self._function()


# Of this process, not of an agent: a program names its queues before it calls
# `instrument`, and may do so again. A dict, for its single steps need no lock.
_sources: dict[Source, None] = {}


def add(source: Source) -> bool:
    """Ask *source* from now on; tell whether there was room for it. Any thread."""
    if len(_sources) >= MOST_SOURCES:
        for _ in sources():
            pass
    if len(_sources) >= MOST_SOURCES:
        return False
    _sources[source] = None
    return True


def remove(source: Source) -> None:
    """Ask *source* no more. Any thread; harmless when repeated."""
    _sources.pop(source, None)


def sources() -> Iterator[tuple[str, Depth]]:
    """Yield name and function of each source that lives; drop the others."""
    for source in list(_sources):
        if (function := source.function) is None:
            remove(source)
        else:
            yield source.name, function


class Depths:
    """Depths by queue, at most *limit* names. Those of one name add up."""

    def __init__(self, limit: int, guard: Guard) -> None:
        self.labels = Labels(limit)
        self._guard = guard
        self._said: dict[str, int] = {}

    def say(self, name: str, depth: int) -> None:
        """Keep *depth* until something else is said. Any thread."""
        name, depth = self.labels.admit(name), checked(depth)
        # What the last of many queues said is the depth of none.
        if name != OTHER:
            self._said[name] = depth

    def forget(self, name: str) -> None:
        """Forget what was said."""
        self._said.pop(name, None)

    def collect(self) -> list[Family]:
        """Return the depths, each source asked; one that fails costs its own queue."""
        depths, failed = dict(self._said), set()
        for name, function in sources():
            label = OTHER
            try:
                label = self.labels.admit(str(name))
                depths[label] = depths.get(label, 0) + checked(function())
            except Exception:  # noqa: BLE001 - theirs: counted, asked again next time
                failed.add(label)
                self._guard.failed(SITE, stays_on=True, theirs=True)
        metric = catalog.QUEUE_DEPTH
        known = [(n, depth) for n, depth in depths.items() if n not in failed]
        return [Family(metric, [(series(metric, n), depth) for n, depth in known])]


def checked(depth: int) -> int:
    """
    Return *depth* as a whole number.

    Raises:
        ValueError: it is none, or less than 0.
    """
    if (number := int(depth)) < 0:
        msg = f"a queue cannot hold {number}; give 0 or more"
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
    """
    Return what finds the method of a built-in object again, or *function* in a module.
    """
    if isinstance(owner, ModuleType):
        return lambda: function
    reference = weakref.ref(owner)

    def found() -> Depth | None:
        alive = reference()
        return None if alive is None else getattr(alive, name)

    return found
