"""
Operations with a cheaper form: lookups by products with one-hot vectors, and sorts of
which few elements are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any, TypeAlias

from jaxmon.agent.jaxlink.contents import (
    WorkReader,
    called,
    is_literal,
    kind_of,
    most_in_vain,
)
from jaxmon.agent.jaxlink.products import elements
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_of
from jaxmon.facts.contents import Inefficient


# Fewer rows of a table, or elements of a sort, take no time; one of so many is few.
_SMALLEST_TABLE, _SMALLEST_SORT, _FEW = 256, 1000, 8
_MOST_EQUATIONS, _MOST_STEPS = 20_000, 1000
_KEPT = frozenset(("convert_element_type", "copy", "stop_gradient"))

_Made: TypeAlias = Mapping[Any, Any]
_Judged: TypeAlias = tuple[Inefficient, list[Any]]


def inefficient(jaxpr: Any, lines: SourceLineFinder) -> Inefficient | None:
    """Return what wastes most of *jaxpr*; 1 µs per equation if nothing, else 10 µs."""
    found: Inefficient | None = None
    if any(any(_judged(inside)) for inside in jaxprs_of(jaxpr, _MOST_EQUATIONS)):
        found = most_in_vain(jaxpr, lines, _InefficiencyReader)
    return found


class _InefficiencyReader(WorkReader):
    """Finds operations with a cheaper form."""

    def judge(self, jaxpr: Any, work: list[float], times: float) -> None:
        """Note them by line."""
        costs = {id(of): cost for of, cost in zip(jaxpr.eqns, work, strict=True)}
        for fact, wasted in _judged(jaxpr):
            where = self.lines.place_of(wasted[-1].source_info.traceback)
            if where:
                before = self.vain.get(where, fact.replace(where=where))
                more = times * sum(costs[id(of)] for of in wasted)
                self.vain[where] = before.replace(ratio=before.ratio + more)


def _made(jaxpr: Any) -> dict[Any, Any]:
    return {of: equation for equation in jaxpr.eqns for of in equation.outvars}


def _judged(jaxpr: Any) -> list[_Judged]:
    made = _made(jaxpr)
    operands = [of for equation in jaxpr.eqns for of in equation.invars]
    uses = Counter(of for of in [*operands, *jaxpr.outvars] if not is_literal(of))
    found = [
        _lookup(equation, made)
        if equation.primitive.name == "dot_general"
        else _sort(equation, made, uses)
        for equation in jaxpr.eqns
        if equation.primitive.name in {"dot_general", "slice"}
    ]
    return [of for of in found if of is not None]


def _lookup(equation: Any, made: _Made) -> _Judged | None:
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
