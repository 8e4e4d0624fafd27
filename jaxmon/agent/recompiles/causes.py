"""Recompile causes."""

from __future__ import annotations

import functools
import math
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not, ne
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.functions import Function, bare_name, code_of, inner, place_of
from jaxmon.agent.inspection import field_of, is_subclass, name_of
from jaxmon.agent.jaxlink.arrays import Leaf
from jaxmon.agent.jaxlink.jit import is_jitted
from jaxmon.agent.recompiles.differences import (
    changed_settings,
    differences,
    hidden_differences,
    not_compared,
)
from jaxmon.agent.recompiles.recreations import Created, Recreations
from jaxmon.agent.recompiles.signatures import Mismatch, Signature


SHOWN = 50
"""Maximum number of differences kept per recompile."""

_DIGESTS = 256
# 16 signatures are kept up to 4,096 leaves, fewer beyond; of a warm-up, 256.
_LEAVES = 65_536
_FEW_LEAVES = 4_096
_MOST_CAPTURED = 5
_MAX_PROGRAMS = 64

# Distance of one difference of each kind, relative to one attribute in which leaves
# differ. A tree with a different key is a different program; so is a different
# configuration.
_WEIGHTS = {"context": 8, "options": 6, "tree_structure": 8, "static_argument": 4}
# Which cause dominates: the caller's decisions before their consequences.
_FIRST = ("context", "options", "tree_structure", "static_argument")
_LEAF_KINDS = ("dtype", "shape", "weak_type", "sharding", "committed")

_SHAPE = Leaf._fields.index("shape")
# Distances: of one attribute of one leaf, of its shape, and beyond any.
_NEAREST, _ANOTHER_SHAPE = (1, False, 1), (1, True, 1)
_FARTHEST = (sys.maxsize, True, 0)


class Cause(NamedTuple):
    """Cause of one recompile, of `catalog.CAUSES`, and at most `SHOWN` differences."""

    name: str
    differences: tuple[Mismatch, ...]
    omitted: int = 0


@dataclass(slots=True, eq=False)
class History:
    """
    Compile history of one function object.

    Attributes:
        compiled: whether it has been compiled, even if the signature is unknown.
        signatures: of the compiled calls, latest last.
        digests: of further signatures.
        calls: of the calls with these signatures.
        cleared_at: the line that has cleared JAX's caches since, empty if none has.
        warm: signatures that were compiled before the process was ready.
        transformed: its programs under transformations.
    """

    reference: weakref.ref[Any] | None
    calls: dict[int, None] = field(default_factory=dict)
    cleared_at: str = ""
    compiled: bool = False
    signatures: list[Signature] = field(default_factory=list)
    warm: list[Signature] = field(default_factory=list)
    digests: dict[tuple[int, int], None] = field(default_factory=dict)
    transformed: TransformedFunction | None = None

    def add(self, signature: Signature | None, stage: str = "") -> None:
        """Add a compile, with its *signature* if known; *stage* as of `Observers`."""
        self.compiled, self.cleared_at = True, ""
        if signature is None:
            return
        count = len(signature.leaves) + len(signature.operands)
        if stage == "warm":
            self.warm = self.nearby(stage)
        elif stage and len(self.warm) < _LEAVES // max(count, _DIGESTS):
            self.warm = [*(self.warm or self.signatures), signature]
        self.signatures.append(signature)
        leaves = max(count, _FEW_LEAVES)
        if len(self.signatures) * leaves > _LEAVES:
            del self.signatures[: -max(_LEAVES // leaves, 1)]
        for table in (self.digests, self.calls):
            if len(table) >= _DIGESTS:
                table.pop(next(iter(table)), None)  # type: ignore[call-overload]  # its own key
        self.digests[signature.digest, signature.hidden] = None
        self.calls[signature.call] = None

    def nearby(self, stage: str) -> list[Signature]:
        """Return what another signature is compared with, the latest last."""
        several = (self.warm if stage == "warm" else None) or self.signatures
        return several.copy()


@dataclass(slots=True, eq=False)
class TransformedFunction:
    """A function compiled under a transformation, and its latest *signature*."""

    function: Function
    created: Created
    signature: Signature | None = None
    histories: dict[Hashable, History] = field(default_factory=dict)

    def history(self, program: Hashable) -> History:
        """Return the history of a *program*, or of all programs of a kind."""
        if program not in self.histories and len(self.histories) >= _MAX_PROGRAMS:
            self.histories.pop(next(iter(self.histories)), None)
        return self.histories.setdefault(program, History(self.created.fun))


class Histories:
    """
    Keeps the last 16 compile signatures of each function, and says why one more is
    compiled.

    Called on the compiling thread, before and after each compile caused by a call.
    Holds no reference to functions or arguments.

    Args:
        context: names of the values in a signature's context, as in `differences`.
        values: whether to show values of static arguments.
        stage: returns that of the process, as of `Observers`.

    Attributes:
        remembered: larger after each compile that is remembered.
    """

    def __init__(
        self,
        context: Sequence[str] = (),
        *,
        values: bool = True,
        stage: Callable[[], str] = str,
    ) -> None:
        self.remembered = 0
        self._stage = stage
        self._context = context
        self._values = values
        self._recreations = Recreations()
        self._seen: dict[int, History] = {}

    def history(self, fun: object) -> History | None:
        """Return the history of *fun*, `None` if it cannot be identified later."""
        key = id(fun)
        if (found := self._seen.get(key)) is not None:
            return found
        try:
            # The callback is C and runs before the id can be reused.
            reference = weakref.ref(fun, functools.partial(self._seen.pop, key))
        except TypeError as error:
            interrupts.pass_on(error)
            return None
        return self._seen.setdefault(key, History(reference))

    def note_clear(self, place: str) -> None:
        """Note that the line *place* has dropped the programs of all functions."""
        for history in list(self._seen.values()):
            history.cleared_at = place

    def of(
        self,
        history: History | None,
        created: Created | None,
        signature: Signature | None,
        kind: History | None = None,
    ) -> Cause | None:
        """
        Return the cause of a recompile, `None` if it is the first compile.

        A function that replaces one created by the same line has the cause
        ``new_function``.

        Args:
            history: of the function, or of one of its programs under a transformation.
            created: the function, if it was not compiled before and is not JAX's.
            signature: of the call; `None` if unknown.
            kind: of all programs of that kind: an unrolled loop, for example, makes
                another program for each shape.
        """
        if history is not None and history.compiled:
            return (
                Cause("unknown", ())
                if signature is None
                else self._recompile_cause(history, signature)
            )
        if created is None or self._recreations.replaced_by(created) is None:
            if kind is None or signature is None or signature.call in kind.calls:
                return None
            return self._recompile_cause(kind, signature) if kind.compiled else None
        if signature is None or history is None:
            return Cause("unknown", ())
        last = self._recreations.latest(created.key)
        reference = history.reference
        made = _made_again(None if reference is None else reference())
        found = self._compare(signature, last) if last is not None else []
        shown = (made, *found[: SHOWN - 1])
        return Cause("new_function", shown, len(found) + 1 - len(shown))

    def _recompile_cause(self, history: History, signature: Signature) -> Cause:
        """Return why a function is recompiled."""
        if (signature.digest, signature.hidden) in history.digests:
            if signature.whole:
                return Cause("evicted", (_evicted(history.cleared_at),))
            partly = not_compared(signature, values=self._values)
            return Cause("unknown", tuple(partly)[:SHOWN])
        closest = self._closest(signature, history)
        found = [] if closest is None else self._compare(signature, closest)
        if closest is not None and not found:
            found = list(hidden_differences(signature, closest, values=self._values))
        if not found:
            return Cause("unknown", ())
        omitted = max(len(found) - SHOWN, 0)
        return Cause(dominant_kind(found), tuple(found[:SHOWN]), omitted)

    def remember(
        self,
        history: History | None,
        created: Created | None,
        signature: Signature | None,
        kind: History | None,
        number: int,
    ) -> None:
        """Record a compile, at a *number* comparable with that of a creation."""
        self.remembered += 1
        stage = self._stage()
        if kind is not None:
            kind.add(signature, stage)
        if created is not None and not (history is not None and history.compiled):
            self._recreations.add(created, number, signature)
        if history is not None:
            history.add(signature, stage)

    def _closest(self, new: Signature, history: History) -> Signature | None:
        """
        Return the closest signature, the latest of several: of warm ones, once the
        process is, and rather one whose sizes *new* could be padded to.
        """
        closest, least = None, _FARTHEST
        stage = self._stage()
        nearby = history.nearby(stage)
        if stage == "warm":
            nearby.sort(key=lambda old: _padding(new, old), reverse=True)
        for old in reversed(nearby):
            if least <= _ANOTHER_SHAPE and new.shapes != old.shapes:
                continue
            far = self._distance(new, old)
            if far < least:
                closest, least = old, far
            if least <= _NEAREST:  # none can be closer
                break
        return closest

    def _distance(self, new: Signature, old: Signature) -> tuple[int, bool, int]:
        """
        Return in how much *new* differs, whether in shapes, and in how many places.
        """
        if new.arguments != old.arguments:
            kinds = Counter(difference.kind for difference in self._compare(new, old))
            far = sum(_WEIGHTS.get(kind, 1) for kind in kinds)
            return far, "shape" in kinds, kinds.total()
        leaves = _unlike(new.leaves, old.leaves) + _unlike(new.operands, old.operands)
        attributes = {
            attribute
            for after, before in leaves
            for attribute, pair in enumerate(zip(after, before, strict=True))
            if ne(*pair)
        }
        context = len(changed_settings(new, old, self._context))
        options = new.options != old.options
        static = sum(map(bool, map(ne, new.static, old.static)))
        return (
            len(attributes)
            + _WEIGHTS["context"] * context
            + _WEIGHTS["options"] * options
            + _WEIGHTS["static_argument"] * static,
            _SHAPE in attributes,
            leaves.total() + context + options + static,
        )

    def _compare(self, new: Signature, old: Signature) -> list[Mismatch]:
        if new.digest == old.digest:
            return []
        return list(differences(new, old, context=self._context, values=self._values))


def _padding(new: Signature, old: Signature) -> tuple[bool, float]:
    """Return whether *old* is too small for *new*, and how far apart they are."""
    sizes = [
        (size, other)
        for leaf, before in zip(new.leaves, old.leaves, strict=False)
        if leaf is not before
        for size, other in zip(leaf.shape, before.shape, strict=False)
        if type(size) is int and type(other) is int
    ]
    far = sum(abs(math.log2((size + 1) / (other + 1))) for size, other in sizes)
    return any(size > other for size, other in sizes), far


def _unlike(new: Sequence[Leaf], old: Sequence[Leaf]) -> Counter[tuple[Leaf, Leaf]]:
    """Return the pairs of leaves that differ, and how many of each there are."""
    # Equal leaves are usually one object, which is faster to check; and of those that
    # differ, many do so alike.
    others = list(map(is_not, new, old))
    afters, befores = (list(compress(leaves, others)) for leaves in (new, old))
    counts = Counter(zip(map(id, afters), map(id, befores), strict=True))
    by_id = dict(zip(map(id, afters + befores), afters + befores, strict=True))
    pairs = ((by_id[before], by_id[other], n) for (before, other), n in counts.items())
    found = Counter[tuple[Leaf, Leaf]]()
    for before, other, count in pairs:
        if before != other:
            found[before, other] += count
    return found


def dominant_kind(found: Sequence[Mismatch]) -> str:
    """
    Return the kind that represents all of *found*: one that concerns the whole call, as
    ``jax_enable_x64`` changes every dtype, or the most frequent of leaves.
    """
    if len(found) == 1:
        return found[0].kind
    kinds = Counter(difference.kind for difference in found)
    for kind in _FIRST:
        if kind in kinds:
            return kind
    return max(_LEAF_KINDS, key=lambda kind: kinds[kind])


def _made_again(fun: object) -> Mismatch:
    if fun is None:  # it is gone
        text = "a new function object: create and jit it once"
        return Mismatch("new_function", "", "another object", "a new object", text)
    function, kind = inner(fun), type(fun)
    name = _name(function)
    place = place_of(fun)
    where = f" at {place}" if place else ""
    if is_subclass(kind, functools.partial):
        what, advice = "partial", "create the partial once, outside the loop"
    elif kind is types.MethodType:
        what, advice = "bound method", "jit the method once, not on each use"
    elif is_jitted(fun):  # our class has the same name as JAX's
        what, advice = "jit", "it is already jitted; call it directly"
    elif code_of(function) is None and type(function) is not types.BuiltinFunctionType:
        what, advice = "object", "create and jit it once"
    elif function is not fun:
        what, advice = "wrapper of a function", "wrap and jit it once"
    elif "<lambda>" in name:
        what, advice = "function object", "jit outside the loop"
    elif "<locals>" in name:
        what = "function object"
        around = bare_name(name.rpartition(".<locals>")[0])
        advice = f"{around} recreates and jits it each time"
    else:
        what, advice = "function object", "it was redefined"
    code = code_of(function)
    captured = ", ".join(code.co_freevars[:_MOST_CAPTURED]) if code else ""
    advice += f"; it captures {captured}" if captured else ""
    text = f"a new {what}{where}, `{bare_name(name)}`: {advice}"
    return Mismatch("new_function", name, "another object", f"a new {what}", text)


def _name(function: Any) -> str:
    kind = type(function)
    if kind is types.FunctionType:
        return str(function.__qualname__)
    given = field_of(function, "__qualname__")
    if kind is types.BuiltinFunctionType:
        given = function.__name__
    return given if type(given) is str else name_of(kind)


def _evicted(cleared_at: str) -> Mismatch:
    by = "jax.clear_caches()" if cleared_at else "clear_cache() or a full cache"
    text = f"identical arguments were compiled before: {by} evicted the program"
    return Mismatch("evicted", "", "compiled", "dropped", text)
