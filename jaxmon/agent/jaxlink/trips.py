"""How often the body of a while loop runs, if that follows from its constants."""

from __future__ import annotations

import operator
from typing import Any

from jaxmon import interrupts


# Each comparison, as a counter that grows would be compared with its limit, and whether
# the limit itself is included.
_UP = {"lt": 0, "le": 1}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def trip_count(equation: Any) -> int | None:
    """
    Return how often the loop of a ``while`` *equation* runs: one that counts from a
    constant to a constant, in constant steps; `None` for any other.

    A loop with a number of trips known when it is traced, as of ``fori_loop``, mostly
    is a ``scan``, which has its length.
    """
    parameters = equation.params
    condition = parameters["cond_jaxpr"].jaxpr
    body = parameters["body_jaxpr"].jaxpr
    outer = equation.invars
    first, second = parameters["cond_nconsts"], parameters["body_nconsts"]
    compared = _source(condition, condition.outvars[0])
    if compared is None or compared.primitive.name not in _MIRRORED:
        return None
    name, (left, right) = compared.primitive.name, compared.invars
    if _number(left) is not None or left in condition.invars[:first]:
        name, left, right = _MIRRORED[name], right, left
    if left not in condition.invars[first:]:
        return None
    if right in condition.invars[:first]:
        right = outer[condition.invars.index(right)]
    at = condition.invars.index(left) - first
    counter = body.invars[second + at]
    start, limit = _number(outer[first + second + at]), _number(right)
    step = _step(body, counter, body.outvars[at])
    if start is None or limit is None or not step:
        return None
    if step < 0:
        start, limit, step, name = -start, -limit, -step, _MIRRORED[name]
    if name not in _UP:
        return None
    return max(0, -((start - limit - _UP[name]) // step))


def _step(body: Any, counter: Any, result: Any) -> int | None:
    """Return what *body* adds to its argument *counter* to make *result*."""
    found = _source(body, result)
    if found is None or found.primitive.name not in ("add", "sub"):
        return None
    left, right = found.invars
    if found.primitive.name == "add" and right is counter:
        left, right = right, left
    amount = _number(right)
    if left is not counter or amount is None:
        return None
    return amount if found.primitive.name == "add" else -amount


def _source(jaxpr: Any, result: Any) -> Any:
    """Return the equation of *jaxpr* that makes *result*."""
    for equation in reversed(jaxpr.eqns):
        if any(one is result for one in equation.outvars):
            return equation
    return None


def _number(value: Any) -> int | None:
    """Return the value of a literal integer."""
    literal = getattr(value, "val", None)
    if literal is None or getattr(value.aval, "shape", None) != ():
        return None
    try:
        return operator.index(literal)
    except TypeError as error:  # a float, or an array that is none
        interrupts.pass_on(error)
        return None
