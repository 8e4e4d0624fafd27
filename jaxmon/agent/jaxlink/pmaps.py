"""
Extracts the user's function and the options of `jax.pmap` from its frames.

To 0.7 a pmap has a cache, and so a ``cache_miss``, of its own; since 0.8 it is a Python
function that calls a jitted one of JAX's making.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType, FunctionType
from typing import Any

from jaxmon.agent.jaxlink.jit import closure


# Where the function comes from that pmap jits since 0.8, by version.
_MODULES = ("jax._src.pmap", "jax._src.linear_util")

# What JAX binds to ``_prepare_pmap`` from 0.4.36 to 0.7.
_PREPARED = (
    "fun",
    "in_axes",
    "out_axes",
    "static_broadcasted_tuple",
    "donate_tuple",
    "devices",
    "backend",
    "axis_size",
)


def is_one(fun: object) -> bool:
    """Tell whether *fun*, which is jitted, may be the shard_map that pmap made."""
    if type(fun) is not FunctionType:
        return False
    # A text of another class may have an `__eq__` of the user's.
    return type(fun.__module__) is str and fun.__module__ in _MODULES


def around(above: FrameType | None) -> FrameType | None:
    """
    Return the frame of the pmap that a function for which `is_one` is true was made
    for, `None` if it was made for something else.

    Args:
        above: the caller of its ``cache_miss``.
    """
    frame, steps = above, 0
    while frame is not None and steps < 3:  # noqa: PLR2004 - helper, boundary, pmap
        if frame.f_code.co_name == "wrapped" and "infer_params" in frame.f_locals:
            return frame
        frame, steps = frame.f_back, steps + 1
    return None


def of_shard_map(frame: FrameType) -> object:
    """
    Return the user's function of the pmap that `around` found, or whose ``lower``
    *frame* is; `None` if unknown.
    """
    return _function(shard_map_given(frame))


def of_cache_miss(variables: Mapping[str, Any]) -> object:
    """Return the user's function of the pmap whose ``cache_miss`` has *variables*."""
    return cache_miss_given(variables).get("fun")


def cache_miss_given(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `jax.pmap` was given, by the names that `shard_map_given` uses."""
    prepare = variables.get("prepare_pmap_fn")
    if prepare is None:
        return variables
    bound = dict(zip(_PREPARED, prepare.args, strict=False))
    return {**bound, "axis_name": variables.get("axis_name")}


def shard_map_given(frame: FrameType) -> Mapping[str, Any]:
    """Return what `jax.pmap` was given, by the names of JAX's variables."""
    return closure(frame.f_locals["infer_params"])


def flattened(variables: Mapping[str, Any]) -> tuple[Any, Any]:
    """
    Return the leaves of a pmap's call and their tree, as it has worked them out; `None`
    where it did not keep them.

    Args:
        variables: of the frame that `around` found.
    """
    params = variables.get("p")
    if params is not None:  # to 0.9
        return params.flat_args, params.in_tree
    mapped = getattr(variables.get("cached"), "pmapped", None)
    inside = closure(mapped) if mapped is not None else {}
    return variables.get("dyn_args_flat"), inside.get("in_tree")


def _function(given: Mapping[str, Any]) -> object:
    wrapped = given.get("wrapped_fun")
    return given.get("f") if wrapped is None else wrapped.f
