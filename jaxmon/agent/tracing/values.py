"""
Values in the source of a traced function, as far as reading it shows, and what may be
wrong there.

Counters of the program that a jitted function changes. It does so while it is traced,
and on no other call: what follows from the counter is a constant of the program.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.inspection import ABSENT


Node: TypeAlias = ast.FunctionDef | ast.Lambda
Names: TypeAlias = "dict[str, TracedValue]"

FROZEN = "frozen"
"""A value of the host, such as the time, became a constant of the program."""

ADVANCED = "advanced"
"""A counter of the program changed while tracing, and became a constant."""

LEAKED = "leaked"
"""A traced value was stored outside of the function."""

PRINTED = "printed"
"""A traced value was printed or logged while tracing, and on no later call."""

DROPPED = "dropped"
"""The result of ``x.at[i].set(v)`` is not used, so nothing is set."""


class Mistake(NamedTuple):
    """
    One mistake.

    Attributes:
        kind: one of the constants above.
        file: as the interpreter knows it.
        line: of the call or the assignment.
        text: its source, abridged: ``np.random.normal``, ``losses.append``.
        within: name of the Python function that contains it.
    """

    kind: str
    file: str
    line: int
    text: str
    within: str


class ValueOrigin(NamedTuple):
    """What a value of the host makes a program depend on: a number, or a time."""

    mistake: Mistake
    random: bool


@dataclass(frozen=True, slots=True)
class Local:
    """A function defined in what is read; *outer* knows the names around it."""

    node: Node
    outer: Callable[[str], TracedValue]
    file: str


@dataclass(frozen=True, slots=True)
class TracedValue:
    """
    What is certain about a value; the defaults say that nothing is.

    Attributes:
        traced: it is a traced value, or contains one.
        mixed: if so, that is not certain of what it contains.
        elements: what it contains, if that is known one by one.
        shown: it is text that shows a traced value.
        frozen: the values of the host that it was computed from.
        object: the object itself, if it exists outside of the call.
        outer: it exists outside of the call, whatever it is.
        kind: the class that it is of, if that is known, but not the object.
        functions: what runs when it is called, or what is in it.
        yields: calling it returns traced values.
        is_file: it is an open file.
    """

    traced: bool = False
    mixed: bool = False
    elements: tuple[TracedValue, ...] = ()
    shown: bool = False
    frozen: tuple[ValueOrigin, ...] = ()
    object: Any = ABSENT
    outer: bool = False
    kind: type | None = None
    functions: tuple[FunctionType | Local, ...] = ()
    yields: bool = False
    is_file: bool = False

    @property
    def key(self) -> object:
        """Equal for values of which the same is certain."""
        flags = self.traced, self.mixed, self.shown, self.outer, self.yields
        elements = tuple(element.key for element in self.elements)
        objects = id(self.object), self.kind, self.is_file
        return flags, self.frozen, objects, self.functions, elements

    @property
    def content(self) -> TracedValue:
        """What is certain about anything that it contains."""
        if self.traced and not self.mixed:
            return TRACED
        return TracedValue(frozen=self.frozen, functions=self.functions)


NOTHING = TracedValue()
TRACED = TracedValue(traced=True)


def together(values: Iterable[TracedValue]) -> TracedValue:
    """Return what is certain about a value that contains all *values*."""
    values = list(values)
    return TracedValue(
        traced=any(value.traced for value in values),
        mixed=not all(value.traced and not value.mixed for value in values),
        shown=any(value.shown for value in values),
        frozen=origins(values),
        functions=tuple(f for value in values for f in value.functions),
    )


def origins(values: Iterable[TracedValue]) -> tuple[ValueOrigin, ...]:
    """Return the values of the host that *values* were computed from."""
    return tuple(dict.fromkeys(origin for value in values for origin in value.frozen))


def either(first: TracedValue, second: TracedValue) -> TracedValue:
    """Return what is certain about a value that is one of two."""
    if first == second:
        return first
    return TracedValue(
        traced=first.traced and second.traced,
        mixed=first.mixed or second.mixed,
        shown=first.shown and second.shown,
        frozen=tuple(origin for origin in first.frozen if origin in second.frozen),
    )


def joined(first: Names, second: Names) -> Names:
    """Return what is certain about names after one of two branches."""
    return {
        name: either(value, second[name])
        for name, value in first.items()
        if name in second
    }


class Counters:
    """The counters that one jitted function changes."""

    def __init__(self) -> None:
        self._origins: dict[tuple[object, str], ValueOrigin] = {}

    def add(self, holder: object, name: str, mistake: Mistake) -> ValueOrigin:
        """Note that *name* changes: of an object, or of a module by its file."""
        origin = self._origins[holder, name] = ValueOrigin(mistake, random=False)
        return origin

    def name(self, file: str, name: str) -> TracedValue | None:
        """Return the counter that *name* is in *file*, `None` if it is none."""
        return _value(self._origins.get((file, name)))

    def attribute(self, base: TracedValue, name: str) -> TracedValue | None:
        """Return the counter *name* of *base*, `None` if it is none."""
        return _value(self._origins.get((holder_of(base), name)))


def counts(node: Node, target: ast.expr, value: ast.expr) -> bool:
    """
    Return whether an assignment of *value* to *target*, the only one in *node*, makes a
    new value from the old one. What is assigned twice may be restored.
    """
    text = ast.unparse(target)
    again = [name for name in ast.walk(value) if _is(name, text, ast.Load)]
    stores = [name for name in ast.walk(node) if _is(name, text, ast.Store)]
    return bool(again) and len(stores) == 1


def _is(node: ast.AST, text: str, context: type[ast.expr_context]) -> bool:
    """Return whether *node* is the name or attribute *text*, loaded or stored."""
    return (
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, context)
        and ast.unparse(node) == text
    )


def holder_of(base: TracedValue) -> object:
    """Return what distinguishes *base* from others, `None` if that is unknown."""
    return base.kind if base.object is ABSENT else id(base.object)


def _value(origin: ValueOrigin | None) -> TracedValue | None:
    return None if origin is None else TracedValue(frozen=(origin,))
