"""
Identifies the jitted function behind a JAX frame.

Hooks see frames, not arguments. The functions of JAX on the way from a jitted call
to the compiler keep the user's function in variables whose names have not changed
from 0.4.35 to 0.12.
"""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType
from typing import Any, Generic, Protocol, TypeVar

from jaxmon import interrupts
from jaxmon.agent.jaxlink import jit as pmaps
from jaxmon.agent.jaxlink.jit import is_binding, is_inside
from jaxmon.agent.jaxlink.source_lines import AGENT
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


# Where a ``cache_miss`` belongs to a call: JAX 0.8 has another one, in its own caches.
_FILES = tuple(
    [os.path.join("jax", "_src", name) for name in ("pjit.py", "api.py")]  # noqa: PTH118 - ends of paths
)


_LOWERS = "lower_sharding_computation"
_MAX_LOWERING_STEPS = 16
_LOWERED = ("from_hlo", _LOWERS)

# Every frame on the way up is looked up here; few match.
_IDENTIFYING = frozenset(("cache_miss", *_LOWERED, *AHEAD))

_ENTRIES = frozenset(("cache_miss", *AHEAD))

held: list[None] = []
"""
Not empty while a thread of ours has frames of others. A function that returns meanwhile
stays referenced a little longer.
"""

_Miss = TypeVar("_Miss")


class Jitted(NamedTuple):
    """
    A jitted function, as found in a JAX frame.

    Attributes:
        fun: the user's function.
        key: identifies the jitted object: its ``PjitInfo``, or, for pmap, *fun*.
        source: ``"name at file:line"``, or `None` for pmap.
        call: whether the frame belongs to a call, not to ahead-of-time use.
    """

    fun: object
    key: object
    source: str | None
    call: bool


def is_call(frame: FrameType) -> bool:
    """Return whether *frame* serves a missed call."""
    code = frame.f_code
    return code.co_name == "cache_miss" and code.co_filename.endswith(_FILES)


def entry_of(frame: FrameType) -> FrameType | None:
    """
    Return the frame that serves the call whose arguments *frame* inspects, `None` if
    ahead of time.
    """
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
    return _is_below(frame, "cache_miss")


def is_below_boundary(frame: FrameType | None) -> bool:
    """Return whether *frame* runs below a function of JAX that filters tracebacks."""
    return _is_below(frame, "reraise_with_filtered_traceback")


def _is_below(frame: FrameType | None, name: str) -> bool:
    """Return whether *frame*, or one just above it, runs a function called *name*."""
    for _ in range(_MAX_STEPS):
        if frame is None:
            return False
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False


def is_wait(frame: FrameType | None) -> bool:
    """Return whether *frame* reads an array, or waits for one, for the program."""
    return frame is not None and frame.f_code.co_name in _WAITS and is_inside(frame)


def is_outside(frame: FrameType | None) -> bool:
    """Return whether *frame*, if there is one, does not run code of JAX."""
    return frame is not None and not is_inside(frame) and not is_binding(frame)


def calls_back_inline(frame: FrameType | None) -> bool:
    """
    Return whether *frame*, in which JAX runs a callback, is below a call that the
    program makes, not on a thread of the runtime.
    """
    inside = False
    while frame is not None:
        if is_inside(frame):
            inside = True
        elif inside:
            return True
        frame = frame.f_back
    return False


def is_our_own(frame: FrameType | None) -> bool:
    """Return whether *frame*, or one just above it, runs code of the agent."""
    for _ in range(_OWN_STEPS):
        if frame is None:
            return False
        if frame.f_code.co_filename.startswith(AGENT):
            return True
        frame = frame.f_back
    return False


def asks_for_memory(frame: FrameType | None) -> bool:
    """Return whether *frame* transfers arrays to a device, outside of a call."""
    return frame is not None and frame.f_code.co_name in _PUTS


def jitted_at(frame: FrameType, above: FrameType | None = None) -> Jitted | None:
    """
    Return the jitted function of *frame*, if that is one of JAX's entry points.

    Args:
        frame: a frame, live or from a traceback.
        above: the caller of *frame*, if not ``frame.f_back``.
    """
    # Variables of user functions are not read.
    code = frame.f_code
    if code.co_name in CALL and code.co_filename.endswith(_FILES):
        return jitted_from_variables(frame.f_locals, above or frame.f_back)
    if code.co_name in AHEAD and is_inside(frame):
        return _ahead(frame)
    return None


def outputs_at(frame: FrameType) -> Any:
    """Return what the call served by a ``cache_miss`` *frame* returns."""
    return frame.f_locals.get("outs")


def executable_of(frame: FrameType) -> Any:
    """Return what the call served by a ``cache_miss`` *frame* ran, if JAX has it."""
    return frame.f_locals.get("executable")


def lowered_at(frame: FrameType | None) -> Any:
    """
    Return the jaxpr of the program that is lowered below *frame*, without what it does
    not need; `None` if it is not found.
    """
    for _ in range(_MAX_LOWERING_STEPS):
        if frame is None:
            return None
        if frame.f_code.co_name == _LOWERS:
            closed = frame.f_locals.get("closed_jaxpr")
            return getattr(closed, "jaxpr", None)
        frame = frame.f_back
    return None


def key_at(frame: FrameType) -> object:
    """
    Return the key of the jitted function whose call *frame* serves; cheap.

    For calls that JAX traces: there, pmap is identified by the user's function too.
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
    Information from the stack about a program being traced, lowered or compiled.

    Attributes:
        jitted: the innermost jitted function that caused it, if any.
        source: ``"name at file:line"`` of the traced function, as recorded by JAX; in
            an ahead-of-time compile, the only identification. `None` if JAX records
            less.
        name: the program's name, if only the frames have it (up to 0.6.0).
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


def program_at(frame: FrameType | None) -> StackProgram:
    """
    Walk up from *frame* and return the program being processed. Costs microseconds.
    """
    telling = []
    while frame is not None:
        name = frame.f_code.co_name
        if name not in _IDENTIFYING:
            pass
        elif name in _LOWERED:
            # Their many variables are read only if no jitted function is found.
            telling.append(frame)
        else:
            jitted = jitted_at(frame)
            if jitted is not None:
                return StackProgram(jitted, None, None)
        frame = frame.f_back
    source: str | None = None
    program: str | None = None
    for lowering in telling:
        variables = lowering.f_locals
        if lowering.f_code.co_name == "from_hlo":
            source = source or _source(variables.get("all_args_info"))
        else:
            source = source or _source_of_jaxpr(variables.get("closed_jaxpr"))
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
    """
    Return *source* if it is the location of a function. For other objects JAX has
    ``<unknown>``, or their name.
    """
    return source if source and " at " in source else None


def executable_at(frame: FrameType | None) -> Any:
    """
    Return the executable just compiled below *frame*, where JAX reports the duration.

    Two functions compile: jit's and, up to 0.8, pmap's; the listener is called from a
    context manager around the compile, at most five frames above them.
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


class ServedCalls(Protocol[_Miss]):
    """The calls that JAX serves on a thread; see `CurrentCall`."""

    calls: dict[int, _Miss]


class CurrentCall(Generic[_Miss]):
    """
    Finds the call that JAX is serving on this thread.

    The number of frames from a call to where JAX reports a phase is always the same, so
    checking that depth first (a microsecond) avoids a stack walk. Nested calls are
    deeper.

    Args:
        thread: has in ``calls`` those of this thread, by the id of the frame that
            serves them; none if JAX is tracing or transforming.
    """

    def __init__(self, thread: ServedCalls[_Miss]) -> None:
        self._thread = thread
        self._steps: dict[str, int] = {}

    def now(self, phase: str) -> tuple[_Miss, FrameType, FrameType] | None:
        """
        Return the call, the frame that serves it, and the frame called by that; neither
        frame must be kept. `None` if ahead of time or under a transformation.

        Args:
            phase: identifies the caller's place in JAX.
        """
        steps = self._steps.get(phase)
        if steps is None:
            return self._walk(phase)
        try:
            inner = sys._getframe(steps)  # noqa: SLF001
        except ValueError as error:  # a stack less deep
            interrupts.pass_on(error)
            return self._walk(phase)
        frame = inner.f_back
        # By name, too: frame ids are reused.
        if frame is None or frame.f_code.co_name != "cache_miss":
            return self._walk(phase)
        miss = self._thread.calls.get(id(frame))
        return self._walk(phase) if miss is None else (miss, frame, inner)

    def _walk(self, phase: str) -> tuple[_Miss, FrameType, FrameType] | None:
        inner, steps = sys._getframe(1), 0  # noqa: SLF001 - `now`, as it counts
        while (frame := inner.f_back) is not None:
            name = frame.f_code.co_name
            if name not in _ENTRIES:  # as dozens
                pass
            elif is_call(frame):
                miss = self._thread.calls.get(id(frame))
                if miss is None:
                    return None
                self._steps[phase] = steps
                return miss, frame, inner
            elif jitted_at(frame) is not None:
                return None
            inner = frame
            steps += 1
        return None
