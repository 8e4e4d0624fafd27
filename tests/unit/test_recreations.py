"""Whether a new function replaces an earlier one, or is one more."""

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest

from jaxmon.agent.context import Registry
from jaxmon.agent.counted import CountedFunction
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.source_lines import ProgramLine
from jaxmon.agent.recompiles.recreations import IDLE, Recreations, created


Fun = Callable[..., Any]


class Line:
    """A line that jits, and the functions that it created and compiled."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.recreations = Recreations()
        self.function = Function("f", internal=False)

    def jit(self, fun: Fun, line: int = 1) -> CountedFunction:
        """Return *fun* as `jax.jit` at *line* would."""
        jitted = functools.partial(bool, fun)  # refers to it, as JAX's object does
        counted = CountedFunction(jitted, lambda jitted: jitted)
        at = ProgramLine("train.py", line, "train", "fit")
        self.registry.add(self.function, counted, fun, at)
        return counted

    def compile(self, fun: Fun, options: str = "") -> bool:
        """Compile *fun*; return whether it replaces an earlier function."""
        jitted = Jitted(fun, fun, "f at train.py:1", call=True)
        jit = self.registry.jit_of(fun)
        number = self.registry.number_of(jit)
        new = created(jitted, jit, number=number, options=options)
        replaced = self.recreations.replaced_by(new)
        self.recreations.add(new, self.registry.now(), None)
        return replaced is not None

    def use(self, fun: Fun, line: int = 1, options: str = "") -> bool:
        """Jit and compile *fun*, whose jitted object is then dropped."""
        counted = self.jit(fun, line)
        replaces = self.compile(fun, options)
        counted()
        return replaces


@pytest.fixture
def line() -> Line:
    return Line()


class Model:
    def __init__(self, size: int) -> None:
        self.size = size

    def apply(self) -> int:
        return self.size


def make(value: object) -> Fun:
    return lambda: value


def test_functions_in_use_are_not_replaced(line: Line) -> None:
    """A factory that keeps what it created has a function for each value."""
    kept = []
    for n in range(2 * IDLE):
        fun = make(n)
        kept.append(line.jit(fun))
        assert not line.compile(fun)
        for counted in kept:
            counted()
            counted()


def test_many_idle_functions_are_one_created_anew(line: Line) -> None:
    """A few may be waiting for their turn."""
    kept: list[Any] = []
    found = []
    for n in range(IDLE + 10):
        fun = make(n)
        kept.append((fun, line.jit(fun)))
        found.append(line.compile(fun))

    assert found == IDLE * [False] + 10 * [True]


def test_what_existed_before_an_earlier_compile_replaces_nothing(line: Line) -> None:
    """Two functions are created, and the first is gone before the second is called."""
    first, second = make(1), make(2)
    jitted = [line.jit(first), line.jit(second)]
    assert not line.compile(first)
    del first
    jitted.pop(0)

    assert not line.compile(second)


def test_another_line_or_option_makes_another_function(line: Line) -> None:
    """What is jitted at two places, or differently, is not created anew."""
    assert not line.use(make(1))
    assert not line.use(make(2), line=2)
    assert not line.use(make(3), options="donated")
    assert line.use(make(4))


def test_without_the_line_the_source_counts() -> None:
    """As if whatever came from there had been jitted at one place."""
    line = Line()

    assert [line.compile(make(n)) for n in range(3)] == [False, True, True]


def test_what_existed_before_us_replaces_nothing() -> None:
    """When everything jitted since is known, the rest existed at the start."""
    line = Line()
    line.registry.complete = True

    assert [line.compile(make(n)) for n in range(3)] == [False, False, False]


def test_no_code_of_the_program_runs(line: Line) -> None:
    """Whatever the classes of objects in closures define, and their metaclasses."""

    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            raise AssertionError

        def __hash__(cls) -> int:
            raise AssertionError

    class Hostile(metaclass=Meta):
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        def __hash__(self) -> int:
            raise AssertionError

        def __getattr__(self, name: str) -> Any:
            raise AssertionError

    class Slotted(Hostile):
        __slots__ = ()

    kept = Hostile()
    assert not line.use(make(kept))
    assert line.use(make(kept))
    assert not line.use(make([Hostile(), Slotted(), Hostile]))


def test_an_empty_cell_is_nothing(line: Line) -> None:
    """A function may be compiled before the variable that it closes over is set."""

    def use() -> bool:
        fun: Any = types.FunctionType(inner.__code__, {}, closure=(types.CellType(),))
        return line.use(fun)

    outer = 1

    def inner() -> int:
        return outer

    assert [use(), use()] == [False, True]
