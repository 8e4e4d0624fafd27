"""
Why a call had to compile a function again.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from typing import Any

from jaxmon.agent.stack import MAX_SOURCES, Jitted


_REMEMBERED = 16

# Shapes apart from the rest, so that "only the shapes differ" is a comparison.
Signature = tuple[tuple[Any, ...], tuple[Any, ...]]


class Causes:
    """
    Remembers what each function was compiled for, the last 16 signatures.

    Called on the compiling thread, once per compile that a call caused. Holds no
    reference to functions or arguments.
    """

    def __init__(self) -> None:
        self._sources: dict[str, None] = {}
        self._seen: dict[int, tuple[weakref.ref[Any], deque[Signature]]] = {}

    def of(self, jitted: Jitted, avals: tuple[Any, ...]) -> str | None:
        """
        Return the cause, `None` when *jitted* was compiled for the first time.

        A function is one that was compiled before when a function from the same
        source line was: a new lambda, closure or partial made there is the cause
        ``new_function``.
        """
        source = jitted.source or repr(jitted.fun)
        again = source in self._sources
        if len(self._sources) < MAX_SOURCES:
            self._sources[source] = None
        history = self._history(jitted.fun)
        signature = _signature(avals)
        cause = _compare(signature, history) if again else None
        if history is not None:
            history.append(signature)
        return cause

    def _history(self, fun: object) -> deque[Signature] | None:
        key = id(fun)
        if (found := self._seen.get(key)) is not None:
            return found[1]
        history: deque[Signature] = deque(maxlen=_REMEMBERED)
        try:
            # The callback is C and runs before the id can be reused.
            reference = weakref.ref(fun, functools.partial(self._seen.pop, key))
        except TypeError:
            return None
        self._seen[key] = (reference, history)
        return history


def _signature(avals: tuple[Any, ...]) -> Signature:
    return (
        tuple(getattr(aval, "shape", None) for aval in avals),
        tuple(
            # The dtype itself: its text would cost 2 µs an argument.
            (getattr(aval, "dtype", ""), bool(getattr(aval, "weak_type", False)))
            for aval in avals
        ),
    )


def _compare(new: Signature, history: deque[Signature] | None) -> str:
    if history is None:
        return "unknown"
    if not history:
        return "new_function"
    if new in history:
        return "unknown"
    if any(new[1] == old[1] for old in history):
        return "shape"
    return "unknown"
