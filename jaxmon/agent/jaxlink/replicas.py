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

from jaxmon.agent.jaxlink.contents import called, is_literal, kind_of
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_of
from jaxmon.facts.contents import Unreduced


# Axes along which a value differs, each with the numbers of the arguments that are
# divided; with none if anything that it is computed of may have been combined.
_Divided: TypeAlias = Mapping[str, frozenset[int]]

_NONE: _Divided = {}
_MOST_EQUATIONS, _PASSES = 20_000, 8
# Run their body once, on all that they are given, or are plain operations with one.
_CALLS = re.compile("(pjit|jit|remat.*|checkpoint|(closed_|core_|custom_[jv]+p_)call)$")
_PLAIN = re.compile("(reduce|scatter|select_and|arg|cum)")
_COMBINED = "axes", "axis_name"
# What devices do inside of kernels and foreign functions is not known.
_OPAQUE = re.compile("call|kernel|ffi|partition|dma|remote|semaphore")


def unreduced(jaxpr: Any, lines: SourceLineFinder) -> Unreduced | None:
    """
    Return outputs of a ``shard_map`` in *jaxpr* that differ by device, though they are
    said not to, if one has the form of an argument that is whole: a state, or gradients
    of one. Takes a microsecond per equation, twice if there is a ``shard_map``.
    """
    found = (
        _judged(equation, inside, lines)
        for inside in jaxprs_of(jaxpr, _MOST_EQUATIONS)
        for equation in inside.eqns
        if equation.primitive.name == "shard_map"
    )
    return next(filter(None, found), None)


def _judged(equation: Any, around: Any, lines: SourceLineFinder) -> Unreduced | None:
    given, inner = equation.params, called(equation.params)
    taken = given.get("in_specs", given.get("in_names"))  # up to 0.6.0
    returned = given.get("out_specs", given.get("out_names"))
    is_checked = given.get("check_vma", given.get("check_rep", True))
    if is_checked or inner is None or taken is None or returned is None:
        return None
    sizes = dict(given["mesh"].shape)
    axes = [[name for name in _axes(of) if sizes.get(name, 1) > 1] for of in taken]
    arguments = [dict.fromkeys(of, frozenset((at,))) for at, of in enumerate(axes)]
    whole = {
        (of.aval.shape, of.aval.dtype)
        for of, divided in zip(inner.invars, axes, strict=True)
        if not divided and of.aval.shape and "float" in str(of.aval.dtype)
    }
    paths = _names(around, "result_paths", around.outvars)
    pairs = zip(around.outvars, paths, strict=True)
    names = {of: path for of, path in pairs if not is_literal(of)}
    made = {of: made for made in inner.eqns for of in made.outvars}
    where = ""
    outputs, along, is_state = list[str](), dict[str, frozenset[int]](), False
    results = zip(inner.outvars, _flow(inner, arguments), returned, strict=True)
    for (variable, divided, spec), outer in zip(results, equation.outvars, strict=True):
        lost = {axis for axis, of in divided.items() if of} - _axes(spec)
        # What the caller drops may be anything.
        if not lost or type(outer).__name__ == "DropVar":
            continue
        outputs.append(names.get(outer) or kind_of(variable))
        if variable in made:
            where = where or lines.place_of(made[variable].source_info.traceback)
        is_state |= (variable.aval.shape, variable.aval.dtype) in whole
        for axis in lost:
            along[axis] = along.get(axis, frozenset()) | divided[axis]
    if not is_state:
        return None
    axis = max(along, key=lambda axis: len(along[axis]))
    inputs = _names(inner, "arg_names", inner.invars)
    return Unreduced(
        outputs=tuple(outputs),
        arguments=tuple(inputs[at] for at in sorted(along[axis])),
        axis=axis,
        devices=sizes[axis],
        where=where,
    )


def _names(jaxpr: Any, kind: str, variables: Sequence[Any]) -> list[str]:
    """Return JAX's names of *variables*, or their types."""
    found = getattr(getattr(jaxpr, "debug_info", None), kind, None) or ()
    if len(found) != len(variables) or not all(isinstance(of, str) for of in found):
        return [kind_of(of) for of in variables]
    return [re.sub("^result", "", of) for of in found]


def _axes(spec: Any) -> set[str]:
    """Return the axes in a `PartitionSpec`, or in what older releases of JAX have."""
    parts = spec.values() if isinstance(spec, Mapping) else spec or ()
    several = [of if isinstance(of, tuple) else (of,) for of in parts]
    return {name for of in several for name in of if isinstance(name, str)}


def _joined(given: Sequence[_Divided]) -> _Divided:
    found: dict[str, frozenset[int]] = {}
    for divided in given:
        for axis, arguments in divided.items():
            others = found.get(axis, arguments)
            found[axis] = arguments | others if arguments and others else frozenset()
    return found


def _flow(jaxpr: Any, arguments: Sequence[_Divided]) -> list[_Divided]:
    """Return along which axes the results of *jaxpr* differ for sure."""
    found: dict[Any, _Divided] = dict(zip(jaxpr.invars, arguments, strict=True))

    def of(value: Any) -> _Divided:
        return _NONE if is_literal(value) else found.get(value, _NONE)

    for equation in jaxpr.eqns:
        given = [of(value) for value in equation.invars]
        if any(given):
            results = _applied(equation, given)
            found.update(zip(equation.outvars, results, strict=False))
    return [of(value) for value in jaxpr.outvars]


def _applied(equation: Any, given: list[_Divided]) -> Iterator[_Divided]:
    name, params = equation.primitive.name, equation.params
    bodies = list(_bodies(equation, given))
    if bodies:
        results = [_flow(*body) for body in bodies]
        for several in zip(*results, strict=True):
            # Whichever branch is taken: what one of them combines is not certain.
            yield {
                axis: of
                if all(axis in divided for divided in several)
                else frozenset[int]()
                for axis, of in _joined(several).items()
            }
        return
    combined = {axis for kind in _COMBINED for axis in _flat(params.get(kind))}
    is_plain = _PLAIN.match(name) or not any(map(_holds_jaxpr, params.values()))
    is_clear = is_plain and not _OPAQUE.search(name)
    every = {
        axis: of if is_clear and axis not in combined else frozenset[int]()
        for axis, of in _joined(given).items()
    }
    for _ in equation.outvars:
        yield every


def _bodies(
    equation: Any, given: list[_Divided]
) -> Iterator[tuple[Any, list[_Divided]]]:
    """Yield what *equation* runs, with what that is given in the end."""
    name, params = equation.primitive.name, equation.params
    if name == "cond":
        for branch in params["branches"]:
            yield branch.jaxpr, given[1:]
    elif name == "scan":
        body, first = params["jaxpr"].jaxpr, params["num_consts"]
        yield body, _later(body, given, first, params["num_carry"])
    elif name == "while":
        body, first = params["body_jaxpr"].jaxpr, params["cond_nconsts"]
        carried = len(body.outvars)
        yield body, _later(body, given[first:], params["body_nconsts"], carried)
    elif _CALLS.match(name):
        inner = called(params)
        if inner is not None and len(inner.invars) == len(given):
            yield inner, given


def _later(
    body: Any, given: list[_Divided], first: int, carried: int
) -> list[_Divided]:
    """Return what a later pass of a loop is given, which carries what it returned."""
    for _ in range(_PASSES):
        before, after = given[first : first + carried], _flow(body, given)
        both = [_joined(of) for of in zip(before, after, strict=False)]
        if both == before:
            break
        given = [*given[:first], *both, *given[first + carried :]]
    return given


def _holds_jaxpr(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
