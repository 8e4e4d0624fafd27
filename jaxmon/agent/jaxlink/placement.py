"""
Finds arrays that each device holds whole, though they could be divided among devices:
the compiled program has the shapes of what a device holds, the jaxpr those of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

from jaxmon.agent.jaxlink.folding import called, is_literal, kind_of
from jaxmon.agent.jaxlink.products import bytes_of
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.facts.functions import WholeArrays


Shapes: TypeAlias = Sequence[tuple[int, ...]]

# Smaller arrays are held whole on purpose.
_LEAST_BYTES = 1 << 20
_MOST_EQUATIONS = 20_000
_CONSTRAINT = "sharding_constraint"
# Need no element of another device, if all operands are divided alike.
_ELEMENTWISE = frozenset(
    (
        *("abs", "add", "add_any", "and", "cbrt", "ceil", "clamp", "copy", "copy_p"),
        *("convert_element_type", "div", "eq", "erf", "exp", "exp2", "expm1", "floor"),
        *("ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic"),
        *("lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow", "rem", "round"),
        *("rsqrt", "select_n", "sign", "sqrt", "square", "stop_gradient", "sub"),
        *("tanh", _CONSTRAINT),
    )
)


def whole(
    jaxpr: Any, shapes: Sequence[Shapes], lines: SourceLineFinder
) -> WholeArrays | None:
    """
    Return what each device holds whole in vain; `None` if nothing does, as far as that
    is seen. Takes a microsecond per equation.

    Args:
        jaxpr: of a function.
        shapes: of what a device has of each argument, and of each result.
        lines: knows whose files are whose.
    """
    sizes = [len(jaxpr.invars), len(jaxpr.outvars)]
    if [*map(len, shapes)] != sizes or len(jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    return _uneven(jaxpr, shapes[1], lines) or _state(jaxpr, *shapes)


def _uneven(
    jaxpr: Any, returned: Shapes, lines: SourceLineFinder
) -> WholeArrays | None:
    """Return results whose constraint asks for parts that are not equal."""
    made = {
        equation.outvars[0]: equation
        for equation in jaxpr.eqns
        if equation.primitive.name == _CONSTRAINT
    }
    found = WholeArrays("uneven")
    for variable, shape in zip(jaxpr.outvars, returned, strict=True):
        equation = None if is_literal(variable) else made.get(variable)
        if equation is None or not _is_whole(variable, shape):
            continue
        if not (where := lines.place_of(equation.source_info.traceback)):
            continue
        sharding = equation.params.get("sharding")
        axes = getattr(getattr(sharding, "mesh", None), "shape", {})
        parts = [
            prod(axes.get(name, 1) for name in (of if isinstance(of, tuple) else (of,)))
            for of in getattr(sharding, "spec", ())
        ]
        if all(size % number == 0 for size, number in zip(shape, parts, strict=False)):
            continue
        found = found.replace(
            arrays=(*found.arrays, kind_of(variable)),
            bytes=found.bytes + bytes_of(variable) * (1 - 1 / prod(parts)),
            parts=prod(parts),
            where=where,
        )
    arrays = tuple(dict.fromkeys(found.arrays))
    return found.replace(arrays=arrays) if arrays else None


def _is_whole(variable: Any, shape: tuple[int, ...]) -> bool:
    return bytes_of(variable) >= _LEAST_BYTES and shape == variable.aval.shape


def _state(jaxpr: Any, taken: Shapes, returned: Shapes) -> WholeArrays | None:
    """
    Return arguments that are only computed with element by element, and returned, whole
    both times, though what they are computed with is divided, and used otherwise too:
    parameters that are whole beside a divided state are used otherwise themselves.
    """
    arguments = list(zip(jaxpr.invars, taken, strict=True))
    large = {
        variable: 1 << at
        for at, (variable, _) in enumerate(arguments)
        if bytes_of(variable) >= _LEAST_BYTES
    }
    outputs, otherwise = _flow(jaxpr, large)
    results = list(zip(outputs, jaxpr.outvars, returned, strict=True))
    found = WholeArrays("state")
    for at, (variable, shape) in enumerate(arguments):
        mask = large.get(variable, 0) & ~otherwise
        kept = any(of & mask and shape == var.aval.shape for of, var, shape in results)
        if not kept or not _is_whole(variable, shape):
            continue
        for other, (beside, part) in enumerate(arguments):
            both = mask | large.get(beside, 0) & otherwise
            parts = prod(beside.aval.shape) // max(prod(part), 1)
            if both != mask and parts > 1 and any(of & both == both for of in outputs):
                found = found.replace(
                    arrays=(*found.arrays, _name(jaxpr, at)),
                    bytes=found.bytes + bytes_of(variable) * (1 - 1 / parts),
                    parts=parts,
                    like=_name(jaxpr, other),
                )
                break
    return found if found.arrays else None


def _flow(jaxpr: Any, masks: Mapping[Any, int]) -> tuple[list[int], int]:
    """
    Return of which arguments each result of *jaxpr* is made element by element, as
    bits, and those that are used by other operations; *masks* are those of its own.
    """
    found, otherwise = dict(masks), 0
    for equation in jaxpr.eqns:
        given = [0 if is_literal(of) else found.get(of, 0) for of in equation.invars]
        if not any(given):
            continue
        inner, mask = called(equation.params), 0
        for bits in given:
            mask |= bits
        results = [mask] * len(equation.outvars)
        if inner is not None and len(inner.invars) == len(given):
            results, more = _flow(inner, dict(zip(inner.invars, given, strict=True)))
            otherwise |= more
        elif not _is_elementwise(equation):
            otherwise, results = otherwise | mask, []
        found.update(zip(equation.outvars, results, strict=False))
    outputs = [0 if is_literal(of) else found.get(of, 0) for of in jaxpr.outvars]
    return outputs, otherwise


def _is_elementwise(equation: Any) -> bool:
    """Return whether all operands are as large as the results, or numbers."""
    shapes = {equation.outvars[0].aval.shape, ()}
    return equation.primitive.name in _ELEMENTWISE and all(
        value.aval.shape in shapes for value in equation.invars
    )


def _name(jaxpr: Any, at: int) -> str:
    """Return the name of an argument, or its type and shape if JAX has none."""
    names = getattr(getattr(jaxpr, "debug_info", None), "arg_names", None) or ()
    is_named = len(names) == len(jaxpr.invars) and names[at]
    return str(names[at]) if is_named else kind_of(jaxpr.invars[at])
