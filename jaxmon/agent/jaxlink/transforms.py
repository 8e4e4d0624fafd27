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
from types import FrameType, ModuleType
from typing import Any

from jaxmon.agent.guard import Allowance
from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.arguments import JitCall, call_served_by
from jaxmon.agent.jaxlink.arrays import underlying_array
from jaxmon.agent.jaxlink.backends import is_calling
from jaxmon.agent.jaxlink.frames import AHEAD, Jitted, is_call, source_location
from jaxmon.agent.jaxlink.jit import INSIDE, is_class, is_inside, stack_from
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.tuples import NamedTuple


_MOST_EQUATIONS = 50_000

# Primitives whose results are keys that follow from the first operand.
_DERIVE = frozenset(
    (
        *("random_split", "random_wrap", "random_unwrap", "random_clone"),
        *("slice", "dynamic_slice", "gather", "squeeze", "expand_dims", "reshape"),
        *("broadcast_in_dim", "transpose", "rev", "split", "concatenate", "copy"),
        *("copy_p", "device_put", "optimization_barrier", "sharding_constraint"),
        *("convert_element_type", "unstack"),
    )
)
_DRAW = frozenset(("random_bits", "threefry2x32"))


class _KeyState(NamedTuple):
    """Key arguments from which it follows, as bits; whether it varies with others."""

    keys: int = 0
    varies: bool = False


_CONSTANT = _KeyState()


class TooManyEquationsError(Exception):
    """The program has too many equations to look at."""


def is_key(array: Any) -> bool:
    """Return whether *array*, or what stands for one in a program, is a single key."""
    shape = getattr(array, "shape", None)
    if shape == ():
        return str(getattr(array, "dtype", "")).startswith("key<")
    return shape == (2,) and str(getattr(array, "dtype", "")) == "uint32"


def drawn_from(jaxpr: Any) -> tuple[bool, ...]:
    """
    Return for each key among the arguments of *jaxpr* whether numbers are drawn from it
    and nothing that varies. Takes 2 µs per equation; `TooManyEquationsError` after
    50,000.
    """
    given = [is_key(variable.aval) for variable in getattr(jaxpr, "invars", ())]
    if not any(given):
        return ()
    arguments, keys = [], 0
    for state in given:
        arguments.append(_KeyState(1 << keys) if state else _KeyState(varies=True))
        keys += state
    reader = _UseReader()
    reader.run(jaxpr, arguments)
    return tuple(bool(reader.drawn >> key & 1) for key in range(keys))


def redrawn(jaxpr: Any, lines: SourceLineFinder) -> str:
    """
    Return the line of a loop's body in *jaxpr* that draws from a key of around the
    loop, and so the same numbers in each pass; 2 µs per equation of a body.
    """
    for inside in jaxprs_of(jaxpr, _MOST_EQUATIONS):
        for equation in inside.eqns:
            body, constants, _ = body_of(equation)
            is_once = (
                equation.primitive.name == "scan" and equation.params["length"] == 1
            )
            if body is None or not constants or is_once:
                continue
            reader = _UseReader()
            others = len(body.invars) - constants
            around = [_KeyState(1)] * constants
            with contextlib.suppress(TooManyEquationsError):
                reader.run(body, [*around, *[_KeyState(varies=True)] * others])
            if reader.drawn and (place := lines.place_of(reader.first)):
                return place
    return ""


def body_of(equation: Any) -> tuple[Any, int, int]:
    """
    Return the body of a loop, `None` of another operation, and how many of its
    arguments are constants, and how many are carried.
    """
    parameters = equation.params
    if equation.primitive.name == "while":
        body, constants = parameters["body_jaxpr"].jaxpr, parameters["body_nconsts"]
        return body, constants, len(body.outvars)
    if equation.primitive.name != "scan":
        return None, 0, 0
    body = parameters["jaxpr"].jaxpr
    if "ft_in" in parameters:  # since 0.12
        constants, carried, _ = map(len, parameters["ft_in"].unpack())
        return body, constants, carried
    return body, parameters["num_consts"], parameters["num_carry"]


class _UseReader:
    """
    Follows keys through a program, to those *drawn* from, as bits; *first* is the
    traceback of the outermost operation that draws first.
    """

    def __init__(self) -> None:
        self.drawn = 0
        self.first: Any = None
        self._left = _MOST_EQUATIONS

    def run(self, jaxpr: Any, arguments: Sequence[_KeyState]) -> list[_KeyState]:
        states = dict(zip(jaxpr.invars, arguments, strict=False))

        def of(value: Any) -> _KeyState:
            # Literals are not hashable.
            return _CONSTANT if hasattr(value, "val") else states.get(value, _CONSTANT)

        for equation in jaxpr.eqns:
            self._left -= 1
            if self._left < 0:
                raise TooManyEquationsError
            before = self.drawn
            results = self._apply(equation, [of(value) for value in equation.invars])
            if self.drawn and not before:
                self.first = equation.source_info.traceback
            states.update(zip(equation.outvars, results, strict=False))
        return [of(value) for value in jaxpr.outvars]

    def _apply(self, equation: Any, given: list[_KeyState]) -> list[_KeyState]:
        name, number = equation.primitive.name, len(equation.outvars)
        varies = any([state.varies for state in given])
        if name in _DRAW:
            for state in given:
                self.drawn |= state.keys
        elif name == "random_fold_in":
            return [_KeyState(varies=True) if varies else given[0]] * number
        elif name in _DERIVE:
            keys = 0
            for state in given:
                keys |= state.keys
            return [_KeyState(0 if varies else keys, varies)] * number
        inner = _inner(equation, given)
        if not inner:
            return [_KeyState(varies=varies)] * number
        found: list[_KeyState] = []
        for jaxpr, arguments in inner:
            found = self.run(jaxpr, arguments)
        same = len(inner) == 1 and len(found) == number
        return found if same else [_KeyState(varies=varies)] * number


def _inner(equation: Any, given: list[_KeyState]) -> list[tuple[Any, list[_KeyState]]]:
    found = []
    parameters = equation.params
    for name, jaxpr in jaxprs_in(equation):
        arguments = given
        if equation.primitive.name == "cond":
            arguments = given[1:]
        elif equation.primitive.name == "while":
            first, second = parameters["cond_nconsts"], parameters["body_nconsts"]
            carried = given[first + second :]
            constants = given[:first] if name == "cond_jaxpr" else given[first:]
            arguments = [*constants[: len(jaxpr.invars) - len(carried)], *carried]
        if len(arguments) == len(jaxpr.invars):
            found.append((jaxpr, arguments))
    return found


def jaxprs_in(equation: Any) -> Iterator[tuple[str, Any]]:
    """Yield the jaxprs that *equation* runs, each with the name of its parameter."""
    for name, value in equation.params.items():
        for item in value if isinstance(value, tuple | list) else (value,):
            jaxpr = getattr(item, "jaxpr", item)  # a closed one has the open one
            if hasattr(jaxpr, "eqns"):
                yield name, jaxpr


def jaxprs_of(jaxpr: Any, most: int) -> Iterator[Any]:
    """Yield *jaxpr* and all that it runs, each once, for *most* equations."""
    waiting, seen = [jaxpr], {id(jaxpr)}
    while waiting and most > 0:
        inside = waiting.pop()
        most -= len(inside.eqns)
        yield inside
        for equation in inside.eqns:
            for _, inner in jaxprs_in(equation):
                if id(inner) not in seen:
                    seen.add(id(inner))
                    waiting.append(inner)


_TRANSFORMATIONS = os.path.join("jax", "_src", "api.py")  # noqa: PTH118 - end of a path
_IMPLEMENTATION = "_pjit_call_impl_python"
_MAX_EQUATIONS = 500


class Transformed(NamedTuple):
    """
    A program of a transformed function. Must not outlive the observation.

    Attributes:
        jitted: the function, if the program is applied in its *call*, with tracers.
        names: ``"name at file:line"`` as JAX records it (since 0.5), and the bare name.
        kind: what of JAX applies it, and which arguments that transforms.
        structure: distinguishes programs of the same kind, but not their shapes.
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
    below = applied
    for above in stack_from(applied.f_back):
        if not is_inside(above):
            break
        if is_call(above):
            between += [
                at.f_code.co_name
                for at in stack_from(above)
                if at.f_code.co_filename.endswith(_TRANSFORMATIONS)
            ]
            return _transformed(applied, between, *call_served_by(above, below))
        if above.f_code.co_name in AHEAD:
            return None
        between.append(above.f_code.co_name)
        below = above
    return _transformed(applied, between, None, None)


def applied_at(frame: FrameType | None) -> FrameType | None:
    """Return the frame that applies what is compiled below, `None` if ahead of time."""
    while frame is not None and frame.f_code.co_name != _IMPLEMENTATION:
        file = frame.f_code.co_filename
        # In 0.4.35, JAX measures in a context manager.
        if INSIDE not in file and file != contextlib.__file__:
            return None
        frame = frame.f_back
    return frame


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
        source = getattr(getattr(jaxpr, "debug_info", None), "func_src_info", None)
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


def _tracer(leaf: object) -> str:
    name = name_of(type(leaf))
    return name if name.endswith("Tracer") and is_class(type(leaf)) else ""


def _structure(jaxpr: Any) -> int:
    """Return a hash of operations and connections: gradients share operands."""
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


# Functions of `jax.random` that draw nothing.
_NO_DRAWS = frozenset(("fold_in", "split", "key_data", "key_impl", "clone", "_split"))
# Seeing one takes a few microseconds.
_BURST, _PER_SECOND = 1000, 100
_CHECK = "_check_prng_key"


class KeyDraws:
    """Sees keys used in `jax.random` outside of jit: *drew* gets line, key, weight."""

    def __init__(self, jax: Any, drew: Callable[[str, Any, int], None]) -> None:
        self._jax = jax
        self._drew = drew
        self._clean = is_calling(jax)
        self._lines = SourceLineFinder(jax)
        self.allowance = Allowance(burst=_BURST, rate=_PER_SECOND)

    def place(self) -> tuple[ModuleType, str]:
        """Return the module and the name of the function through which keys pass."""
        random: Any = self._jax._src.random  # noqa: SLF001 - no public way
        # Before 0.10 it is a module, in which this is JAX's own core.
        core: Any = getattr(random, "core", None)
        return (core if hasattr(core, _CHECK) else random), _CHECK

    def on_check(self, frame: FrameType, _: Callable[..., Any]) -> None:
        """Observe that a function of `jax.random`, whose *frame* this is, has a key."""
        weight = self.allowance.take()
        if not weight or frame.f_code.co_name in _NO_DRAWS or not self._clean():
            return
        key = underlying_array(frame.f_locals.get("key"))
        above = frame.f_back
        if above is None or not isinstance(key, self._jax.Array):
            return
        line = self._lines.that_calls(above)
        if line is not None:
            self._drew(line.place, key, weight)
