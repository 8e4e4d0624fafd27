"""
What of the program holds much memory: lists, dicts and the like, by their names.

The variables of the program's modules, and what its threads were started with, are
followed through its objects, and a few items of each collection stand for all. No code
of the program runs. Local variables of functions are not seen: to read them would keep
alive what they hold.
"""

from __future__ import annotations

import functools
import gc
import itertools
import re
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent import inspection
from jaxmon.agent.jaxlink.arrays import array_bytes
from jaxmon.agent.jaxlink.jit import closure
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder, lines_with
from jaxmon.facts.memory import MemoryHolder


LEAST_ITEMS = 16
# A queue grew if it has so many times what was in it when items were first taken.
_BACKLOG = 1.25
_MOST_LINES = 3

_MOST_OBJECTS, _DEEPEST, _SAMPLED, _INSIDE = 20_000, 6, 8, 64
_MAPPINGS = (dict, OrderedDict, defaultdict)
_COLLECTIONS = (list, tuple, set, deque, *_MAPPINGS)
_ADDS = r"\.(?:append|appendleft|add|extend|insert|put|put_nowait|setdefault|update)\("
# Of Python's module `queue`; what is in one is an attribute.
_QUEUES = ("Queue", "LifoQueue", "PriorityQueue")
_CACHE: type = functools._lru_cache_wrapper  # noqa: SLF001 - it has no public name
_KINDS = frozenset(map(id, {*_COLLECTIONS} - {tuple}))


class _Variable(NamedTuple):
    """
    What a name of the program refers to, named as `MemoryHolder` has it.

    Attributes:
        last: a pattern of how the source refers to it, in *file*.
        kind: of what the program sees, empty if that is *value*.
        taken: whether items are taken from a queue.
    """

    name: str
    last: str
    file: str
    value: Any
    depth: int
    kind: str = ""
    taken: bool = False


class HolderFinder:
    """Finds collections that grow from now on. Takes some milliseconds each time."""

    def __init__(self, finder: SourceLineFinder) -> None:
        self._finder = finder
        # How many items there were at first: by name, and in queues, by id, from which
        # items were taken.
        self._before: dict[str, int] = {}
        self._taken: dict[int, int] = {}
        for holder, _ in self._found():
            before = self._before.get(holder.name, 0)
            self._before[holder.name] = max(before, holder.items)

    def largest(self, least: float) -> MemoryHolder:
        """Return what holds most of what grows, if *least* bytes, else an empty one."""
        found = [
            (holder, variable)
            for holder, variable in self._found()
            if holder.bytes >= least and holder.items > self._before.get(holder.name, 0)
        ]
        if not found:
            return MemoryHolder()
        holder, variable = max(found, key=lambda pair: pair[0].bytes)
        lines = [*dict.fromkeys(lines_with(variable.last, self._finder, variable.file))]
        return holder.replace(adds=tuple(lines[:_MOST_LINES]))

    def _found(self) -> Iterator[tuple[MemoryHolder, _Variable]]:
        for variable in self._variables():
            if _may_grow(variable.value):
                yield self._holder(variable), variable

    def _holder(self, variable: _Variable) -> MemoryHolder:
        value, number = variable.value, len(variable.value)
        kind = variable.kind or inspection.name_of(type(value))
        before = self._taken.setdefault(id(value), number) if variable.taken else number
        backlog = number >= _BACKLOG * before
        return MemoryHolder(variable.name, kind, number, _size(value), backlog=backlog)

    def _variables(self) -> Iterator[_Variable]:
        waiting: deque[_Variable] = deque()
        for name, module in sys.modules.copy().items():
            file = vars(module).get("__file__") if type(module) is _MODULE else None
            if isinstance(file, str) and self._finder.is_user(file):
                held = vars(module).copy().items()
                prefix = "" if name == "__main__" else f"{name}."
                waiting += [
                    _Variable(prefix + key, _adds(r"\b", key), file, value, 0)
                    for key, value in held
                    if not key.startswith("__")
                ]
        waiting += self._of_threads()
        seen = set[int]()
        while waiting and len(seen) < _MOST_OBJECTS:
            variable = waiting.popleft()
            if id(variable.value) in seen:
                continue
            seen.add(id(variable.value))
            yield variable
            if variable.depth < _DEEPEST:
                waiting += self._inside(variable)

    def _of_threads(self) -> Iterator[_Variable]:
        # Without its lock, which the program may hold.
        active = threading._active.copy()  # type: ignore[attr-defined] # noqa: SLF001
        for thread in active.values():
            fields = inspection.fields_of(thread)
            target, owner = fields.get("_target"), None
            given: Any = fields.get("_args")
            # Not what only its thread may go through, such as a generator.
            given = tuple(given) if _is_in(type(given), (tuple, list)) else ()
            if type(target) is types.MethodType:
                owner, target = target.__self__, target.__func__
                given = (owner, *given)
            for value in (thread, owner):
                if self._is_users(type(value)):
                    yield _Variable(inspection.name_of(type(value)), "", "", value, 0)
            if type(target) is not types.FunctionType:
                continue
            code = target.__code__
            inside: dict[str, Any] = {}
            with interrupts.expected(AttributeError, ValueError):  # one is not set yet
                inside = closure(target)
            named = zip(code.co_varnames, given, strict=False)
            for name, value in [*named, *inside.items()]:
                if self._finder.is_user(code.co_filename):
                    known_as, last = f"{code.co_name}.{name}", _adds(r"\b", name)
                    yield _Variable(known_as, last, code.co_filename, value, 0)

    def _inside(self, variable: _Variable) -> Iterator[_Variable]:
        value, depth = variable.value, variable.depth + 1
        kind = type(value)
        if _is_in(kind, _COLLECTIONS):
            for item in _items(value, _SAMPLED):
                if _is_in(type(item), _COLLECTIONS) or self._is_users(type(item)):
                    yield variable._replace(value=item, depth=depth)
        elif inspection.module_of(kind) == "queue" or kind is _CACHE:
            for items, of, taken in _unbounded(value):
                yield variable._replace(value=items, depth=depth, kind=of, taken=taken)
        elif self._is_users(kind) or (kind is type and self._is_users(value)):
            yield from self._fields(value, depth)

    def _fields(self, value: Any, depth: int) -> Iterator[_Variable]:
        kind = value if type(value) is type else type(value)
        file = vars(sys.modules[inspection.module_of(kind)]).get("__file__", "")
        fields = vars(kind).copy() if kind is value else inspection.fields_of(value)
        for name, field in fields.items():
            yield _Variable(
                f"{inspection.name_of(kind)}.{name}",
                _adds(r"\.", name),
                file,
                field,
                depth,
            )

    def _is_users(self, kind: type) -> bool:
        module = sys.modules.get(inspection.module_of(kind))
        file = vars(module).get("__file__") if type(module) is _MODULE else None
        return isinstance(file, str) and self._finder.is_user(file)


_MODULE = types.ModuleType


def _is_in(kind: type, kinds: tuple[type, ...]) -> bool:
    # `in` would call the metaclass's ``__eq__``.
    return any([kind is other for other in kinds])


def _unbounded(value: Any) -> Iterator[tuple[Any, str, bool]]:
    """Yield what is in a queue or cache without a maximum, and whether it is taken."""
    if type(value) is _CACHE:
        if _CACHE.cache_info(value).maxsize is None:
            for items in gc.get_referents(value):
                if type(items) is dict and items is not vars(value):
                    yield items, "lru_cache", False
    elif inspection.name_of(type(value)) in _QUEUES:
        fields = inspection.fields_of(value)
        items, left = fields.get("queue", ()), fields.get("unfinished_tasks", 0)
        if fields.get("maxsize") == 0 and _may_grow(items):
            # It counts what was put, less what was taken and is done.
            yield items, inspection.name_of(type(value)), left > len(items)


def _adds(before: str, name: str) -> str:
    """Return a pattern of a line that adds to *name*, or defines a function of it."""
    name = re.escape(name)
    return rf"{before}{name}(?:{_ADDS}|\[.*\]\s*=(?!=)|\s*\+=)|\bdef {name}\("


def _may_grow(value: Any) -> bool:
    if id(type(value)) not in _KINDS or len(value) < LEAST_ITEMS:
        return False
    return type(value) is not deque or value.maxlen is None


def _size(value: Any) -> int:
    items, seen = list(_items(value, _SAMPLED)), set[int]()
    return sum(_bytes(item, seen) for item in items) * len(value) // max(len(items), 1)


def _items(value: Any, most: int) -> Iterator[Any]:
    """Yield some items of a collection, of dicts the values; the program may add."""
    try:
        if _is_in(type(value), _MAPPINGS):
            yield from list(itertools.islice(value.values(), most))
        elif _is_in(type(value), (list, tuple)):
            yield from value[:: max(len(value) // most, 1)][:most]
        else:
            yield from list(itertools.islice(value, most))
    except RuntimeError as error:  # changed meanwhile
        interrupts.pass_on(error)


def _bytes(value: Any, seen: set[int], depth: int = 0) -> int:
    """Return the bytes of arrays and texts in *value*, without those *seen* already."""
    kind = type(value)
    if depth > _DEEPEST or id(value) in seen or len(seen) > _MOST_OBJECTS:
        return 0
    seen.add(id(value))
    if _is_in(kind, (bytes, str)):
        return len(value)
    if inspection.is_subclass(kind, tuple):
        return sum(_bytes(item, seen, depth + 1) for item in tuple.__iter__(value))
    if inspection.package_of(kind) and not _is_in(kind, _COLLECTIONS):
        return array_bytes(value)
    if not _is_in(kind, _COLLECTIONS):
        fields = inspection.fields_of(value).values()
        return sum(_bytes(field, seen, depth + 1) for field in fields)
    # No estimate of an estimate: of a large collection inside, this is less.
    return sum(_bytes(item, seen, depth + 1) for item in _items(value, _INSIDE))
