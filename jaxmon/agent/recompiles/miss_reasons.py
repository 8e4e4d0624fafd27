"""Why a call left the fast path without compiling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from jaxmon.agent.inspection import package_of
from jaxmon.agent.jaxlink.arguments import Missed, missed
from jaxmon.agent.jaxlink.executables import effect_of
from jaxmon.agent.recompiles.argument_trees import names_of, parameters_of
from jaxmon.agent.recompiles.signatures import text_of


_SHOWN = 3
_DEPTH = 4
_SEARCHED = 1000
_EFFECTS = {
    "ordered": "has ordered effects, such as jax.debug.print(ordered=True)",
    "unordered": "has effects, such as jax.debug.print",
    "callback": "calls the host, such as jax.pure_callback",
}


class Reason(NamedTuple):
    """Machine-readable reason and human-readable message."""

    name: str
    text: str


def why_missed(frame: FrameType, original: Callable[..., Any]) -> Reason | None:
    """
    Return why the call served by *frame* missed.

    Args:
        frame: the frame that requests the data for the fast path.
        original: JAX's function that decides it.
    """
    call = missed(frame)
    effect = effect_of(call.executable, original)
    if effect is not None:
        text = (
            "every call takes the slow path, about half a millisecond: the "
            f"function {_EFFECTS[effect]}; nothing is recompiled"
        )
        return Reason("effects", text)
    found = list(_numpy(call))
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        text = (
            f"argument {', '.join(found[:_SHOWN])}{more}: a NumPy array where a "
            "JAX array was cached, or vice versa; misses once per kind, no "
            "recompile"
        )
        return Reason("numpy_argument", text)
    text = (
        "no compile was needed: compiled ahead of time, or cached for a different "
        "kind of argument (NumPy array, Python number, JAX array)"
    )
    return Reason("other", text)


def _numpy(call: Missed) -> Iterator[str]:
    """
    Yield the NumPy arrays among the arguments, including those in plain containers.
    """
    args, kwargs = call.args, call.kwargs
    names = names_of(parameters_of(call.fun, len(args), kwargs), len(args))
    given: list[tuple[str, Any]] = [
        (names[position], value)
        for position, value in enumerate(args)
        if position not in call.static
    ]
    given += [(n, value) for n, value in kwargs.items() if n not in call.static]
    left = [_SEARCHED]
    for name, value in given:
        yield from _inside(name, value, left, 0)


def _inside(where: str, value: Any, left: list[int], depth: int) -> Iterator[str]:
    left[0] -= 1
    kind = type(value)
    if left[0] < 0 or depth > _DEPTH:
        return
    if package_of(kind) == "numpy":
        yield where
    elif kind is dict:
        for key, item in value.items():
            yield from _inside(f"{where}[{text_of(key)}]", item, left, depth + 1)
    elif kind is list or kind is tuple:
        for number, item in enumerate(value):
            yield from _inside(f"{where}[{number}]", item, left, depth + 1)
