"""
Results of a ``shard_map`` that are said to be the same on all devices, and are not.

If ``check_vma`` is off, JAX takes an output whose ``out_specs`` lack an axis of the
mesh from one device. It is the same on the others only if what it is computed of is not
divided along that axis, or something combines that along it. What is not certain counts
as combined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from jaxmon.agent.jaxlink.contents import argument_name, called, is_literal, kind_of
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import body_of, jaxprs_of
from jaxmon.facts.contents import Unreduced


# Of what a value that differs along an axis is made: the numbers of the arguments that
# are divided, none if any of it may have been combined. `None` if it does not differ.
_Made: TypeAlias = frozenset[int] | None

_COMBINED: _Made = frozenset()
_MOST_EQUATIONS, _PASSES = 20_000, 3
# Run their body once, on all that they are given, or are plain operations with one.
_CALLS = "(pjit|jit|remat.*|checkpoint|(closed_|core_|custom_[jv]+p_)call)$"
_PLAIN = "(reduce|scatter|select_and|arg|cum)"
# What devices do inside of kernels and foreign functions is not known.
_OPAQUE = "call|kernel|ffi|partition|dma|remote|semaphore"
_ALONG = "axes", "axis_name"


def unreduced(jaxpr: Any, lines: SourceLineFinder) -> Unreduced | None:
    """
    Return outputs of a ``shard_map`` in *jaxpr* that differ by device, though they are
    said not to, if one has the form of an argument that is whole: a state, or gradients
    of one. Takes a microsecond per equation, twice for each axis of a ``shard_map``.
    """
    for around in jaxprs_of(jaxpr, _MOST_EQUATIONS):
        for equation in around.eqns:
            params = equation.params
            if equation.primitive.name != "shard_map":
                continue
            if params.get("check_vma", params.get("check_rep", True)):
                continue
            for axis, size in dict(params["mesh"].shape).items():
                found = _along(axis, equation, around, lines) if size > 1 else None
                if found is not None:
                    return found.replace(devices=size)
    return None


def _along(
    axis: str, equation: Any, around: Any, lines: SourceLineFinder
) -> Unreduced | None:
    params, inner = equation.params, called(equation.params)
    taken = params.get("in_specs", params.get("in_names"))  # up to 0.6.0
    returned = params.get("out_specs", params.get("out_names"))
    if inner is None or taken is None or returned is None:
        return None
    numbered = enumerate(taken)
    given = [frozenset((n,)) if axis in _axes(of) else None for n, of in numbered]
    whole = [
        (of.aval.shape, of.aval.dtype)
        for of, divided in zip(inner.invars, given, strict=True)
        if divided is None and of.aval.shape and "float" in str(of.aval.dtype)
    ]
    lost = [
        (variable, outer, divided)
        for variable, outer, divided, spec in zip(
            *(inner.outvars, equation.outvars, _flow(inner, given, axis), returned),
            strict=True,
        )
        # What the caller drops may be anything.
        if divided and axis not in _axes(spec) and type(outer).__name__ != "DropVar"
    ]
    if not any((of.aval.shape, of.aval.dtype) in whole for of, _, _ in lost):
        return None
    made = {of: made for made in inner.eqns for of in made.outvars}
    first = made.get(lost[0][0])
    origins = sorted(frozenset[int]().union(*(divided for *_, divided in lost)))
    return Unreduced(
        outputs=tuple(_result_name(around, outer) for _, outer, _ in lost),
        arguments=tuple(argument_name(inner, at) for at in origins),
        axis=axis,
        where=lines.place_of(first.source_info.traceback) if first else "",
    )


def _result_name(jaxpr: Any, variable: Any) -> str:
    """Return JAX's name of a result of *jaxpr*, or the type of *variable*."""
    paths = getattr(getattr(jaxpr, "debug_info", None), "result_paths", None) or ()
    named = zip(jaxpr.outvars, paths, strict=False)
    found = (str(path).removeprefix("result") for of, path in named if of is variable)
    return next(found, kind_of(variable))


def _axes(spec: Any) -> set[str]:
    """Return the axes in a `PartitionSpec`, or in what older releases of JAX have."""
    parts = spec.values() if isinstance(spec, Mapping) else spec or ()
    return {axis for of in parts for axis in _flat(of)}


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _joined(given: Sequence[_Made]) -> _Made:
    found = [of for of in given if of is not None]
    every = frozenset[int]().union(*found) if all(found) else _COMBINED
    return every if found else None


def _flow(jaxpr: Any, arguments: Sequence[_Made], axis: str) -> list[_Made]:
    """Return of what the results of *jaxpr* are made."""
    found: dict[Any, _Made] = dict(zip(jaxpr.invars, arguments, strict=True))
    for equation in jaxpr.eqns:
        given = [None if is_literal(of) else found.get(of) for of in equation.invars]
        if any(of is not None for of in given):
            results = _applied(equation, given, axis)
            found.update(zip(equation.outvars, results, strict=False))
    return [None if is_literal(of) else found.get(of) for of in jaxpr.outvars]


_EITHER = {frozenset, type(None)}


def _applied(equation: Any, given: list[_Made], axis: str) -> list[_Made]:
    name, params = equation.primitive.name, equation.params
    bodies = list(_bodies(equation, given, axis))
    if bodies:
        results = zip(*(_flow(*body, axis) for body in bodies), strict=True)
        # Whichever branch is taken: what one of them combines is not certain.
        return [
            _COMBINED if {*map(type, of)} == _EITHER else _joined(of) for of in results
        ]
    runs = [hasattr(getattr(of, "jaxpr", of), "eqns") for of in params.values()]
    is_clear = re.match(_PLAIN, name) or not any(runs)
    along = {of for kind in _ALONG for of in _flat(params.get(kind))}
    if axis in along or not is_clear or re.search(_OPAQUE, name):
        return [_COMBINED] * len(equation.outvars)
    return [_joined(given)] * len(equation.outvars)


def _bodies(
    equation: Any, given: list[_Made], axis: str
) -> Iterator[tuple[Any, list[_Made]]]:
    """Yield what *equation* runs, with what that is given in the end."""
    name, params = equation.primitive.name, equation.params
    if name == "cond":
        for branch in params["branches"]:
            yield branch.jaxpr, given[1:]
    elif name in {"scan", "while"}:
        body, first, carried = body_of(equation)
        before = params["cond_nconsts"] if name == "while" else 0
        given, end = given[before:], first + carried
        for _ in range(_PASSES):
            # A later pass is given what the one before has returned.
            pairs = zip(given[first:end], _flow(body, given, axis), strict=False)
            given = [*given[:first], *map(_joined, pairs), *given[end:]]
        yield body, given
    elif re.match(_CALLS, name):
        inner = called(params)
        if inner is not None and len(inner.invars) == len(given):
            yield inner, given
