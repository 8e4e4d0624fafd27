"""
A jitted function that counts its calls without a frame of ours.

The ``__call__`` of a `CountedFunction`'s type is a slot, in which each object stores a
counter around JAX's own object. The interpreter fetches and calls it entirely in C: a
cached call costs 40 to 50 ns more, most of which any Python object with a ``__call__``
costs; no traceback, profile or source location shows us.

Every other attribute is that of JAX's object, so that nothing has to be kept in sync.
`docs/decisions/0002-hooks-without-a-frame.md` lists the remaining differences.

For one call an object may become a `SampledFunction`, whose lookup of ``__call__``
passes through Python; between such calls this costs nothing.
"""

from __future__ import annotations

import copy
import functools
import math
import sys
import types
from collections.abc import Callable
from typing import Any, Protocol, cast

from jaxmon.agent.inspection import AnyCall, is_subclass
from jaxmon.agent.jaxlink.jit import TYPE_NAME


class Meter(Protocol):
    """A callable whose calls are counted."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Count the call and make it."""

    def cache_info(self) -> int:
        """Return the number of calls, including those that raised."""


_CountingWrapper: Any = type(functools.lru_cache(maxsize=0)(max))


def metered(fun: AnyCall) -> Meter:
    """
    Return *fun* so that its calls are counted.

    `functools.lru_cache` of size zero counts each call that its cache cannot answer,
    which is every call, and makes it: an increment in C under the GIL, so the count is
    exact from any number of threads, and no frame of ours is on the stack.
    """
    # Of hits, misses, limit and size all but the misses are 0, and the greatest divisor
    # of a number and zeros is the number. That needs no Python, which could be
    # interrupted as a meter goes, and is quicker than `max`.
    return cast("Meter", _CountingWrapper(fun, 0, False, math.gcd))  # noqa: FBT003 - C


class Arm(Protocol):
    """Waits for the next call of one `CountedFunction`."""

    def begin(
        self, counted: CountedFunction, jitted: AnyCall, frame: types.FrameType, /
    ) -> None:
        """Record that a call from *frame* starts, uncounted yet. Raises nothing."""


_put = object.__setattr__
_get = object.__getattribute__

# Attributes not taken from JAX's object, which would not count, or equal nothing.
_OWN = frozenset(
    (
        *("__get__", "__eq__", "__ne__", "__hash__", "__deepcopy__", "__reduce_ex__"),
        "_jitted",
    )
)


def _theirs(name: str) -> Any:
    return property(lambda self: getattr(jitted_of(self), name))


class CountedFunction:
    """
    A jitted function that counts its calls; otherwise JAX's own object. *again* takes a
    copy of that and returns one that counts too.
    """

    # For code that bypasses `__getattribute__`, such as `pydoc`.
    __dict__ = _theirs("__dict__")
    __doc__ = _theirs("__doc__")
    __slots__ = (
        *("__call__", "__del__", "__repr__", "__weakref__", "_again", "_arm"),
        "_jitted",
    )

    __call__: AnyCall
    __del__: Callable[[], None]
    # A slot, since the interpreter drops exceptions from a property here.
    __repr__: Callable[[], str]
    _again: Callable[[Any], Any]
    _arm: Arm | None
    _jitted: AnyCall

    def __init__(self, jitted: AnyCall, again: Callable[[Any], Any]) -> None:
        _put(self, "_jitted", jitted)
        _put(self, "_again", again)
        _put(self, "_arm", None)
        _put(self, "__call__", metered(jitted))
        _put(self, "__repr__", jitted.__repr__)

    def __getattribute__(self, name: str) -> Any:
        if name == "__call__":
            # Of the same type as that of JAX's object, which decorators check. It
            # counts when called, and keeps us alive as long as it can be.
            return functools.partial(self).__call__
        if name in _OWN:
            return _get(self, name)
        return getattr(_get(self, "_jitted"), name)

    # These return C functions bound to JAX's object: no frame of ours is on the stack
    # when they fail. The first is called for what `__getattribute__` did not find.
    __getattr__ = _theirs("__getattribute__")
    __setattr__ = _theirs("__setattr__")
    __delattr__ = _theirs("__delattr__")
    __dir__ = _theirs("__dir__")

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    # Pickling uses JAX's object, which can be read without jaxmon.
    __reduce_ex__ = property(lambda self: _reduction(self))  # noqa: PLW0108 - defined below

    # Only copying uses these two.
    def __copy__(self) -> Any:
        return _CopyHelper(self).made(copy.copy(jitted_of(self)))

    # No frame of ours is on the stack while JAX's object is copied.
    __deepcopy__ = property(
        lambda self: functools.partial(copy.deepcopy, _CopyHelper(self))
    )


class _CopyHelper:
    """Copies JAX's object in place of a `CountedFunction`, and makes that count."""

    def __init__(self, counted: CountedFunction) -> None:
        self._counted = counted

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.made, (jitted_of(self._counted),)

    def made(self, jitted: Any) -> Any:
        """Return *jitted*, a copy of JAX's object, as a counting function."""
        counted = self._counted
        if jitted is jitted_of(counted):  # a pmap may be a Python function
            return counted
        return _get(counted, "_again")(jitted)


# Access to these slots without `__getattribute__`: if an `AttributeError` of the
# program propagates from that, the interpreter drops it and calls `__getattr__`.
_meter_of = cast(
    "Callable[[CountedFunction], Meter]", vars(CountedFunction)["__call__"].__get__
)
jitted_of = cast(
    "Callable[[CountedFunction], AnyCall]", vars(CountedFunction)["_jitted"].__get__
)


def _reduction(counted: CountedFunction) -> Callable[[int], str | tuple[Any, ...]]:
    jitted = jitted_of(counted)
    if type(jitted) is not types.FunctionType:
        return jitted.__reduce_ex__
    return lambda _: _by_name(counted, jitted)  # a pmap, since 0.8


def _by_name(
    counted: CountedFunction, function: types.FunctionType
) -> str | tuple[Any, ...]:
    """Return the name of *counted*, if that is where it is, else what *function* is."""
    name = function.__qualname__
    if getattr(sys.modules.get(function.__module__), name, None) is counted:
        return name
    return copy.copy, (function,)  # which returns it


def _first_arm(counted: CountedFunction) -> AnyCall:
    """Start a sampled call; from here on it is an ordinary call."""
    arm = _get(counted, "_arm")
    disarm(counted)
    if arm is not None:
        frame = sys._getframe(1)  # noqa: SLF001 - as in a probe
        arm.begin(counted, jitted_of(counted), frame)
    return _meter_of(counted)


class SampledFunction(CountedFunction):
    """
    A `CountedFunction` whose next call is to be sampled.

    No frame of ours is below that call either: the lookup has finished by then.
    """

    __slots__ = ()

    __call__ = property(_first_arm)


for _type in (CountedFunction, SampledFunction):
    # Libraries recognise a jitted function by the name of its type: Haiku rejects one.
    _type.__name__ = _type.__qualname__ = TYPE_NAME


def arm(counted: CountedFunction, waiting: Arm) -> None:
    """Notify *waiting* of the next call of *counted*. Thread-safe."""
    _put(counted, "_arm", waiting)
    # One C call: the interpreter finds either class, and both are complete.
    _put(counted, "__class__", SampledFunction)


def disarm(counted: CountedFunction) -> None:
    """Cancel `arm`."""
    _put(counted, "__class__", CountedFunction)
    _put(counted, "_arm", None)


def waiting_for(counted: CountedFunction) -> Arm | None:
    """Return what waits for the next call of *counted*, if something does."""
    found: Arm | None = _get(counted, "_arm")
    return found


def armed(counted: CountedFunction) -> bool:
    """Return whether the next call of *counted* will be sampled."""
    return type(counted) is SampledFunction


def uncounted(fun: object) -> Any:
    """Return JAX's object inside *fun* if it is a `CountedFunction`, else *fun*."""
    if is_subclass(type(fun), CountedFunction):
        return jitted_of(cast("CountedFunction", fun))
    return fun


def call_count(counted: CountedFunction) -> int:
    """Return how often *counted* was called; `LiveObjects` adds up a function's."""
    return _meter_of(counted).cache_info()


def on_end(counted: CountedFunction, note: Callable[[int], object]) -> None:
    """
    Call *note* with the number of calls when *counted* is deallocated; weak references
    to it die only after that, unless it is garbage in a cycle.

    *note* must be in C: an exception that a signal handler raises in a Python
    ``__del__`` is lost.
    """
    counts = iter(_meter_of(counted).cache_info, None)
    _put(counted, "__del__", map(note, counts).__next__)
