"""
From which PRNG keys among its arguments a program draws random numbers as they are.

A key that is passed again and again is a mistake, unless the program folds something
into it that changes, such as the number of the step. That is seen in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from jaxmon.agent.guard import Allowance
from jaxmon.agent.jaxlink.arrays import underlying_array
from jaxmon.agent.jaxlink.configuration import is_calling
from jaxmon.agent.jaxlink.source_lines import ProgramLineFinder, SourceLineFinder


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
    """
    Attributes:
        keys: the key arguments from which it follows, as bits.
        varies: whether it depends on another argument.
    """

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
    Return for each key among the arguments of the program *jaxpr*, in their order,
    whether numbers are drawn from it and nothing that varies. Empty if there are no
    keys. Takes 2 µs per equation.

    Raises:
        TooLargeError: it has more than 50,000 equations.
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


class _UseReader:
    """
    Follows keys through a program.

    Attributes:
        drawn: the key arguments from which numbers are drawn, as bits.
    """

    def __init__(self) -> None:
        self.drawn = 0
        self._left = _MOST_EQUATIONS

    def run(self, jaxpr: Any, arguments: Sequence[_KeyState]) -> list[_KeyState]:
        """Return what is known about the results of *jaxpr* with these *arguments*."""
        states = dict(zip(jaxpr.invars, arguments, strict=False))

        def of(value: Any) -> _KeyState:
            # Literals are not hashable.
            return _CONSTANT if hasattr(value, "val") else states.get(value, _CONSTANT)

        for equation in jaxpr.eqns:
            self._left -= 1
            if self._left < 0:
                raise TooManyEquationsError
            results = self._apply(equation, [of(value) for value in equation.invars])
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
    """Return the programs that *equation* calls, with their arguments."""
    found = []
    parameters = equation.params
    for name, value in parameters.items():
        several = isinstance(value, tuple | list)
        for item in value if several else (value,):
            jaxpr = getattr(item, "jaxpr", item)
            if not hasattr(jaxpr, "eqns"):
                continue
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


# Functions of `jax.random` that draw nothing.
_NO_DRAWS = frozenset(("fold_in", "split", "key_data", "key_impl", "clone", "_split"))
# Seeing one takes a few microseconds.
_BURST, _PER_SECOND, _PASSES = 1000, 100, 64
_CHECK = "_check_prng_key"


class KeyDraws:
    """
    Sees the keys that the program passes to `jax.random` outside of jitted functions.

    Args:
        drew: called with the file and line of the program, the array of the key, and
            how many draws this stands for.
    """

    def __init__(self, jax: Any, drew: Callable[[str, Any, int], None]) -> None:
        self._jax = jax
        self._drew = drew
        self._clean = is_calling(jax)
        self._lines = ProgramLineFinder(SourceLineFinder(jax))
        self.allowance = Allowance(burst=_BURST, rate=_PER_SECOND, passes=_PASSES)

    def place(self) -> tuple[ModuleType, str]:
        """Return the module and the name of the function through which keys pass."""
        random = self._jax._src.random  # noqa: SLF001 - no public way
        return getattr(random, "core", random), _CHECK

    def on_check(self, frame: FrameType, original: Callable[..., Any]) -> None:
        """Observe that a function of `jax.random`, whose *frame* this is, has a key."""
        del original
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
