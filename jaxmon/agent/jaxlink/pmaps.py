"""
Extracts the user's function and the options of `jax.pmap` from its frames.

Up to 0.7 a pmap has its own cache, and so its own ``cache_miss``; since 0.8 it is a
Python function that calls a function jitted by JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType, FunctionType
from typing import Any

from jaxmon.agent.jaxlink.jit import closure


# Module of the function that pmap has jitted since 0.8, by version.
_MODULES = ("jax._src.pmap", "jax._src.linear_util")

# The arguments that JAX binds to ``_prepare_pmap`` from 0.4.36 to 0.7.
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


def is_pmap(fun: object) -> bool:
    """Return whether the jitted *fun* may be a shard_map created by pmap."""
    if type(fun) is not FunctionType:
        return False
    # A subclass of `str` may have a user-defined `__eq__`.
    return type(fun.__module__) is str and fun.__module__ in _MODULES


def enclosing_pmap(above: FrameType | None) -> FrameType | None:
    """
    Return the frame of the pmap that created a function for which `is_pmap` is true,
    `None` if something else created it.

    Args:
        above: the caller of its ``cache_miss``.
    """
    frame, steps = above, 0
    while frame is not None and steps < 3:  # noqa: PLR2004 - helper, boundary, pmap
        if frame.f_code.co_name == "wrapped" and "infer_params" in frame.f_locals:
            return frame
        frame, steps = frame.f_back, steps + 1
    return None


def function_of_shard_map(frame: FrameType) -> object:
    """
    Return the user's function of the pmap found by `enclosing_pmap`, or of the one
    whose ``lower`` runs in *frame*; `None` if unknown.
    """
    return _function(options_of_shard_map(frame))


def function_of_cache_miss(variables: Mapping[str, Any]) -> object:
    """Return the user's function of the pmap whose ``cache_miss`` has *variables*."""
    return options_of_cache_miss(variables).get("fun")


def options_of_cache_miss(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of `jax.pmap`, by the same names as `options_of_shard_map`."""
    prepare = variables.get("prepare_pmap_fn")
    if prepare is None:
        return variables
    bound = dict(zip(_PREPARED, prepare.args, strict=False))
    return {**bound, "axis_name": variables.get("axis_name")}


def options_of_shard_map(frame: FrameType) -> Mapping[str, Any]:
    """Return the options of `jax.pmap`, by the names of JAX's variables."""
    return closure(frame.f_locals["infer_params"])


def leaves_and_tree(variables: Mapping[str, Any]) -> tuple[Any, Any]:
    """
    Return the leaves of a pmap's call and their tree, as flattened by JAX; `None` if
    not kept.

    Args:
        variables: those of the frame that `enclosing_pmap` found.
    """
    params = variables.get("p")
    if params is not None:  # up to 0.9
        return params.flat_args, params.in_tree
    mapped = getattr(variables.get("cached"), "pmapped", None)
    inside = closure(mapped) if mapped is not None else {}
    return variables.get("dyn_args_flat"), inside.get("in_tree")


def _function(given: Mapping[str, Any]) -> object:
    wrapped = given.get("wrapped_fun")
    return given.get("f") if wrapped is None else wrapped.f
