"""
Functions that are compiled while JAX transforms them, such as under `jax.grad`.

Each transformation compiles programs of its own, one forward and one backward, of which
only the first is compiled in the function's call. The other is attributed to the
function of that name whose forward program was compiled last; to none if several
functions have the name, which is all that JAX has up to 0.4.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Hashable

from jaxmon import interrupts
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.transformed import Transformed
from jaxmon.agent.recompiles.causes import History
from jaxmon.agent.recompiles.recreations import Created
from jaxmon.agent.recompiles.signatures import Signature


_MAX_NAMES = 1_000
_MAX_PROGRAMS = 64


class TransformedFunction:
    """
    A function object that was compiled under a transformation.

    Args:
        function: its statistics.
        created: how it was created.

    Attributes:
        signature: of the call that was transformed last, without its operands.
    """

    __slots__ = ("_histories", "created", "function", "signature")

    def __init__(self, function: Function, created: Created) -> None:
        self.function = function
        self.created = created
        self.signature: Signature | None = None
        self._histories: dict[Hashable, History] = {}

    def history(self, program: Hashable) -> History:
        """Return the history of a *program*, or of all programs of a kind."""
        if program not in self._histories and len(self._histories) >= _MAX_PROGRAMS:
            self._histories.pop(next(iter(self._histories)), None)
        fresh = History(self.created.fun)
        return self._histories.setdefault(program, fresh)


class Transformations:
    """The functions that were compiled under a transformation."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[TransformedFunction, weakref.ref[object]]] = {}
        # `None` if several functions have the name.
        self._by_name: dict[str, TransformedFunction | None] = {}

    def known(self, fun: object) -> TransformedFunction | None:
        """Return what is known of *fun*."""
        found = self._by_id.get(id(fun))
        return found[0] if found else None

    def add(self, fun: object, function: Function, created: Created) -> None:
        """Add *fun*; it is dropped with it."""
        key, one = id(fun), TransformedFunction(function, created)
        try:
            # The callback is C and runs before the id can be reused.
            reference = weakref.ref(fun, functools.partial(self._by_id.pop, key))
        except TypeError as error:
            interrupts.pass_on(error)
            return
        self._by_id[key] = one, reference

    def compiles(self, one: TransformedFunction, found: Transformed) -> None:
        """Record that *one* is compiled in its call, under the names in *found*."""
        if len(self._by_name) >= _MAX_NAMES:
            self._by_name.clear()
        for name in found.names:
            before = self._by_name.get(name, one)
            same = before is not None and before.function is one.function
            self._by_name[name] = one if same else None

    def named(self, found: Transformed) -> TransformedFunction | None:
        """Return the function that a program outside of its call belongs to."""
        # The first name is the source line, if JAX has it; many functions may have the
        # same bare name.
        one = self._by_name.get(found.names[0])
        if one is None or len(found.names) > 1:
            return one
        fun = one.created.fun
        return one if fun is not None and fun() is not None else None
