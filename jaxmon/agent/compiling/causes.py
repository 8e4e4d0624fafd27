"""
Why a call had to compile a function again.
"""

from __future__ import annotations

import functools
import math
import types
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_not, ne
from typing import Any, NamedTuple

from jaxmon.agent.compiling.differences import Difference, differences
from jaxmon.agent.compiling.signatures import Signature
from jaxmon.agent.compiling.stack import MAX_SOURCES, Jitted
from jaxmon.agent.compiling.values import bare_name, inner, place_of


SHOWN = 50
"""Differences that are kept of one recompile."""

_REMEMBERED = 16
_DIGESTS = 256
# 16 signatures are kept up to 4,096 leaves, fewer beyond.
_LEAVES = 65_536
_MAX_LAST = 1_000

# How much further apart one difference of a kind sets two signatures than one leaf
# does. A tree with another key is another program; so is another configuration.
_WEIGHTS = {
    "context": 8.0,
    "options": 6.0,
    "tree_structure": 8.0,
    "static_argument": 4.0,
}
# Which cause dominates: what a caller decides on before what follows from it.
_FIRST = ("context", "options", "tree_structure", "static_argument")
_LEAF_KINDS = ("dtype", "shape", "weak_type", "sharding", "committed")


class Cause(NamedTuple):
    """
    Why something was compiled again.

    Attributes:
        name: one of `jaxmon.catalog.CAUSES`.
        differences: from what was compiled before, at most `SHOWN`.
        omitted: how many more there are.
    """

    name: str
    differences: tuple[Difference, ...]
    omitted: int = 0


@dataclass(slots=True)
class _History:
    """
    What one function object was compiled for.
    """

    reference: weakref.ref[Any]
    signatures: deque[Signature]
    digests: deque[int]

    def add(self, signature: Signature) -> None:
        self.signatures.append(signature)
        self.digests.append(signature.digest)
        fitting = _LEAVES // max(len(signature.leaves), 1)
        while len(self.signatures) > max(fitting, 1):
            self.signatures.popleft()


class Causes:
    """
    Remembers what each function was compiled for, the last 16 signatures.

    Called on the compiling thread, once per compile that a call caused. Holds no
    reference to functions or arguments.

    Args:
        context: names of the values in a signature's context.
        values: show values of static arguments.
    """

    def __init__(self, context: Sequence[str] = (), *, values: bool = True) -> None:
        self._context = context
        self._values = values
        self._last: dict[str, Signature | None] = {}
        self._remade: dict[tuple[str, str], Difference] = {}
        self._seen: dict[int, _History] = {}

    def of(self, jitted: Jitted, signature: Signature | None) -> Cause | None:
        """
        Return the cause, `None` when *jitted* was compiled for the first time.

        A function is one that was compiled before when a function from the same
        source line was: a new lambda, closure or partial made there is the cause
        ``new_function``.

        Args:
            jitted: what was compiled.
            signature: for which call; `None` if that could not be told.
        """
        source = jitted.source or _source(jitted.fun)
        again = source in self._last
        history = self._history(jitted.fun)
        cause = None
        if again:
            cause = self._cause(jitted.fun, source, signature, history)
        if again or len(self._last) < MAX_SOURCES:
            known = again or len(self._last) < _MAX_LAST
            self._last[source] = signature if known else None
        if history is not None and signature is not None:
            history.add(signature)
        return cause

    def _cause(
        self,
        fun: object,
        source: str,
        signature: Signature | None,
        history: _History | None,
    ) -> Cause:
        if signature is None or history is None:
            return Cause("unknown", ())
        if not history.digests:
            last = self._last.get(source)
            made = self._made_again(fun, source)
            found = self._compare(signature, last) if last is not None else []
            shown = (made, *found[: SHOWN - 1])
            return Cause("new_function", shown, len(found) + 1 - len(shown))
        if signature.digest in history.digests:
            return Cause("evicted", (_evicted(),))
        found = self._compare(signature, self._closest(signature, history))
        if not found:
            return Cause("unknown", ())
        omitted = max(len(found) - SHOWN, 0)
        return Cause(dominating(found), tuple(found[:SHOWN]), omitted)

    def _closest(self, new: Signature, history: _History) -> Signature:
        """
        Return the signature that *new* differs least from, the latest of several.
        """
        olds = list(history.signatures)
        closest, least = olds[-1], math.inf
        for old in reversed(olds):
            far = self._distance(new, old)
            if far < least:
                closest, least = old, far
            if least <= 1:  # nothing can be closer
                break
        return closest

    def _distance(self, new: Signature, old: Signature) -> float:
        if new.arguments != old.arguments:
            found = self._compare(new, old)
            return sum(_WEIGHTS.get(one.kind, 1.0) for one in found)
        # Equal leaves are one object, as a rule.
        leaves: float = sum(map(is_not, new.leaves, old.leaves))
        return (
            leaves
            + _WEIGHTS["context"] * self._changed(new.context, old.context)
            + _WEIGHTS["options"] * (new.options != old.options)
            + _WEIGHTS["static_argument"] * self._changed(new.static, old.static)
        )

    @staticmethod
    def _changed(new: Sequence[object], old: Sequence[object]) -> int:
        return 0 if new == old else sum(map(bool, map(ne, new, old)))

    def _made_again(self, fun: object, source: str) -> Difference:
        key = source, type(fun).__name__
        found = self._remade.get(key)
        if found is None:
            if len(self._remade) >= _MAX_LAST:
                self._remade.clear()
            found = self._remade[key] = _made_again(fun)
        return found

    def _compare(self, new: Signature, old: Signature) -> list[Difference]:
        if new.digest == old.digest:
            return []
        found = differences(new, old, context=self._context, values=self._values)
        return list(found)

    def _history(self, fun: object) -> _History | None:
        key = id(fun)
        if (found := self._seen.get(key)) is not None:
            return found
        try:
            # The callback is C and runs before the id can be reused.
            reference = weakref.ref(fun, functools.partial(self._seen.pop, key))
        except TypeError:
            return None
        history = _History(reference, deque(maxlen=_REMEMBERED), deque(maxlen=_DIGESTS))
        self._seen[key] = history
        return history


def dominating(found: Sequence[Difference]) -> str:
    """
    Return the kind that stands for all of *found*.

    What concerns the whole call comes before its leaves: under ``jax_enable_x64``
    every dtype changes too. Among kinds of leaves the most frequent wins.
    """
    if len(found) == 1:
        return found[0].kind
    kinds = Counter(difference.kind for difference in found)
    for kind in _FIRST:
        if kind in kinds:
            return kind
    return max(_LEAF_KINDS, key=lambda kind: kinds[kind])


def _source(fun: object) -> str:
    """
    Return what a function and its remakes have in common, where JAX tells nothing.
    """
    code = getattr(inner(fun), "__code__", None)
    if isinstance(code, types.CodeType):
        return f"{code.co_name} at {code.co_filename}:{code.co_firstlineno}"
    return f"{type(fun).__module__}.{type(fun).__qualname__} {id(fun)}"


def _made_again(fun: object) -> Difference:
    function = inner(fun)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    place = place_of(fun)
    where = f" at {place}" if place else ""
    if isinstance(fun, functools.partial):
        what, advice = "partial", "make the partial once, outside the loop"
    elif isinstance(fun, types.MethodType):
        what, advice = "bound method", "jit the method once, not at each use"
    elif "<lambda>" in name:
        what, advice = "function object", "jit outside the loop"
    elif "<locals>" in name:
        what = "function object"
        around = bare_name(name.rpartition(".<locals>")[0])
        advice = f"{around} makes and jits it anew each time"
    else:
        what, advice = "function object", "it was defined again"
    text = f"a new {what}{where}, `{bare_name(name)}`: {advice}"
    return Difference("new_function", name, "another object", f"a new {what}", text)


def _evicted() -> Difference:
    text = (
        "compiled for these very arguments before: jax.clear_caches(), clear_cache() "
        "or a full cache dropped the program"
    )
    return Difference("evicted", "", "compiled", "dropped", text)
