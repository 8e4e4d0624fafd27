"""
A jitted function that counts its calls without a frame of ours.

A `CountedFunction` is an `itertools.compress` over an endless supply of JAX's object
and the ticks of its function's tally: taking the next item advances the tally and
yields the object, all in C, and the interpreter then calls that object itself. A cached
call pays 40 to 55 ns, three quarters of which any object of a Python class pays for
having a ``__call__``; no traceback, profile or source location shows us.

Two C calls within one bytecode cannot be torn apart under the GIL, so the count is
exact from any number of threads.

For one call an object may become a `SampledFunction`, whose look-up of ``__call__``
passes through Python; between such calls it pays nothing for the possibility.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable
from itertools import compress, repeat
from operator import length_hint
from typing import Any, Protocol, Self


_ENDLESS = 1 << 62


class Arm(Protocol):
    """
    Waits for the next call of one `CountedFunction`.
    """

    def begin(
        self,
        counted: CountedFunction,
        jitted: Callable[..., Any],
        frame: types.FrameType,
        /,
    ) -> None:
        """
        Take note that a call from *frame* begins: on the calling thread, before it.
        Raises nothing.
        """
        ...


class CountedFunction(compress):  # type: ignore[type-arg]
    """
    A jitted function that counts its calls; otherwise JAX's own object.

    It shares the ``__dict__`` of a `jax.jit` object, so attributes set on either are
    seen on both, and hands everything else on to it.
    """

    # Libraries know a jitted function by the name of its type: Haiku refuses one.
    __qualname__ = "PjitFunction"
    __slots__ = ("__dict__", "__weakref__", "_arm", "_jitted", "_supply")

    # A jitted function is not iterable; this hides that we inherit from an iterator.
    __iter__ = None  # type: ignore[assignment]
    __call__ = property(next)
    # On the class, because jax.stages.Wrapped is a protocol and Python 3.12 looks
    # for its members there.
    lower = property(operator.attrgetter("_jitted.lower"))
    trace = property(operator.attrgetter("_jitted.trace"))
    # object has one of its own since Python 3.11; JAX's tells the function's name.
    __getstate__ = property(operator.attrgetter("_jitted.__getstate__"))

    _jitted: Callable[..., Any]
    _supply: repeat[Callable[..., Any]]
    _arm: Arm | None

    def __new__(cls, jitted: Callable[..., Any], ticks: repeat[int]) -> Self:
        """
        Return *jitted*, each call of which takes one of *ticks*.
        """
        supply = repeat(jitted, _ENDLESS)
        self = super().__new__(cls, supply, ticks)
        variables = jitted.__dict__
        if isinstance(jitted, types.FunctionType):
            # pmap's result since 0.8: its name and doc are not in its __dict__.
            names = functools.WRAPPER_ASSIGNMENTS
            variables = {name: getattr(jitted, name) for name in names} | variables
        object.__setattr__(self, "_jitted", jitted)
        object.__setattr__(self, "_supply", supply)
        object.__setattr__(self, "_arm", None)
        object.__setattr__(self, "__dict__", variables)
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "_jitted":
            raise AttributeError(name)
        return getattr(self._jitted, name)

    def __setattr__(self, name: str, value: object) -> None:
        # Past our properties: to 0.4 JAX sets its methods on each object.
        self.__dict__[name] = value

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return repr(self._jitted)

    def __dir__(self) -> list[str]:
        return dir(self._jitted)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # Pickles as the plain jitted function, readable where jaxmon is not
        # installed.
        return (operator.getitem, ([self._jitted], 0))

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__reduce_ex__(2)


def _first_arm(counted: CountedFunction) -> Callable[..., Any]:
    """
    Let a sampled call begin, and be like any other from here on.
    """
    arm = counted._arm  # noqa: SLF001 - this is a method of it
    disarm(counted)
    jitted: Callable[..., Any] = next(counted)
    if arm is not None:
        arm.begin(counted, jitted, sys._getframe(1))  # noqa: SLF001 - as in a probe
    return jitted


class SampledFunction(CountedFunction):
    """
    A `CountedFunction` whose next call is to be sampled.

    No frame of ours stands below that call either: the look-up has ended by then.
    """

    __qualname__ = "PjitFunction"
    __slots__ = ()

    __call__ = property(_first_arm)


def arm(counted: CountedFunction, waiting: Arm) -> None:
    """
    Have *waiting* told of the next call of *counted*. Any thread.
    """
    object.__setattr__(counted, "_arm", waiting)
    # One C call: the interpreter finds either class, and both are complete.
    object.__setattr__(counted, "__class__", SampledFunction)


def disarm(counted: CountedFunction) -> None:
    """
    Take that back.
    """
    object.__setattr__(counted, "__class__", CountedFunction)
    object.__setattr__(counted, "_arm", None)


def armed(counted: CountedFunction) -> bool:
    """
    Tell whether the next call of *counted* is to be sampled.
    """
    return type(counted) is SampledFunction


def taken(counted: CountedFunction) -> int:
    """
    Return how often *counted* was called; its function's tally counts all its objects.
    """
    return _ENDLESS - length_hint(counted._supply)  # noqa: SLF001 - our own
