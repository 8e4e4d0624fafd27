"""
Who is calling: the jitted function behind a frame of JAX.

Hooks see frames, not arguments. The functions of JAX on the way from a jitted call
to the compiler keep the user's function in variables whose names have not changed
from 0.4.35 to 0.12; this module is the only place that knows them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import FrameType
from typing import Any

from jaxmon.agent.calls import closure


MAX_SOURCES = 10_000
"""Source lines of jitted functions that are remembered."""

# A missed call: pjit's and pmap's ``cache_miss`` and, to 0.8, what it calls.
CALL = ("cache_miss", "_python_pjit_helper")
# Ahead of time: ``f.trace``, ``f.lower`` and ``f.eval_shape``; functions of pjit
# to 0.4.36, all through jit_trace since.
AHEAD = ("jit_trace", "lower", "trace", "eval_shape")


_JAX = os.path.join("jax", "_src", "")  # noqa: PTH118 - part of a path

# Where the function comes from that pmap jits since 0.8, by version.
_PMAP_MODULES = ("jax._src.pmap", "jax._src.linear_util")


@dataclass(frozen=True, slots=True)
class Jitted:
    """
    A jitted function as a frame of JAX knows it.

    Attributes:
        fun: the user's function.
        key: what identifies the jitted object: its ``PjitInfo``, or, for pmap,
            *fun*.
        source: ``"name at file:line"``, or `None` for pmap.
        call: whether the frame belongs to a call, not to ahead-of-time use.
    """

    fun: object
    key: object
    source: str | None
    call: bool


def jitted_at(frame: FrameType, above: FrameType | None = None) -> Jitted | None:
    """
    Return the jitted function that *frame* belongs to, if it is one of JAX's entries.

    Args:
        frame: a frame, live or from a traceback.
        above: where to look for the caller of *frame*, if not from it.
    """
    name = frame.f_code.co_name
    if _JAX not in frame.f_code.co_filename:
        # A function of the user's, whose variables are none of our business.
        return None
    if name in CALL:
        return _of_call(frame.f_locals, above or frame.f_back)
    if name in AHEAD:
        return _ahead(frame.f_locals)
    return None


def _of_call(variables: Any, above: FrameType | None) -> Jitted | None:
    fun, info = variables.get("fun"), variables.get("jit_info")
    if info is None:
        # pmap to 0.7 has a cache of its own: a function, or a partial over it.
        prepare = variables.get("prepare_pmap_fn")
        fun = prepare.args[0] if prepare is not None else fun
        return None if fun is None else Jitted(fun, fun, None, call=True)
    pmapped = _pmapped(fun, above)
    if pmapped is not None:
        return Jitted(pmapped, pmapped, None, call=True)
    return Jitted(fun, info, info.fun_sourceinfo, call=True)


def _pmapped(fun: Any, above: FrameType | None) -> object:
    """
    Return the user's function if *fun* is the shard_map that pmap made of it.

    Since 0.8 pmap is a Python function that calls a jitted one of JAX's making.
    """
    if getattr(fun, "__module__", None) not in _PMAP_MODULES:
        return None
    frame, steps = above, 0
    while frame is not None and steps < 3:  # noqa: PLR2004 - helper, boundary, pmap
        if frame.f_code.co_name == "wrapped" and "infer_params" in frame.f_locals:
            variables = closure(frame.f_locals["infer_params"])
            wrapped = variables.get("wrapped_fun")
            return variables.get("f") if wrapped is None else wrapped.f
        frame, steps = frame.f_back, steps + 1
    return None


def _ahead(variables: Any) -> Jitted | None:
    jitted = variables.get("jit_func")
    if jitted is not None:
        info = jitted._jit_info  # noqa: SLF001 - set by pjit since 0.4.36
        return Jitted(jitted._fun, info, info.fun_sourceinfo, call=False)  # noqa: SLF001
    fun, info = variables.get("fun"), variables.get("jit_info")
    if fun is None or info is None:
        return None
    return Jitted(fun, info, info.fun_sourceinfo, call=False)


@dataclass(frozen=True, slots=True)
class Program:
    """
    What the stack tells about a program that is being traced, lowered or compiled.

    Attributes:
        jitted: the innermost jitted function that asked for it, if one did.
        source: ``"name at file:line"`` of the function that was traced, as JAX
            carries it along; the only trace of it in an ahead-of-time compile.
        name: the program's name, where only the frames tell it (to 0.6.0).
        avals: abstract values of the arguments of a call, in order.
        entry: id of the frame of that call, if it is one.
    """

    jitted: Jitted | None
    source: str | None
    name: str | None
    avals: tuple[Any, ...]
    entry: int | None


def is_nested(frame: FrameType | None) -> bool:
    """
    Tell whether more than one jitted function is being entered on this stack.
    """
    entered = False
    while frame is not None:
        if frame.f_code.co_name in ("cache_miss", "jit_trace"):
            if entered:
                return True
            entered = True
        frame = frame.f_back
    return False


def program_at(frame: FrameType | None) -> Program:
    """
    Walk up from *frame* and tell which program it works on. Costs microseconds.
    """
    jitted: Jitted | None = None
    source: str | None = None
    program: str | None = None
    avals: tuple[Any, ...] = ()
    entry: int | None = None
    while frame is not None and jitted is None:
        name = frame.f_code.co_name
        if name == "from_hlo":
            source = source or _source(frame.f_locals.get("all_args_info"))
        elif name == "lower_sharding_computation":
            variables = frame.f_locals
            source = source or _source_of_jaxpr(variables.get("closed_jaxpr"))
            program = variables.get("fun_name") or variables.get("name")
        elif name in ("_run_python_pjit", "_python_pjit_helper"):
            avals = tuple(getattr(frame.f_locals.get("p"), "in_avals", ()))
        elif name == "cache_miss" or name in AHEAD:
            jitted = jitted_at(frame)
            entry = id(frame) if jitted is not None and jitted.call else None
        frame = frame.f_back
    return Program(jitted, source, program, avals, entry)


def _source(info: Any) -> str | None:
    return getattr(getattr(info, "debug_info", None), "func_src_info", None)


def _source_of_jaxpr(closed: Any) -> str | None:
    debug = getattr(closed, "debug_info", None) or getattr(
        getattr(closed, "jaxpr", None), "debug_info", None
    )
    return getattr(debug, "func_src_info", None)
