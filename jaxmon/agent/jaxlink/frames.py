"""
Identifies the jitted function behind a JAX frame.

Hooks see frames, not arguments. The functions of JAX on the way from a jitted call
to the compiler keep the user's function in variables whose names have not changed
from 0.4.35 to 0.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Any, TypeVar

from jaxmon.agent.jaxlink import jit as pmaps
from jaxmon.agent.jaxlink.jit import SHAPES, is_binding, is_inside, nearest, stack_from
from jaxmon.agent.jaxlink.source_lines import AGENT, JIT_FILES
from jaxmon.host.sources import LIBRARY, tier
from jaxmon.tuples import NamedTuple


MAX_SOURCES = 10_000
"""Maximum number of source lines of jitted functions remembered."""

_MAX_STEPS = 100
_PUTS = ("batched_device_put", "_batched_device_put_impl", "_device_put_impl")

# JAX's functions and properties on the way from the program to the runtime's reads and
# waits.
_WAITS = ("_value", "__array__", "block_until_ready", "try_to_block", "device_get")
# Frames of JAX between the agent and what it reads.
_OWN_STEPS = 6

# A missed call: pjit's and pmap's ``cache_miss`` and, up to 0.8, the function it calls.
CALL = ("cache_miss", "_python_pjit_helper")
# Ahead of time: ``f.trace``, ``f.lower`` and ``f.eval_shape``; functions of pjit up to
# 0.4.36, all through jit_trace since.
AHEAD = ("jit_trace", "lower", "trace", "eval_shape")


_LOWERS = "lower_sharding_computation"
_MAX_LOWERING_STEPS = 16
_TRACED = "_resolve_and_lower"
_MAX_TRACED_STEPS = 6
_LOWERED = ("from_hlo", _LOWERS)
# Functions that compile, and their variables for what is compiled.
_COMPILING = {"_cached_compilation": "xla_executable", "from_hlo": "compiled"}

_ENTRIES = frozenset(("cache_miss", *AHEAD))

held: list[None] = []
"""
Not empty while a thread of ours has frames of others. A function that returns meanwhile
stays referenced a little longer.
"""

_Miss = TypeVar("_Miss")


class Jitted(NamedTuple):
    """
    A jitted function, as found in a JAX frame of a *call* or ahead of time.

    Attributes:
        key: identifies the jitted object: its ``PjitInfo``, or, for pmap, *fun*.
        source: ``"name at file:line"``, or `None` for pmap.
    """

    fun: object
    key: object
    source: str | None
    call: bool


def is_call(frame: FrameType) -> bool:
    """Return whether *frame* serves a missed call."""
    code = frame.f_code
    # JAX 0.8 has another one, in its own caches.
    return code.co_name == "cache_miss" and code.co_filename.endswith(JIT_FILES)


def entry_of(frame: FrameType) -> FrameType | None:
    """Return what serves the call inspected in *frame*, `None` if ahead of time."""
    name = frame.f_code.co_name
    if name == "cache_miss":
        return frame
    return frame.f_back if name in CALL else None


def call_in(traceback: TracebackType | None) -> FrameType | None:
    """Return the outermost call of a jitted function in *traceback*."""
    while traceback is not None:
        if is_call(traceback.tb_frame):
            return traceback.tb_frame
        traceback = traceback.tb_next
    return None


def is_below_call(frame: FrameType | None) -> bool:
    """Return whether *frame* runs within a missed call."""
    return nearest(frame, ("cache_miss",), _MAX_STEPS) is not None


def is_below_boundary(frame: FrameType | None) -> bool:
    """Return whether *frame* runs below a function of JAX that filters tracebacks."""
    return nearest(frame, ("reraise_with_filtered_traceback",), _MAX_STEPS) is not None


def is_wait(frame: FrameType | None) -> bool:
    """Return whether *frame* reads an array, or waits for one, for the program."""
    return frame is not None and frame.f_code.co_name in _WAITS and is_inside(frame)


def is_outside(frame: FrameType | None) -> bool:
    """Return whether *frame*, if there is one, does not run code of JAX."""
    return frame is not None and not is_inside(frame) and not is_binding(frame)


def calls_back_inline(frame: FrameType | None) -> bool:
    """Return whether *frame*, of a callback, is below a call that the program makes."""
    inside = False
    while frame is not None:
        if inside and not is_inside(frame):
            return True
        inside = inside or is_inside(frame)
        frame = frame.f_back
    return False


def is_our_own(frame: FrameType | None) -> bool:
    """Return whether *frame*, or one just above it, runs code of the agent."""
    files = [at.f_code.co_filename for at in stack_from(frame, _OWN_STEPS)]
    return any([file.startswith(AGENT) for file in files])


def asks_for_memory(frame: FrameType | None) -> bool:
    """Return whether *frame* transfers arrays to a device, outside of a call."""
    return frame is not None and frame.f_code.co_name in _PUTS


def jitted_at(frame: FrameType, above: FrameType | None = None) -> Jitted | None:
    """Return the jitted function of *frame* below *above*, if that is an entry."""
    # Variables of user functions are not read.
    code = frame.f_code
    if code.co_name in CALL and code.co_filename.endswith(JIT_FILES):
        return jitted_from_variables(frame.f_locals, above or frame.f_back)
    return _ahead(frame) if code.co_name in AHEAD and is_inside(frame) else None


def outputs_at(frame: FrameType) -> Any:
    """Return what the call served by a ``cache_miss`` *frame* returns."""
    return frame.f_locals.get("outs")


def executable_of(frame: FrameType) -> Any:
    """Return what the call served by a ``cache_miss`` *frame* ran, if JAX has it."""
    return frame.f_locals.get("executable")


def lowering_at(frame: FrameType) -> FrameType | None:
    """Return the frame that lowers a jaxpr below *frame*; `None` if it is not found."""
    found: FrameType | None = nearest(frame, (_LOWERS,), _MAX_LOWERING_STEPS)
    return found


def lowered_by(frame: FrameType | None) -> Any:
    """Return the jaxpr that *frame* lowers; `None` if it is not found."""
    return frame and getattr(frame.f_locals.get("closed_jaxpr"), "jaxpr", None)


def traced_by(frame: FrameType | None) -> Any:
    """Return what *frame* lowers with what is not used; `None` if it is not found."""
    above = nearest(frame, (_TRACED,), _MAX_TRACED_STEPS)
    jaxpr = above and above.f_locals.get("jaxpr")
    return getattr(jaxpr, "jaxpr", jaxpr)  # since 0.12 it is one itself


def key_at(frame: FrameType) -> object:
    """
    Return the key of the jitted function whose call *frame* serves; cheap. For calls
    that JAX traces: there, pmap is identified by the user's function too.
    """
    variables = frame.f_locals
    info = variables.get("jit_info")
    if info is None or pmaps.is_pmap(variables.get("fun")):
        jitted = jitted_at(frame)
        return None if jitted is None else jitted.key
    return info


def jitted_from_variables(variables: Any, above: FrameType | None) -> Jitted | None:
    """Return the jitted function whose call a frame with *variables* serves."""
    fun, info = variables.get("fun"), variables.get("jit_info")
    if info is None:
        fun = pmaps.function_of_cache_miss(variables)
        return None if fun is None else Jitted(fun, fun, None, call=True)
    if pmaps.is_pmap(fun) and (pmap := pmaps.enclosing_pmap(above)) is not None:
        fun = pmaps.function_of_shard_map(pmap)
        return Jitted(fun, fun, None, call=True)
    return Jitted(fun, info, info.fun_sourceinfo, call=True)


def _ahead(frame: FrameType) -> Jitted | None:
    variables = frame.f_locals
    if "infer_params" in variables:
        fun = pmaps.function_of_shard_map(frame)
        return Jitted(fun, fun, None, call=False)
    jitted = variables.get("jit_func")
    if jitted is not None:
        if pmaps.is_pmap(jitted._fun):  # noqa: SLF001 - as below
            return None  # the pmap is further up
        info = jitted._jit_info  # noqa: SLF001 - set by pjit since 0.4.36
        return Jitted(jitted._fun, info, info.fun_sourceinfo, call=False)  # noqa: SLF001
    fun, info = variables.get("fun"), variables.get("jit_info")
    if fun is None or info is None:
        return None
    return Jitted(fun, info, info.fun_sourceinfo, call=False)


class StackProgram(NamedTuple):
    """
    What a stack shows of a program being traced, lowered or compiled: the innermost
    jitted function; as far as JAX records it ``"name at file:line"``, all that is known
    ahead of time; and its name, if only the frames have it (up to 0.6.0).
    """

    jitted: Jitted | None
    source: str | None
    name: str | None


def is_nested(frame: FrameType | None) -> bool:
    """Return whether more than one jitted function is being entered on this stack."""
    entered = False
    while frame is not None:
        if frame.f_code.co_name == "jit_trace" or is_call(frame):
            if entered:
                return True
            entered = True
        frame = frame.f_back
    return False


def is_for_shapes(frame: FrameType | None) -> bool:
    """
    Return whether a library has JAX trace what *frame* does for its shapes alone, as
    Flax does at each call outside of jit.
    """
    shapes = False
    while frame is not None and is_inside(frame):
        shapes = shapes or frame.f_code.co_name == SHAPES
        frame = frame.f_back
    return shapes and frame is not None and tier(frame.f_code.co_filename) == LIBRARY


def program_at(frame: FrameType | None) -> StackProgram:
    """Return the program being processed where *frame* runs. Costs microseconds."""
    telling = []
    while frame is not None:
        if frame.f_code.co_name in _LOWERED:
            # Their many variables are read only if no jitted function is found.
            telling.append(frame)
        elif frame.f_code.co_name in _ENTRIES and (jitted := jitted_at(frame)):
            return StackProgram(jitted, None, None)
        frame = frame.f_back
    source: str | None = None
    program: str | None = None
    for lowering in telling:
        variables = lowering.f_locals
        if lowering.f_code.co_name == "from_hlo":
            source = source or _source(variables.get("all_args_info"))
        else:
            closed = variables.get("closed_jaxpr")
            source = (
                source or _source(closed) or _source(getattr(closed, "jaxpr", None))
            )
            program = variables.get("fun_name")
    return StackProgram(None, source_location(source), program)


def bare(name: str) -> str:
    """Return ``f`` for ``jit(f)`` and ``pmap(f)``."""
    for wrapper in ("jit", "pmap"):
        if name.startswith(f"{wrapper}(") and name.endswith(")"):
            return name[len(wrapper) + 1 : -1]
    return name


def name_at(frame: FrameType) -> str | None:
    """Return the program's name in the caller of ``compile_or_get_cached``."""
    variables = frame.f_locals
    # In that of pmap, up to 0.8, the name is in a larger structure.
    name = variables.get("name") or getattr(variables.get("pci"), "name", None)
    return None if name is None else str(name)


def source_location(source: str | None) -> str | None:
    """Return *source* if it is a function's location, not ``<unknown>`` or a name."""
    return source if source and " at " in source else None


def executable_at(frame: FrameType | None) -> Any:
    """Return the executable just compiled at most five frames below *frame*."""
    at = nearest(frame, _COMPILING, 6)
    return at and at.f_locals.get(_COMPILING[at.f_code.co_name])


def _source(info: Any) -> str | None:
    return getattr(getattr(info, "debug_info", None), "func_src_info", None)


def served_call(
    below: FrameType, calls: Mapping[int, _Miss]
) -> tuple[_Miss, FrameType, FrameType] | None:
    """
    Return the call that JAX serves at *below*, the frame that serves it, and the frame
    called by that; not to be kept. `None` if ahead of time or transformed: then
    *calls*, by the id of the frames that serve those of this thread, lacks it.
    """
    while (above := below.f_back) is not None:
        if above.f_code.co_name in _ENTRIES:
            if is_call(above):
                miss = calls.get(id(above))
                return None if miss is None else (miss, above, below)
            if jitted_at(above) is not None:
                return None
        below = above
    return None
