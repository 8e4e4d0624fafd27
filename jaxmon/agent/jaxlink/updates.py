"""Updates in a program: what it takes, plus or minus something, returned or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jaxmon.agent.jaxlink.contents import argument_name, is_literal
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_of
from jaxmon.facts.functions import Frozen


_MOST_EQUATIONS = 20_000
# How JAX calls what it computes for a gradient.
_BACKWARD, _FORWARD = "transpose(", "jvp("


def _updates(
    jaxpr: Any, results: Iterable[Any]
) -> Iterator[tuple[int, Any, dict[Any, Any]]]:
    """
    Yield the number of each argument of *jaxpr* of which one of its *results* is an
    update, what that adds or subtracts, and what makes this; arrays of floats only.
    Takes some 100 ns per equation.
    """
    given = {
        var: at
        for at, var in enumerate(jaxpr.invars)
        if getattr(var.aval, "shape", ()) and "float" in str(var.aval.dtype)
    }
    made = {of.outvars[0]: of for of in jaxpr.eqns if of.outvars}
    for result in results:
        total = None if is_literal(result) else made.get(result)
        name = "" if total is None else total.primitive.name
        if total is None or name not in ("add", "sub"):
            continue
        pair = [None if is_literal(of) else of for of in total.invars]
        for taken, added in (pair, pair[::-1])[: 1 if name == "sub" else 2]:
            if taken in given:
                yield given[taken], added, made
                break


def zeroed(jaxpr: Any, lines: SourceLineFinder) -> Frozen | None:
    """
    Return the arrays that *jaxpr* returns as it takes them, plus a product with 0, as
    with a learning rate of 0; `None` if to another it adds what may be anything: some
    may be left as they are on purpose. Takes some 100 ns per equation.
    """
    names, where = [], ""
    for at, added, made in _updates(jaxpr, jaxpr.outvars):
        product = made.get(added)
        factors = product.invars if product else ()
        zero = any(is_literal(of) and of.val == 0 for of in factors)
        if product is None or product.primitive.name != "mul" or not zero:
            return None
        where = where or lines.place_of(product.source_info.traceback)
        names.append(argument_name(jaxpr, at))
    return Frozen(tuple(names), where=where) if names else None


def updated(jaxpr: Any, number: int) -> list[int]:
    """
    Return the numbers of the arguments that *jaxpr* updates, if there are several, of
    that *number*, and it computes a gradient. Takes a microsecond per equation.
    """
    is_whole = len(jaxpr.invars) == number
    found = [at for at, _, _ in _updates(jaxpr, jaxpr.outvars)] if is_whole else []
    return found if found[1:] and _is_backward(jaxpr) else []


def unused(jaxpr: Any, lines: SourceLineFinder) -> Frozen | None:
    """
    Return arguments of *jaxpr* that it updates, if nothing returns or uses any of the
    updates; it computes a gradient. Takes a microsecond per equation.
    """
    if len(jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    made = [of for equation in jaxpr.eqns for of in equation.outvars]
    operands = (of for equation in jaxpr.eqns for of in equation.invars)
    used = {of for of in (*operands, *jaxpr.outvars) if not is_literal(of)}
    dropped = (of for of in made if of not in used)
    found = [
        (at, added, made)
        for at, added, made in _updates(jaxpr, dropped)
        if _follows_gradient(added, made)
    ]
    if not found[1:] or any(_updates(jaxpr, jaxpr.outvars)):
        return None
    places = (
        lines.place_of(made[of].source_info.traceback)
        for _, of, made in found
        if of in made
    )
    names = tuple([argument_name(jaxpr, at) for at, _, _ in found])
    return Frozen(names, where=next(filter(None, places), ""))


def _follows_gradient(variable: Any, made: dict[Any, Any]) -> bool:
    """Return whether *variable* is made of a gradient, and is no part of one itself."""
    waiting, seen = [variable], set[Any]()
    while waiting:
        equation = made.get(waiting.pop())
        if equation is None or id(equation) in seen:
            continue
        seen.add(id(equation))
        stack = str(equation.source_info.name_stack)
        if _BACKWARD in stack:
            return True
        if _FORWARD not in stack:
            waiting += [of for of in equation.invars if not is_literal(of)]
    return False


def _is_backward(jaxpr: Any) -> bool:
    """Return whether *jaxpr* computes a gradient."""
    return any(
        _BACKWARD in str(equation.source_info.name_stack)
        for inside in jaxprs_of(jaxpr, _MOST_EQUATIONS)
        for equation in inside.eqns
    )


def counts(jaxpr: Any) -> bool:
    """Return whether *jaxpr* takes an integer, and returns one that it makes."""
    given = [of for of in jaxpr.invars if _is_count(of)]
    return bool(given) and any(
        _is_count(of) and of not in given for of in jaxpr.outvars
    )


def _is_count(variable: Any) -> bool:
    is_scalar = not is_literal(variable) and getattr(variable.aval, "shape", 0) == ()
    return is_scalar and "int" in str(variable.aval.dtype)
