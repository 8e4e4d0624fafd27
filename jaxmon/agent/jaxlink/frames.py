"""
Who is calling: the jitted function behind a frame of JAX.

Hooks see frames, not arguments. The functions of JAX on the way from a jitted call
to the compiler keep the user's function in variables whose names have not changed
from 0.4.35 to 0.12; this module, `pmaps` and `calls` are the only places that know
them.
"""

from __future__ import annotations

import os
from types import FrameType
from typing import Any, NamedTuple

from jaxmon.agent.jaxlink import pmaps


MAX_SOURCES = 10_000
"""Source lines of jitted functions that are remembered."""

# A missed call: pjit's and pmap's ``cache_miss`` and, to 0.8, what it calls.
CALL = ("cache_miss", "_python_pjit_helper")
# Ahead of time: ``f.trace``, ``f.lower`` and ``f.eval_shape``; functions of pjit
# to 0.4.36, all through jit_trace since.
AHEAD = ("jit_trace", "lower", "trace", "eval_shape")


_JAX = os.path.join("jax", "_src", "")  # noqa: PTH118 - part of a path


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


def is_jax(frame: FrameType) -> bool:
    """Tell whether *frame* runs code of JAX."""
    return _JAX in frame.f_code.co_filename


def jitted_at(frame: FrameType, above: FrameType | None = None) -> Jitted | None:
    """
    Return the jitted function that *frame* belongs to, if it is one of JAX's entries.

    Args:
        frame: a frame, live or from a traceback.
        above: where to look for the caller of *frame*, if not from it.
    """
    name = frame.f_code.co_name
    if not is_jax(frame):
        # A function of the user's, whose variables are none of our business.
        return None
    if name in CALL:
        return of_call(frame.f_locals, above or frame.f_back)
    if name in AHEAD:
        return _ahead(frame)
    return None


def key_at(frame: FrameType) -> object:
    """
    Return the key of the jitted function whose call *frame* serves; cheap.

    For calls that JAX traces: there, pmap is known by its user's function, too.
    """
    variables = frame.f_locals
    info = variables.get("jit_info")
    if info is None or pmaps.is_one(variables.get("fun")):
        jitted = jitted_at(frame)
        return None if jitted is None else jitted.key
    return info


def of_call(variables: Any, above: FrameType | None) -> Jitted | None:
    """Return the jitted function whose call a frame with *variables* serves."""
    fun, info = variables.get("fun"), variables.get("jit_info")
    if info is None:
        fun = pmaps.of_cache_miss(variables)
        return None if fun is None else Jitted(fun, fun, None, call=True)
    if pmaps.is_one(fun) and (pmap := pmaps.around(above)) is not None:
        fun = pmaps.of_shard_map(pmap)
        return Jitted(fun, fun, None, call=True)
    return Jitted(fun, info, info.fun_sourceinfo, call=True)


def _ahead(frame: FrameType) -> Jitted | None:
    variables = frame.f_locals
    if "infer_params" in variables:
        fun = pmaps.of_shard_map(frame)
        return Jitted(fun, fun, None, call=False)
    jitted = variables.get("jit_func")
    if jitted is not None:
        if pmaps.is_one(jitted._fun):  # noqa: SLF001 - as below
            return None  # the pmap is further up
        info = jitted._jit_info  # noqa: SLF001 - set by pjit since 0.4.36
        return Jitted(jitted._fun, info, info.fun_sourceinfo, call=False)  # noqa: SLF001
    fun, info = variables.get("fun"), variables.get("jit_info")
    if fun is None or info is None:
        return None
    return Jitted(fun, info, info.fun_sourceinfo, call=False)


class Program(NamedTuple):
    """
    What the stack tells about a program that is being traced, lowered or compiled.

    Attributes:
        jitted: the innermost jitted function that asked for it, if one did.
        source: ``"name at file:line"`` of the function that was traced, as JAX
            carries it along; the only trace of it in an ahead-of-time compile. `None`
            where JAX says less.
        name: the program's name, where only the frames tell it (to 0.6.0).
    """

    jitted: Jitted | None
    source: str | None
    name: str | None


def is_nested(frame: FrameType | None) -> bool:
    """Tell whether more than one jitted function is being entered on this stack."""
    entered = False
    while frame is not None:
        if frame.f_code.co_name in ("cache_miss", "jit_trace"):
            if entered:
                return True
            entered = True
        frame = frame.f_back
    return False


_LOWERED = ("from_hlo", "lower_sharding_computation")
# Every frame on the way up is looked up here; few are in it.
_TELLING = frozenset(("cache_miss", *_LOWERED, *AHEAD))


def program_at(frame: FrameType | None) -> Program:
    """Walk up from *frame* and tell which program it works on. Costs microseconds."""
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
                return Program(jitted, None, None)
        frame = frame.f_back
    source: str | None = None
    program: str | None = None
    for one in telling:
        variables = one.f_locals
        if one.f_code.co_name == "from_hlo":
            source = source or _source(variables.get("all_args_info"))
        else:
            source = source or _source_of_jaxpr(variables.get("closed_jaxpr"))
            program = variables.get("fun_name")
    return Program(None, place(source), program)


def name_at(frame: FrameType) -> str | None:
    """Return what the caller of ``compile_or_get_cached`` calls the program."""
    variables = frame.f_locals
    # That of pmap, to 0.8, has the name inside a larger whole.
    name = variables.get("name") or getattr(variables.get("pci"), "name", None)
    return None if name is None else str(name)


def place(source: str | None) -> str | None:
    """
    Return *source* if it is the place of a function. Of an object that is none JAX
    says ``<unknown>``, or its name.
    """
    return source if source and " at " in source else None


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
