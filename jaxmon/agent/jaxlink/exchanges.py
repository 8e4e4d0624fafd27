"""
Finds arguments that a program divides among devices otherwise than they come, in each
call: the compiled program has the shapes of what a device holds, the jaxpr those of
all, and the text of the program what devices exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from operator import mod
from typing import Any, TypeAlias

from jaxmon.agent.jaxlink.contents import (
    CONSTRAINT,
    ELEMENTWISE,
    LEAST_BYTES,
    Shapes,
    argument_name,
    called,
    has_shapes,
    is_literal,
)
from jaxmon.agent.jaxlink.executables import Exchange
from jaxmon.agent.jaxlink.products import bytes_of
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.facts.contents import Resharded


# Into how many parts each dimension is divided; and the numbers of arguments.
_Parts: TypeAlias = tuple[int, ...]
_Made: TypeAlias = frozenset[int]
_NONE: _Made = frozenset()

# They run the body once, on all that they are given.
_CALLS = frozenset(("checkpoint", "custom_jvp_call", "jit", "pjit", "remat", "remat2"))
_REDUCTIONS = frozenset(
    ("argmax", "argmin", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum")
)
# Need all elements along a dimension, which this parameter is.
_ALONG = dict.fromkeys(
    ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"), "axis"
)
_ALONG["sort"] = "dimension"
_MOST = 50


def resharded(
    jaxpr: Any,
    shapes: Sequence[Shapes],
    exchanges: Sequence[Exchange],
    devices: int,
    lines: SourceLineFinder,
) -> Resharded | None:
    """
    Return arguments that each call divides otherwise, though all that is made of them
    could do with another division from the start; `None` if there are none, or that is
    not certain: of what each of *devices* has (*shapes*), and gets from others, as in
    `whole`. Takes some microseconds per equation.
    """
    if not exchanges or not has_shapes(jaxpr, shapes):
        return None
    found = _Flow(jaxpr, *shapes).found(exchanges, devices, lines)
    return max(islice(found, _MOST), key=lambda of: of.bytes, default=None)


class _Flow:
    """
    What becomes of the large arguments that are divided: of which each value is made,
    by their numbers. What is made of none of them could be divided in any way.
    """

    def __init__(self, jaxpr: Any, taken: Shapes, returned: Shapes) -> None:
        self._jaxpr = jaxpr
        self._parts: dict[int, _Parts] = {}
        # Arguments, the dimensions along which it goes, its name, and the equation, or
        # the call of a jitted function that contains it: JAX traced that once for all.
        self._made: list[tuple[_Made, tuple[int, ...], str, Any]] = []
        # What is used otherwise as well, or with what is not known.
        self._doubtful = set[int]()
        given: list[_Made | None] = []
        for at, (variable, shape) in enumerate(zip(jaxpr.invars, taken, strict=True)):
            parts = _parts_of(variable, shape)
            given.append(None if parts is None else _NONE)
            if parts and bytes_of(variable) >= LEAST_BYTES and prod(parts) > 1:
                given[at], self._parts[at] = frozenset((at,)), parts
        pairs = zip(self._read(jaxpr, given), jaxpr.outvars, returned, strict=True)
        self._returned = [(of, _parts_of(var, shape)) for of, var, shape in pairs if of]

    def _read(
        self, jaxpr: Any, taken: list[_Made | None], caller: Any = None
    ) -> list[_Made | None]:
        """Return what the results of *jaxpr* are made of, `None` if not known."""
        found = dict(zip(jaxpr.invars, taken, strict=True))
        found.update(dict.fromkeys(jaxpr.constvars, _NONE))
        for equation in jaxpr.eqns:
            name, results = equation.primitive.name, list[_Made | None]()
            given = [
                _NONE if is_literal(of) else found.get(of) for of in equation.invars
            ]
            made = _NONE.union(*filter(None, given))
            along = (equation.params[_ALONG[name]],) if name in _ALONG else ()
            inner = called(equation.params) if name in _CALLS else None
            if inner and len(inner.invars) == len(given) and _is_open(equation):
                results = self._read(inner, given, caller or equation)
            elif all(bytes_of(of) < LEAST_BYTES for of in equation.outvars):
                # What is exchanged for it is small, too.
                self._doubtful |= _NONE if name in _REDUCTIONS else made
                results = [_NONE] * len(equation.outvars)
            elif None in given or not (along or _is_alike(equation, given)):
                self._doubtful |= made
            else:
                results = [made] * len(equation.outvars)
                if made and (along or len(made) > 1):
                    self._made.append((made, along, name, caller or equation))
            found.update(zip(equation.outvars, results, strict=False))
        return [_NONE if is_literal(of) else found.get(of) for of in jaxpr.outvars]

    def found(
        self, exchanges: Sequence[Exchange], devices: int, lines: SourceLineFinder
    ) -> Iterator[Resharded]:
        """Yield arguments that are together, and cannot stay as they are divided."""
        seen = self._doubtful.copy()
        for made, along, name, equation in self._made:
            kinds = {self._parts[at] for at in made}
            is_moved = any(of[at] > 1 for of in kinds for at in along)
            if made & seen or not (is_moved or len(kinds) > 1):
                continue
            together, before = made, _NONE
            while before != together:
                before = together
                for other, *_ in self._made:
                    together |= other if other & together else _NONE
            seen |= together
            where = lines.place_of(equation.source_info.traceback)
            choices = self._choices(together, exchanges, devices)
            best = min(choices, key=lambda of: of.bytes, default=None)
            if best is not None and where and not together & self._doubtful:
                yield best.replace(where=where, operation=name if along else "")

    def _choices(
        self, together: _Made, exchanges: Sequence[Exchange], devices: int
    ) -> Iterator[Resharded]:
        """Yield how arguments could be divided, for all that is made of them."""
        members = {at: self._parts[at] for at in sorted(together)}
        along = {at for made, of, *_ in self._made if made & together for at in of}
        returned = {parts for made, parts in self._returned if made & together}
        kinds = list(dict.fromkeys(members.values()))
        # What is whole on some devices may be divided further without an exchange.
        if len(kinds) > 1 and {*map(prod, kinds)} != {devices}:
            return
        # All have the same shape.
        shape = self._jaxpr.invars[min(together)].aval.shape
        sizes = prod(shape) // prod(kinds[0]), prod(shape)
        received = [of.bytes for of in exchanges if of.elements == sizes[of.is_gather]]
        if len(kinds) == 1:
            # What is returned as it was is moved once, instead of twice.
            returned -= {*kinds}
            kinds = _others(kinds[0], along, shape)
        for needed in kinds:
            is_local = all(needed[at] == 1 for at in along)
            if received and is_local and not returned - {needed}:
                moved = [at for at, of in members.items() if of != needed]
                like = [
                    argument_name(self._jaxpr, at) for at in members if at not in moved
                ]
                yield Resharded(
                    tuple(argument_name(self._jaxpr, at) for at in moved),
                    float(sum(sorted(received)[: len(moved)])),
                    members[moved[0]],
                    needed,
                    *like[:1],
                )


def _parts_of(variable: Any, shape: tuple[int, ...]) -> _Parts | None:
    """Return how *variable* is divided into parts of that *shape*, if all are equal."""
    sizes = getattr(variable.aval, "shape", ())
    if len(shape) != len(sizes) or any(map(mod, sizes, (max(of, 1) for of in shape))):
        return None
    return tuple(size // max(of, 1) for size, of in zip(sizes, shape, strict=True))


def _others(parts: _Parts, along: set[int], shape: tuple[int, ...]) -> list[_Parts]:
    """Return divisions of another dimension instead of *along*."""
    number = prod(parts[at] for at in along)
    bare = [1 if at in along else of for at, of in enumerate(parts)]
    return [
        (*bare[:at], number, *bare[at + 1 :])
        for at, size in enumerate(shape)
        if parts[at] == 1 and at not in along and size % number == 0
    ]


def _is_alike(equation: Any, given: list[_Made | None]) -> bool:
    """Return whether results could be divided as what is *given*, in any way."""
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    if not any(given):
        return name in ("broadcast_in_dim", "iota", *ELEMENTWISE)
    pairs = zip(given, equation.invars, strict=True)
    is_same = all(of.aval.shape == shape for made, of in pairs if made)
    return is_same and name in ELEMENTWISE and name != CONSTRAINT


def _is_open(call: Any) -> bool:
    """Return whether a *call* leaves it to XLA how arrays are divided."""
    names = ("in_shardings", "out_shardings")
    asked = [of for name in names for of in call.params.get(name) or ()]
    return all(type(of).__name__ == "UnspecifiedValue" for of in asked)
