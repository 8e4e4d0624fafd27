"""
Operations with a cheaper form: lookups by products with one-hot vectors, sorts of which
few elements are used, and products of matrices written as sums of a broadcast product.
And those which every call computes again from the same arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from itertools import islice
from math import prod
from operator import or_
from typing import Any, TypeAlias

from jaxmon.agent.jaxlink.contents import (
    LIBRARY,
    PRODUCTS,
    SORTS,
    WorkReader,
    called,
    is_literal,
    kind_of,
    most_in_vain,
)
from jaxmon.agent.jaxlink.products import elements
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_in, jaxprs_of
from jaxmon.facts.contents import Inefficient


# Fewer rows of a table, or elements of a sort, take no time; one of so many is few.
_SMALLEST_TABLE, _SMALLEST_SORT, _FEW = 256, 1000, 8
_SHORTEST_SUM = 32
_MOST_EQUATIONS, _MOST_STEPS = 20_000, 1000
# Take longer than to read their results.
_DEAR = LIBRARY | {*PRODUCTS, *SORTS, "scan", "while"}
_KEPT = frozenset(("convert_element_type", "copy", "stop_gradient"))

_Made: TypeAlias = Mapping[Any, Any]
_Judged: TypeAlias = tuple[Inefficient, list[Any]]


def inefficient(jaxpr: Any, lines: SourceLineFinder) -> Inefficient | None:
    """Return what wastes most of *jaxpr*; 1 µs per equation if nothing, else 10 µs."""
    kinds = {of.kind for inside in _inside(jaxpr) for of, _ in _judged(inside)}
    readers = {
        _ProductReader if of == "product" else _InefficiencyReader for of in kinds
    }
    found = (most_in_vain(jaxpr, lines, reader) for reader in readers)
    return max(filter(None, found), key=lambda of: of.ratio, default=None)


def _inside(jaxpr: Any) -> Iterator[Any]:
    return jaxprs_of(jaxpr, _MOST_EQUATIONS)


class _InefficiencyReader(WorkReader):
    """Finds operations with a cheaper form."""

    def judge(self, jaxpr: Any, work: list[float], times: float) -> None:
        """Note them by line."""
        costs = {id(of): cost for of, cost in zip(jaxpr.eqns, work, strict=True)}
        for fact, wasted in _judged(jaxpr):
            where = self.place_of(wasted[-1])
            if where and self.judges(fact.kind):
                before = self.vain.get(where, fact.replace(where=where))
                more = times * sum(costs[id(of)] for of in wasted)
                self.vain[where] = before.replace(ratio=before.ratio + more)

    def judges(self, kind: str) -> bool:
        """Return whether it judges a *kind* of them."""
        return kind != "product"


class _ProductReader(_InefficiencyReader):
    """Finds products that would be faster as such: other products are, too."""

    weights = (1 / 64, 1 / 8)

    def judges(self, kind: str) -> bool:
        """Return whether that is a *kind* of product."""
        return kind == "product"


def recomputed(
    jaxpr: Any, number: int, fixed: Collection[int], lines: SourceLineFinder
) -> tuple[Inefficient, list[int]] | None:
    """
    Return what is most of *jaxpr* of what follows from the *fixed* of its arguments, of
    that *number*, alone, and from which of these. What is no more work than to read it
    does not count. 10 µs per equation.
    """
    if len(jaxpr.invars) != number:
        return None
    given = {jaxpr.invars[at]: 1 << at for at in fixed}
    sources: dict[str, int] = {}
    fixed_by = _fixed(jaxpr, given, {})
    fixed_by.update((id(of), 0) for of in _unused(jaxpr))
    more = fixed_by, sources
    found: Inefficient | None = most_in_vain(jaxpr, lines, _FixedReader, *more)
    if found is None:
        return None
    return found, [at for at in fixed if sources[found.where] >> at & 1]


class _FixedReader(WorkReader):
    """
    Finds operations whose operands are the same in each call: those of which *fixed*
    has arguments, as bits. Adds to *sources* these of a line.
    """

    def __init__(
        self,
        lines: SourceLineFinder,
        weight: float,
        fixed: Mapping[int, int],
        sources: dict[str, int],
    ) -> None:
        super().__init__(lines, weight)
        self._fixed, self._sources = fixed, sources
        self._is_whole = False

    def work(self, equation: Any, times: float) -> float:
        """Return the work of *equation*; what is in a fixed one is not judged again."""
        before = self._is_whole
        self._is_whole |= bool(self._fixed.get(id(equation)))
        try:
            return super().work(equation, times)
        finally:
            self._is_whole = before

    def judge(self, jaxpr: Any, work: list[float], times: float) -> None:
        """Note them by line, and by name."""
        if self._is_whole:
            return
        for equation, cost in zip(jaxpr.eqns, work, strict=True):
            name = _dear(equation) if self._fixed.get(id(equation)) else ""
            if name and (where := self.place_of(equation)):
                fact = Inefficient("fixed", name, where=where)
                before = self.vain.get(where, fact)
                self.vain[where] = before.replace(ratio=before.ratio + times * cost)
                mask = self._sources.get(where, 0) | self._fixed[id(equation)]
                self._sources[where] = mask


def _fixed(jaxpr: Any, given: dict[Any, int], found: dict[int, int]) -> dict[int, int]:
    """
    Note by the identity of equations, outermost first, from which arguments each
    follows, by those of what is *given*; 0 if from others, too, wherever it is called.
    Loops and branches are taken as a whole.
    """
    for equation in jaxpr.eqns:
        variables = [of for of in equation.invars if not is_literal(of)]
        masks = [given.get(of, 0) for of in variables]
        mask = reduce(or_, masks, 0) if all(masks) and not equation.effects else 0
        follows = found.get(id(equation), 1) and mask
        found[id(equation)] = found.get(id(equation), 0) | mask if follows else 0
        given.update(dict.fromkeys(equation.outvars if mask else (), mask))
        inner = None if mask else called(equation.params)
        if inner is not None and len(inner.invars) == len(equation.invars):
            pairs = zip(inner.invars, equation.invars, strict=True)
            taken = {of: given.get(by, 0) for of, by in pairs if not is_literal(by)}
            _fixed(inner, taken, found)
    return found


def _unused(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of which nothing follows, which JAX leaves out."""
    needed = {of for of in jaxpr.outvars if not is_literal(of)}
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            needed.update(of for of in equation.invars if not is_literal(of))
        else:
            yield equation


def _dear(equation: Any) -> str:
    """Return the operation in *equation* that is more work than to read its result."""
    names = [equation.primitive.name]
    for _, jaxpr in jaxprs_in(equation):
        for inner in _inside(jaxpr):
            names += [of.primitive.name for of in inner.eqns]
    return next((name for name in names if name in _DEAR), "")


def _made(jaxpr: Any) -> dict[Any, Any]:
    return {of: equation for equation in jaxpr.eqns for of in equation.outvars}


def _judged(jaxpr: Any) -> list[_Judged]:
    made = _made(jaxpr)
    operands = [of for equation in jaxpr.eqns for of in equation.invars]
    uses = Counter(of for of in [*operands, *jaxpr.outvars] if not is_literal(of))
    judges = {"dot_general": _lookup, "slice": _sort, "reduce_sum": _product}
    found = [
        judges[equation.primitive.name](equation, made, uses)
        for equation in jaxpr.eqns
        if equation.primitive.name in judges
    ]
    return [of for of in found if of is not None]


def _product(equation: Any, made: _Made, uses: Counter[Any]) -> _Judged | None:
    summed = equation.invars[0]
    product = None if is_literal(summed) else made.get(summed)
    if product is None or product.primitive.name != "mul" or uses[summed] > 1:
        return None
    if not str(summed.aval.dtype).startswith(("float", "bfloat")):
        return None  # products of matrices of whole numbers are not faster
    axes = {*equation.params["axes"]}
    left, right = (_varies_along(of, made) for of in product.invars)
    shape = product.outvars[0].aval.shape
    length, rows, columns = (
        prod(shape[axis] for axis in of) for of in (axes, left - right, right - left)
    )
    if not axes <= left & right or length < _SHORTEST_SUM or min(rows, columns) < _FEW:
        return None
    return Inefficient("product", kind_of(product.outvars[0])), [product, equation]


def _varies_along(variable: Any, made: _Made) -> set[int]:
    """Return the axes along which *variable* does not repeat one element."""
    axes = {axis for axis, size in enumerate(variable.aval.shape) if size > 1}
    equation = None if is_literal(variable) else made.get(variable)
    if equation is not None and equation.primitive.name == "broadcast_in_dim":
        inner = _varies_along(equation.invars[0], made)
        axes &= {equation.params["broadcast_dimensions"][axis] for axis in inner}
    return axes


def _lookup(equation: Any, made: _Made, _: Counter[Any]) -> _Judged | None:
    sides, _ = equation.params["dimension_numbers"]
    for operand, contracted in zip(equation.invars, sides, strict=True):
        compared, inside = _source(operand, made)
        if compared is None or compared.primitive.name != "eq" or len(contracted) != 1:
            continue
        axis, size = contracted[0], operand.aval.shape[contracted[0]]
        counts = [_counts_along(of, axis, inside) for of in compared.invars]
        # In a matrix with ones on its diagonal, no array of the program is compared.
        index = compared.invars[counts.index(False)] if sum(counts) == 1 else None
        if size >= _SMALLEST_TABLE and index is not None and _is_given(index, inside):
            fact = Inefficient("lookup", kind_of(operand), size=size)
            return fact, [made[operand], equation]
    return None


def _is_given(variable: Any, made: _Made) -> bool:
    """Return whether *variable* is made of an array that the program gets."""
    waiting = [variable]
    for of in islice(waiting, _MOST_STEPS):  # which grows
        if not is_literal(of) and of in made:
            waiting += made[of].invars
        elif elements(of) > 1:
            return True
    return False


def _counts_along(variable: Any, axis: int, made: _Made) -> bool:
    """Return whether *variable* has its indices along *axis*."""
    equation, made = _source(variable, made)
    name = "" if equation is None else equation.primitive.name
    if name == "iota":
        return bool(equation.params["dimension"] == axis)
    axes = equation.params["broadcast_dimensions"] if name == "broadcast_in_dim" else ()
    return axis in axes and _counts_along(equation.invars[0], axes.index(axis), made)


def _sort(equation: Any, made: _Made, uses: Counter[Any]) -> _Judged | None:
    variable, parameters = equation.invars[0], equation.params
    found, _ = _source(variable, made)
    if found is None or found.primitive.name != "sort":
        return None
    axis, maker = found.params["dimension"], made[variable]
    size, result = variable.aval.shape[axis], equation.outvars[0].aval.shape
    first, last = (parameters[of][axis] for of in ("start_indices", "limit_indices"))
    # XLA computes once what is the same.
    same = [
        of
        for equation in made.values()
        if equation.primitive is maker.primitive and equation.invars == maker.invars
        for of in equation.outvars
    ]
    is_whole = size < max(_SMALLEST_SORT, _FEW * result[axis])
    used = sum(uses[of] for of in {*same})
    if is_whole or used > 1 or (first > 0 and last < size):
        return None
    fact = Inefficient("sort", kind_of(variable), size=size, used=result[axis])
    return fact, [maker]


def _source(variable: Any, made: _Made) -> tuple[Any, _Made]:
    """
    Return the equation that computes *variable*, also within a jitted function, and
    those around it; `None` for an argument.
    """
    while not is_literal(variable):
        equation = made.get(variable)
        if equation is None:
            break
        inner = called(equation.params)
        if inner is not None and len(inner.outvars) == len(equation.outvars):
            variable = inner.outvars[equation.outvars.index(variable)]
            made = _made(inner)
        elif equation.primitive.name in _KEPT:
            variable = equation.invars[0]
        else:
            return equation, made
    return None, made
