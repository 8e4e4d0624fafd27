"""
Who is calling: the jitted function behind a frame of JAX.

Hooks see frames, not arguments. The functions of JAX on the way from a jitted call
to the compiler keep the user's function in variables whose names have not changed
from 0.4.35 to 0.12; this module is the only place that knows them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

from jaxmon.agent.calling.codes import closure
from jaxmon.agent.compiling.signatures import Call


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


class Jitted(NamedTuple):
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


def key_at(frame: FrameType) -> object:
    """
    Return the key of the jitted function whose call *frame* serves; cheap.

    For calls that JAX traces: there, pmap is known by its user's function, too.
    """
    variables = frame.f_locals
    info = variables.get("jit_info")
    if info is None or getattr(variables.get("fun"), "__module__", None) in (
        _PMAP_MODULES
    ):
        jitted = jitted_at(frame)
        return None if jitted is None else jitted.key
    return info


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
    """
    frame = _pmap_frame(fun, above)
    if frame is None:
        return None
    return _pmapped_by(closure(frame.f_locals["infer_params"]))


def _pmapped_by(variables: Mapping[str, Any]) -> object:
    wrapped = variables.get("wrapped_fun")
    return variables.get("f") if wrapped is None else wrapped.f


def _pmap_frame(fun: Any, above: FrameType | None) -> FrameType | None:
    """
    Return the frame of the pmap that *fun* was made for.

    Since 0.8 pmap is a Python function that calls a jitted one of JAX's making.
    """
    if getattr(fun, "__module__", None) not in _PMAP_MODULES:
        return None
    frame, steps = above, 0
    while frame is not None and steps < 3:  # noqa: PLR2004 - helper, boundary, pmap
        if frame.f_code.co_name == "wrapped" and "infer_params" in frame.f_locals:
            return frame
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
        entry: id of the frame of the call that asked for it, if one did.
    """

    jitted: Jitted | None
    source: str | None
    name: str | None
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


_LOWERED = ("from_hlo", "lower_sharding_computation")
_HELPERS = ("_run_python_pjit", "_python_pjit_helper")
# Every frame on the way up is looked up here; few are in it.
_TELLING = frozenset(("cache_miss", *_LOWERED, *AHEAD))


def program_at(frame: FrameType | None) -> Program:
    """
    Walk up from *frame* and tell which program it works on. Costs microseconds.
    """
    telling = []
    while frame is not None:
        name = frame.f_code.co_name
        if name not in _TELLING:
            pass
        elif name in _LOWERED:
            # Their many variables matter only where no jitted function is found.
            telling.append(frame)
        else:
            jitted = jitted_at(frame)
            if jitted is not None:
                return Program(jitted, None, None, id(frame) if jitted.call else None)
        frame = frame.f_back
    source: str | None = None
    program: str | None = None
    for one in telling:
        variables = one.f_locals
        if one.f_code.co_name == "from_hlo":
            source = source or _source(variables.get("all_args_info"))
        else:
            source = source or _source_of_jaxpr(variables.get("closed_jaxpr"))
            program = variables.get("fun_name") or variables.get("name")
    return Program(None, source, program, None)


def asked_by(
    frame: FrameType, inner: FrameType
) -> tuple[Jitted, Call | None] | tuple[None, None]:
    """
    Return the jitted function whose call a ``cache_miss`` *frame* serves, and that
    call, which must not be kept.

    Args:
        frame: of jit or pmap.
        inner: the frame that it called, where jit keeps the arguments as it sees them.
    """
    variables = frame.f_locals
    jitted = _of_call(variables, frame.f_back)
    if jitted is None:
        return None, None
    info = variables.get("jit_info")
    if info is None:
        return jitted, _pmap_call(variables)
    if jitted.key is not variables["jit_info"]:
        pmap = _pmap_frame(variables.get("fun"), frame.f_back)
        return jitted, None if pmap is None else _shmap_call(pmap)
    inside = inner.f_locals if inner.f_code.co_name in _HELPERS else {}
    params = inside.get("p")
    leaves, avals = inside.get("args_flat"), getattr(params, "in_avals", ())
    if leaves is not None and len(leaves) > len(avals):
        leaves = leaves[len(leaves) - len(avals) :]  # after constants of the program
    return jitted, Call(
        args=variables["args"],
        kwargs=variables["kwargs"],
        parameters=info.fun_signature,
        static_argnums=info.static_argnums,
        static_argnames=info.static_argnames,
        info=info,
        leaves=leaves,
        tree=getattr(params, "in_tree", None),
        avals=avals,
        names=getattr(params, "arg_names", None),
    )


def _pmap_call(variables: Any) -> Call | None:
    """
    Return the call of a pmap that has a cache of its own (to 0.7).
    """
    params, prepare = variables.get("p"), variables.get("prepare_pmap_fn")
    if prepare is not None:
        fun, static = prepare.args[0], prepare.args[3]
    else:
        fun, static = variables.get("fun"), variables["static_broadcasted_tuple"]
    return Call(
        args=variables["args"],
        kwargs=variables["kwargs"],
        parameters=_parameters(fun),
        static_argnums=static,
        static_argnames=(),
        leaves=getattr(params, "flat_args", None),
        tree=getattr(params, "in_tree", None),
    )


def _shmap_call(frame: FrameType) -> Call:
    """
    Return the call of a pmap that is jit and shard_map (since 0.8).
    """
    variables = frame.f_locals
    inside = closure(variables["infer_params"])
    return Call(
        args=variables["args"],
        kwargs=variables["kwargs"],
        parameters=_parameters(_pmapped_by(inside)),
        static_argnums=inside.get("static_broadcasted_tuple", ()),
        static_argnames=(),
    )


def _parameters(fun: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):  # a builtin, or no function at all
        return None


def executable_at(frame: FrameType | None) -> Any:
    """
    Return what was just compiled below *frame*, where JAX reports the duration.

    Two functions compile: jit's, and pmap's to 0.8; the listener is called from a
    context manager around the compile, at most five frames above theirs.
    """
    for _ in range(6):
        if frame is None:
            return None
        name = frame.f_code.co_name
        if name == "_cached_compilation":
            return frame.f_locals.get("xla_executable")
        if name == "from_hlo":
            return frame.f_locals.get("compiled")
        frame = frame.f_back
    return None


def _source(info: Any) -> str | None:
    return getattr(getattr(info, "debug_info", None), "func_src_info", None)


def _source_of_jaxpr(closed: Any) -> str | None:
    debug = getattr(closed, "debug_info", None) or getattr(
        getattr(closed, "jaxpr", None), "debug_info", None
    )
    return getattr(debug, "func_src_info", None)
