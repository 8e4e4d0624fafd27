"""
Recognises functions that were created anew.

JAX keys its caches by function object, so a lambda that is jitted in a loop is compiled
each time, although the program has only one such function. A model's method that is
jitted next to that of another model is not: these are two functions. Which of the two
it is shows in what happens to the earlier functions from the same line.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.context import Jit
from jaxmon.agent.counted import call_count, uncounted
from jaxmon.agent.functions import code_of, inner
from jaxmon.agent.inspection import (
    ABSENT,
    field_of,
    found_in,
    is_subclass,
    module_of,
    name_of,
    package_of,
    partial_parts,
)
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.jit import contents, exported, is_class, is_code
from jaxmon.agent.recompiles.signatures import Signature
from jaxmon.agent.recompiles.values import value_of


_MAX_LINES = 1000
_MAX_FUNCTIONS = 64
_MAX_INSPECTED = 64

_FUNCTION, _NOTHING = name_of(types.FunctionType), hash(())

IDLE = 16
"""
Functions from one line that exist but are not called again, such as a list of models;
with more, the line keeps what it should create once.
"""


class Content(NamedTuple):
    """
    What distinguishes functions from one line. Keeps no object alive.

    Attributes:
        code: a hash of its code, of that of functions in closures, partials and
            decorators, and of the options of JAX's transformations among them.
        values: a hash of the values there and of defaults; of arrays, their identity.
        owners: the objects of user classes there, such as the model of a bound method.
    """

    code: int
    values: int
    owners: tuple[weakref.ref[Any], ...]
    functions: tuple[weakref.ref[Any], ...]


class Created(NamedTuple):
    """
    A function not compiled before. Those of its line with its code have its *key*, and
    a larger *number* if they were created later; 0 if before we started.
    """

    key: tuple[Hashable, ...]
    fun: weakref.ref[Any] | None
    jit: Jit | None
    number: int
    content: Content

    def program(self, program: Hashable) -> Created:
        """Return one *program* of this function, under a transformation."""
        return self._replace(key=(*self.key, program))


@dataclass(slots=True, eq=False)
class Earlier:
    """A function that was compiled; only the latest of a line has its signature."""

    created: Created
    number: int
    signature: Signature | None

    @property
    def is_gone(self) -> bool:
        """Whether neither the function nor the jitted object exists any more."""
        fun, jit = self.created.fun, self.created.jit
        return (fun is None or fun() is None) and (jit is None or jit.counted() is None)

    @property
    def is_idle(self) -> bool:
        """Whether it was not called again after it was compiled."""
        jit = self.created.jit
        counted = None if jit is None else jit.counted()
        return counted is None or call_count(counted) <= 1


class Recreations:
    """The functions that were compiled, by the line that jits them."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, list[Earlier]] = {}

    def replaced_by(self, new: Created) -> Earlier | None:
        """
        Return the earlier function that *new* replaces, `None` if it is one more.

        It replaces an equal one, even if that exists. Otherwise it replaces one that is
        gone, or that is idle like many others, unless *new* existed before that was
        compiled, or that belongs to another object, such as a model, that exists.
        """
        earlier = self._lines.get(new.key, ())
        for former in earlier:
            if _are_equal(new.content, former.created.content):
                return former
        idle = []
        for former in earlier:
            if new.number > former.number and former.is_idle:
                if former.is_gone and not _are_different(
                    new.content, former.created.content
                ):
                    return former
                idle.append(former)
        return idle[0] if len(idle) >= IDLE else None

    def latest(self, key: Hashable) -> Signature | None:
        """Return the signature of the latest compile from the line with this *key*."""
        earlier = self._lines.get(key)
        return earlier[-1].signature if earlier else None

    def add(self, new: Created, number: int, signature: Signature | None) -> None:
        """Record that *new* was compiled, at *number*, in place of what it replaces."""
        if new.key not in self._lines and len(self._lines) >= _MAX_LINES:
            self._lines.pop(next(iter(self._lines)), None)
        earlier = self._lines.setdefault(new.key, [])
        if earlier and (replaced := self.replaced_by(new)) in earlier:
            earlier.remove(replaced)
        for former in earlier:  # large ones take as much as all the rest
            former.signature = None
        earlier.append(Earlier(new, number, signature))
        del earlier[:-_MAX_FUNCTIONS]


def _are_equal(new: Content, old: Content) -> bool:
    return new.values == old.values and _same(new.owners, old.owners)


def _same(new: Iterable[weakref.ref[Any]], old: Iterable[weakref.ref[Any]]) -> bool:
    return all(
        reference() is not None and reference() is other()
        for reference, other in zip(new, old, strict=False)
    )


def _are_different(new: Content, old: Content) -> bool:
    """Return whether an object or function of *old* exists that *new* does not have."""
    pairs = zip(
        (*new.owners, *new.functions), (*old.owners, *old.functions), strict=False
    )
    return any(
        other() is not None and reference() is not other() for reference, other in pairs
    )


def created(
    jitted: Jitted, jit: Jit | None, *, number: int, options: Hashable
) -> Created:
    """Return what is known of a function that is compiled for the first time."""
    line: Hashable = source_of(jitted)
    if jit is not None and jit.line is not None:
        line = jit.line.file, jit.line.line
    try:
        reference = weakref.ref(jitted.fun)
    except TypeError as error:
        interrupts.pass_on(error)
        reference = None
    content = content_of(jitted.fun)
    return Created((line, content.code, options), reference, jit, number, content)


def source_of(jitted: Jitted) -> str:
    """Return the source line of a function, in place of the line that jits it."""
    source = jitted.source
    if source is not None and " at " in source:
        return source
    fun = inner(jitted.fun)
    kind = type(fun)
    # For a callable object, the class determines the code.
    code = code_of(fun) or code_of(inner(found_in(kind, "__call__")))
    if code is None:
        return f"{module_of(kind)}.{name_of(kind)}"
    return f"{code.co_name} at {code.co_filename}:{code.co_firstlineno}"


def content_of(fun: object) -> Content:
    """Return what distinguishes *fun*, in tens of microseconds, without user code."""
    if type(fun) is types.FunctionType and not (
        fun.__closure__ or fun.__defaults__ or fun.__kwdefaults__
    ):  # as below, in a tenth of the time
        code = _FUNCTION, (fun.__qualname__, hash(fun.__code__))
        return Content(hash(code), _NOTHING, (), (weakref.ref(fun),))
    search = _Search()
    search.callable(fun)
    return Content(
        hash(tuple(search.code)),
        hash(tuple(search.values)),
        tuple(search.owners),
        tuple(search.functions),
    )


class _Search:
    """Walks through a callable and what it refers to."""

    def __init__(self) -> None:
        self.code: list[Hashable] = []
        self.values: list[Hashable] = []
        self.owners: list[weakref.ref[Any]] = []
        self.functions: list[weakref.ref[Any]] = []
        self._left = _MAX_INSPECTED
        self._options = False
        self._visited: set[int] = set()

    def callable(self, fun: Any) -> None:
        """Add the callable *fun*."""
        kind = type(fun)
        self.code.append(name_of(kind))
        self._left -= 1
        if self._left < 0 or id(fun) in self._visited:
            return
        self._visited.add(id(fun))
        if kind is types.FunctionType:
            self._function(fun)
        elif kind is types.MethodType:
            self.callable(fun.__func__)
            if (program := exported(fun)) is not None:
                self.owners.append(weakref.ref(program))
            else:
                self._value(fun.__self__)
        elif is_subclass(kind, functools.partial):
            function, args, keywords = partial_parts(fun)
            self.callable(function)
            self.code.append((len(args), *keywords))
            self._all((*args, *dict.values(keywords)))
        else:
            self._object(fun)

    def _function(self, fun: types.FunctionType) -> None:
        self.code.append((fun.__qualname__, hash(fun.__code__)))
        self.functions.append(weakref.ref(fun))
        values = *contents(fun), *(fun.__defaults__ or ())
        # What a transformation of JAX closes over are the options given to it.
        before, self._options = self._options, is_code(fun)
        self._all((*values, *dict.values(fun.__kwdefaults__ or {})))
        self._options = before

    def _all(self, values: Iterable[Any]) -> None:
        for value in values:
            if self._left > 0:
                self._value(value)

    def _value(self, value: Any) -> None:
        """Add *value*, found in a closure, a default or a partial."""
        kind = type(value)
        if id(kind) in _CALLABLES or is_subclass(kind, functools.partial):
            self.callable(value)
        elif not package_of(kind) or is_class(kind):  # one of JAX may be decorated
            self._object(value)
        else:
            self._left -= 1
            found = value_of(value)
            is_option = self._options and found.whole and not found.by_identity
            (self.code if is_option else self.values).append(found.key)

    def _object(self, value: Any) -> None:
        """Add an object: a jitted or decorated function, or one of a user's class."""
        wrapped = field_of(uncounted(value), "__wrapped__")
        if wrapped is not ABSENT:
            self.callable(wrapped)
            return
        self._left -= 1
        kind = type(value)
        called = code_of(inner(found_in(kind, "__call__")))
        self.code.append((module_of(kind), name_of(kind), hash(called)))
        if package_of(kind) or is_subclass(kind, type):
            self.values.append(value_of(value).key)
            return
        try:
            self.owners.append(weakref.ref(value))
        except TypeError as error:  # a named tuple, for example
            interrupts.pass_on(error)
            self.values.append(value_of(value).key)


_CALLABLES = frozenset(map(id, (types.FunctionType, types.MethodType)))
