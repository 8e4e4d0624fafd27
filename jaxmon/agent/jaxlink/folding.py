"""
Finds operations on constants in a program: XLA computes them while it compiles, element
by element where it has no fast way, and that may take longer than all calls.

A constant is an array that a jitted function takes from around it, and not as an
argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2, prod
from typing import Any, NamedTuple

from jaxmon.agent.jaxlink.products import (
    UncountableError,
    bytes_of,
    convolution,
    elements,
)
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_of
from jaxmon.facts.functions import Captured, Folded
from jaxmon.host.sources import display_path


# Smaller arrays than that take no time, whatever is done with them.
_SMALLEST = 1000
_MOST_EQUATIONS, _MOST_CALLERS = 20_000, 3
# Fewer bytes of constants take no time to copy either.
_LEAST_BYTES = 1 << 20
# XLA computes prefix sums in windows of so many elements.
_WINDOW = 16
_CUMULATIVE = frozenset(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"))
_SCATTERS = ("scatter", "select_and_")
# Run a program of their own: they are not folded as one operation.
_LOOPS = frozenset(("scan", "while", "cond"))


class _Work(NamedTuple):
    """What XLA does *steps* times for an *operation* on constants, and its equation."""

    steps: float
    operation: str
    equation: Any


def folded(jaxpr: Any, lines: SourceLineFinder) -> Folded | None:
    """
    Return the operation on constants that takes most steps in *jaxpr*, with those of
    all; `None` if there is none. Takes a microsecond per equation, if there are large
    constants.

    Args:
        jaxpr: of a function.
        lines: knows whose files are whose.
    """
    constants = [var for var in jaxpr.constvars if elements(var) >= _SMALLEST]
    if not constants or len(jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    work, _ = _walk(jaxpr, constants)
    if not work:
        return None
    most = max(work, key=lambda of: of.steps)
    largest = max(constants, key=elements)
    return Folded(
        where=lines.place_of(most.equation.source_info.traceback),
        callers=_callers(most.equation, lines),
        operation=most.operation,
        constant=kind_of(largest),
        steps=int(sum(of.steps for of in work)),
        programs=1,
    )


def captured(jaxpr: Any, lines: SourceLineFinder) -> Captured | None:
    """
    Return the constants of *jaxpr*, and of those it calls, if they are large: XLA gets
    them as part of the program. Takes a microsecond per equation.

    Args:
        jaxpr: of a function.
        lines: knows whose files are whose.
    """
    arrays = [
        (var, inside)
        for inside in jaxprs_of(jaxpr, _MOST_EQUATIONS)
        for var in inside.constvars
    ]
    total = sum(bytes_of(var) for var, _ in arrays)
    if total < _LEAST_BYTES:
        return None
    largest, inside = max(arrays, key=lambda array: bytes_of(array[0]))
    uses = (of for of in inside.eqns if any(var is largest for var in of.invars))
    use = next(uses, None)
    return Captured(
        where=lines.place_of(use.source_info.traceback) if use else "",
        callers=_callers(use, lines) if use else (),
        largest=kind_of(largest),
        bytes=total,
        arrays=len(arrays),
        programs=1,
    )


def _walk(jaxpr: Any, constants: Iterable[Any]) -> tuple[list[_Work], list[bool]]:
    """
    Return the work on *constants*, variables of *jaxpr*, by the equations of *jaxpr*,
    and for each of its results whether it depends on nothing else.
    """
    fixed, work = set(constants), []
    for equation in jaxpr.eqns:
        inputs = [var for var in equation.invars if not is_literal(var)]
        if not inputs or not fixed.issuperset(inputs):
            continue
        name = equation.primitive.name
        inner = called(equation.params)
        if name in _LOOPS or equation.effects:
            continue
        if inner is None:
            fixed.update(equation.outvars)
            if steps := _steps(name, equation):
                work.append(_Work(steps, name, equation))
            continue
        found, results = _walk(inner, [*inner.invars, *inner.constvars])
        # A function of JAX is traced once: only its call knows who called it.
        work += [_Work(of.steps, of.operation, equation) for of in found]
        outputs = zip(equation.outvars, results, strict=False)
        fixed.update(var for var, is_fixed in outputs if is_fixed)
    return work, [is_literal(var) or var in fixed for var in jaxpr.outvars]


def _steps(name: str, equation: Any) -> float:
    """Return how often XLA runs a small program for an operation; 0 if it does not."""
    parameters, times = equation.params, 0.0
    size = max(map(elements, equation.outvars), default=0)
    if name in _CUMULATIVE:
        times = min(_WINDOW, equation.invars[0].aval.shape[parameters["axis"]])
    elif name.startswith("reduce_window"):
        times = prod(parameters["window_dimensions"])
    elif name.startswith(_SCATTERS):
        size, times = max(map(elements, equation.invars), default=0), 1
    elif name == "sort":
        times = log2(max(size, 2))
    elif name == "conv_general_dilated":
        try:
            return convolution(equation) / 2
        except UncountableError:
            return 0.0
    return size * times


def _callers(equation: Any, lines: SourceLineFinder) -> tuple[str, ...]:
    """Return the lines of the program that call that of *equation*, nearest first."""
    frames = getattr(equation.source_info.traceback, "frames", ())
    users = [frame for frame in frames if lines.is_user(frame.file_name)]
    places = [f"{display_path(frame.file_name)}:{frame.line_num}" for frame in users]
    return tuple(dict.fromkeys(places[1 : 1 + _MOST_CALLERS]))


def called(parameters: Mapping[str, Any]) -> Any:
    """Return the jaxpr that an operation with these *parameters* runs, if any."""
    for name in ("jaxpr", "call_jaxpr"):
        jaxpr = getattr(parameters.get(name), "jaxpr", parameters.get(name))
        if hasattr(jaxpr, "eqns"):
            return jaxpr
    return None


def is_literal(variable: Any) -> bool:
    """Return whether it is no variable, but a constant in its place."""
    return hasattr(variable, "val")


def kind_of(variable: Any) -> str:
    """Return its type and shape, such as ``float32[400,400]``."""
    return f"{variable.aval.dtype}{list(variable.aval.shape)}".replace(" ", "")
