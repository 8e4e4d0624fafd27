"""
Programs that JAX compiles while it transforms a jitted function outside of jit.

``jax.grad(jitted)(x)`` compiles two programs: one forward, in the call of *jitted* with
tracers, and one backward, when the call has returned. Each is an application of the
primitive of jit, whose implementation has the program and its operands in its frame;
what was transformed how is in the frames between that and the call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from jaxmon.agent.guard import Guard
from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.arguments import JitCall, call_served_by
from jaxmon.agent.jaxlink.frames import AHEAD, Jitted, is_call, source_location
from jaxmon.agent.jaxlink.jit import INSIDE, TYPE_NAME, is_class, is_inside
from jaxmon.agent.jaxlink.probe import Probe
from jaxmon.tuples import NamedTuple


_JIT = "_jit_of_eval_shape"
"""A name in the module of `jax.eval_shape` that only this function looks up."""


def attach_eval_shape(
    jax: Any,
    unwrap: Callable[[object], Callable[..., Any] | None],
    *,
    guard: Guard,
    site: str,
) -> None:
    """
    Have `jax.eval_shape` see JAX's own object, as long as the process lives, since
    counted functions outlive an agent. Does nothing if this JAX needs nothing, or if it
    has been done.

    Since 0.7.2 it checks ``type(fun) is PjitFunction`` to honour static arguments,
    which a counted function cannot satisfy, and otherwise calls ``jit(fun)``. JAX and
    programs import this ``jit`` elsewhere, and it is pickled by its name: so it stays,
    and the code of `jax.eval_shape` looks up another.

    Args:
        jax: the module.
        unwrap: called with the argument of `jax.eval_shape`; returns a function that
            unwraps it, `None` if it is not a counted function.
        guard: contains failures.
        site: name under which failures are counted.

    Raises:
        AttributeError: this JAX lacks one of the attributes.
    """
    api: Any = jax._src.api  # noqa: SLF001 - looked up there at each use
    function = getattr(api.eval_shape, "__wrapped__", api.eval_shape)
    code = function.__code__
    if TYPE_NAME not in code.co_names or _JIT in code.co_names:
        return

    def observe(frame: FrameType, _: Callable[..., Any]) -> Callable[..., Any] | None:
        return unwrap(frame.f_locals.get("fun"))

    setattr(api, _JIT, Probe(api.jit, observe, guard=guard, site=site))
    names = tuple([_JIT if name == "jit" else name for name in code.co_names])
    function.__code__ = code.replace(co_names=names)


_TRANSFORMATIONS = os.path.join("jax", "_src", "api.py")  # noqa: PTH118 - end of a path
_IMPLEMENTATION = "_pjit_call_impl_python"
_MAX_STEPS = 300
_MAX_EQUATIONS = 500


class Transformed(NamedTuple):
    """
    A program of a transformed function. Must not outlive the observation.

    Attributes:
        jitted: the function, if the program is applied in its call.
        call: that call, whose arguments are tracers.
        names: of the function: ``"name at file:line"`` as JAX records it (since 0.5),
            and the bare name.
        kind: which program of the function it is: the functions of JAX that apply it,
            and which of the arguments they transform.
        structure: distinguishes programs of the same kind, but not their shapes.
        operands: what it is applied to.
        avals: their abstract values.
    """

    jitted: Jitted | None
    call: JitCall | None
    names: tuple[str, ...]
    kind: int
    structure: int
    operands: Sequence[Any]
    avals: Sequence[Any]


def transformed_at(frame: FrameType | None) -> Transformed | None:
    """
    Return the transformed function whose program is compiled below *frame*, `None` if
    something else is compiled. Costs microseconds, and one for each equation.
    """
    applied = applied_at(frame)
    if applied is None:
        return None
    between: list[str] = []
    below, above, steps = applied, applied.f_back, 0
    while above is not None and is_inside(above) and steps < _MAX_STEPS:
        if is_call(above):
            between += _transformations(above)
            return _transformed(applied, between, *call_served_by(above, below))
        if above.f_code.co_name in AHEAD:
            return None
        between.append(above.f_code.co_name)
        below, above, steps = above, above.f_back, steps + 1
    return _transformed(applied, between, None, None)


def applied_at(frame: FrameType | None) -> FrameType | None:
    """
    Return the frame that applies the jitted function whose program is compiled below
    *frame*, in a call or not; `None` if it is compiled ahead of time.
    """
    for _ in range(_MAX_STEPS):
        if frame is None:
            return None
        if frame.f_code.co_name == _IMPLEMENTATION:
            return frame
        file = frame.f_code.co_filename
        # In 0.4.35, JAX measures in a context manager.
        if INSIDE not in file and file != contextlib.__file__:
            return None
        frame = frame.f_back
    return None


def _transformed(
    applied: FrameType, between: list[str], jitted: Jitted | None, call: JitCall | None
) -> Transformed:
    variables = applied.f_locals
    program = variables["jaxpr"]
    jaxpr = getattr(program, "jaxpr", program)  # since 0.12 it is one itself
    name = str(variables["name"])
    if jitted is not None:
        source = jitted.source
        # What is transformed: a gradient for another argument is another program.
        between += map(_tracer, call.leaves or () if call else ())
    else:
        debug = getattr(jaxpr, "debug_info", None)
        source = getattr(debug, "func_src_info", None)
    source = source_location(source)
    return Transformed(
        jitted,
        call,
        (name,) if source is None else (source, name),
        hash(tuple(between)),
        _structure(jaxpr),
        variables["args"],
        program.in_avals,
    )


def _transformations(frame: FrameType | None) -> Iterator[str]:
    """Yield the names of JAX's transformations on the stack from *frame* up."""
    for _ in range(_MAX_STEPS):
        if frame is None:
            return
        if frame.f_code.co_filename.endswith(_TRANSFORMATIONS):
            yield frame.f_code.co_name
        frame = frame.f_back


def _tracer(leaf: object) -> str:
    """Return the class of *leaf* if it is a tracer, otherwise an empty text."""
    name = name_of(type(leaf))
    return name if name.endswith("Tracer") and is_class(type(leaf)) else ""


def _structure(jaxpr: Any) -> int:
    """
    Return a hash of the operations in *jaxpr* and of how they are connected: the
    gradients for two arguments have the same operands.
    """
    numbers: dict[int, int] = {}

    def number(variable: Any) -> int:
        # A constant in its place has a value; its own number would be new.
        if hasattr(variable, "val"):
            return -1
        return numbers.setdefault(id(variable), len(numbers))

    parts: list[object] = [len(jaxpr.eqns)]
    parts += [len(getattr(variable.aval, "shape", ())) for variable in jaxpr.invars]
    for binder in (*jaxpr.constvars, *jaxpr.invars):
        number(binder)
    for equation in jaxpr.eqns[:_MAX_EQUATIONS]:
        parts.append(equation.primitive.name)
        parts += map(number, (*equation.invars, *equation.outvars))
    parts += map(number, jaxpr.outvars)
    return hash(tuple(parts))
