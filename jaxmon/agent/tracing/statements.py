"""Reads the statements of a traced function, in the order in which they run."""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from jaxmon.agent.inspection import ABSENT
from jaxmon.agent.tracing import objects
from jaxmon.agent.tracing.expressions import Arguments, Expressions, Given
from jaxmon.agent.tracing.objects import NOTHING, Names, Node, TracedValue


_UPDATES = frozenset(
    ("add", "apply", "divide", "max", "min", "mul", "multiply", "power", "set")
) | frozenset(("subtract",))
_REMOVING = frozenset(("clear", "pop", "popitem", "popleft", "remove", "discard"))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Statements(Expressions):
    """
    Reads one function, of whose parameters *names* has what is known; *entry* if JAX
    calls it, so that what it returns leaves the program.

    What may not run counts only where it cannot be meant: in a branch that a condition
    decides, nothing is reported but updates that are dropped.
    """

    def __init__(
        self,
        function: objects.Local,
        names: Names,
        run: Callable[[TracedValue, Arguments], TracedValue],
        *,
        counters: objects.Counters,
        entry: bool,
    ) -> None:
        node = function.node
        place = function.file, getattr(node, "name", "<lambda>")
        super().__init__(place, function.outer, run, counters)
        self.returned: TracedValue | None = None
        self._node = node
        self._entry = entry
        self._globals = _declared(node, ast.Global)
        self._shared = self._globals | _declared(node, ast.Nonlocal)
        # What runs of those whose condition is decided.
        self._chosen: dict[ast.AST, Sequence[ast.stmt]] = {}
        unknown = dict.fromkeys(_assigned(node) - self._shared, NOTHING)
        self.names = {**unknown, **names}

    def read(self) -> None:
        """Read the whole function, once."""
        if isinstance(self._node, ast.Lambda):
            self._result(self.of(self._node.body))
        else:
            self._body(self._node.body)
        for node in ast.walk(self._node):
            if isinstance(node, ast.Expr) and (text := _dropped(node.value)):
                self.note(objects.DROPPED, node.lineno, text)
            if removed := _removed(node):
                for text in [text for text in self.leaked if _base(text) == removed]:
                    del self.leaked[text]
        self.mistakes.update(dict.fromkeys(self.leaked.values()))

    @contextmanager
    def _doubt(self) -> Iterator[None]:
        before, self.certain = self.certain, False
        yield
        self.certain = before

    # --- statements --------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt]) -> None:
        """Read *body*; what follows a return in a branch may not run."""
        before = self.certain
        for statement in body:
            read = self._statements.get(type(statement))
            if read is not None:
                read(self, statement)
            may_leave = isinstance(statement, ast.If | ast.Try | ast.For)
            if may_leave and self._returns(statement):
                self.certain = False
        self.certain = before

    def _returns(self, node: ast.stmt) -> bool:
        """Return whether what may run of *node* has a return of its own function."""
        waiting: list[ast.AST] = [node]
        while waiting:
            child = waiting.pop()
            if isinstance(child, ast.Return):
                return True
            if not isinstance(child, _SCOPES):
                waiting += self._chosen.get(child, ast.iter_child_nodes(child))
        return False

    def _expression(self, node: ast.Expr) -> None:
        if self.drops(node.value) and not _dropped(node.value):
            text = ast.unparse(node.value.func)  # type: ignore[attr-defined]
            self.note(objects.DROPPED, node.lineno, text)
        self.of(node.value)

    def _assign(self, node: ast.Assign) -> None:
        value = self.of(node.value)
        for target in node.targets:
            self._bind(target, value)
            self._count(target, node.value, value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind(node.target, self.of(node.value))

    def _augmented(self, node: ast.AugAssign) -> None:
        load = copy.copy(node.target)
        load.ctx = ast.Load()
        both = ast.BinOp(load, node.op, node.value)
        value = self.of(both)
        self._bind(node.target, value)
        self._count(node.target, both, value)

    def _bind(self, target: ast.expr, value: TracedValue) -> None:
        """Store *value* in *target*."""
        if isinstance(target, ast.Name):
            lives = target.id in self._globals or self.outer(target.id).outer
            if target.id in self._shared and lives:
                self._store(target, value)
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            same = len(value.elements) == len(target.elts)
            for at, element in enumerate(target.elts):
                self._bind(element, value.elements[at] if same else value.content)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, value)
        elif isinstance(target, ast.Attribute | ast.Subscript) and self._lives(target):
            self._store(target, value)

    def _lives(self, target: ast.Attribute | ast.Subscript) -> bool:
        """Return whether what is stored in *target* outlives the call."""
        base = self.of(target.value)
        keeps = (
            objects.keeps_attributes(base.object)
            if isinstance(target, ast.Attribute)
            else type(base.object) in (dict, list)
        )
        return base.outer and (base.object is ABSENT or keeps)

    def _count(self, target: ast.expr, source: ast.expr, value: TracedValue) -> None:
        """Note that *target*, which outlives the call, counts: it gets *value*."""
        if not self._entry or not self.certain or value.traced:
            return
        if not objects.counts(self._node, target, source):
            return
        mistake = self.mistake(objects.ADVANCED, target.lineno, ast.unparse(target))
        if isinstance(target, ast.Name) and target.id in self._shared:
            counter = self.counters.add(self.place[0], target.id, mistake)
            self.names[target.id] = replace(value, frozen=(*value.frozen, counter))
        elif isinstance(target, ast.Attribute) and self._lives(target):
            holder = objects.holder_of(self.of(target.value))
            if holder is not None:
                self.counters.add(holder, target.attr, mistake)

    def _store(self, target: ast.expr, value: TracedValue) -> None:
        """Store *value* in *target*, which outlives the call, in place of another."""
        self.leaked.pop(ast.unparse(target), None)
        self.leaks(target, value)

    def _result(self, value: TracedValue) -> None:
        if self._entry:
            self.used(value)
        self.returned = (
            value if self.returned is None else objects.either(self.returned, value)
        )

    def _if(self, node: ast.If) -> None:
        test = self.of(node.test)
        self.used(test, only=True)
        if test.object is True or test.object is False:
            self._chosen[node] = node.body if test.object else node.orelse
            self._body(self._chosen[node])
            return
        self._branches(node.body, node.orelse)

    def _branches(self, *bodies: Sequence[ast.stmt]) -> None:
        """Read *bodies*, one of which runs."""
        before, after = self.names, None
        with self._doubt():
            for body in bodies:
                self.names = dict(before)
                self._body(body)
                if not _leaves(body):
                    names = self.names
                    after = names if after is None else objects.joined(after, names)
        self.names = before if after is None else after

    def _for(self, node: ast.For) -> None:
        self.of(node.iter)
        for name in ast.walk(node.target):
            if isinstance(name, ast.Name):
                self.names[name.id] = NOTHING
        self._body(node.body)
        self._body(node.orelse)

    def _while(self, node: ast.While) -> None:
        self.of(node.test)
        self._branches(node.body, ())

    def _with(self, node: ast.With) -> None:
        concrete = False
        for item in node.items:
            value = self.of(item.context_expr)
            if isinstance(item.optional_vars, ast.Name):
                self.names[item.optional_vars.id] = value
            concrete |= "compile_time_eval" in ast.unparse(item.context_expr)
        if concrete:  # nothing in it is traced
            self._branches(node.body, ())
        else:
            self._body(node.body)

    def _try(self, node: ast.Try) -> None:
        self._body(node.body)
        after = self.names
        for handler in node.handlers:
            self._branches(handler.body, ())
            self.names = objects.joined(after, self.names)
        self._body(node.orelse)
        self._body(node.finalbody)

    def _define(self, node: ast.FunctionDef) -> None:
        names = self.names
        inner = self.local(node)
        for decorator in reversed(node.decorator_list):
            call = ast.Call(decorator, [Given(inner)], [])
            inner = self.of(ast.copy_location(call, decorator))
        names[node.name] = inner

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            module = sys.modules.get(alias.name if alias.asname else _top(alias.name))
            name = alias.asname or _top(alias.name)
            self.names[name] = TracedValue(object=module) if module else NOTHING

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = None if node.level else sys.modules.get(node.module or "")
        for alias in node.names:
            found = (
                ABSENT if module is None else objects.attribute_of(module, alias.name)
            )
            value = NOTHING if found is ABSENT else TracedValue(object=found)
            self.names[alias.asname or alias.name] = value

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.leaked.pop(ast.unparse(target), None)

    _statements: ClassVar[dict[type, Callable[[Any, Any], object]]] = {
        ast.Expr: _expression,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
        ast.Return: lambda self, node: self._result(self.of(node.value)),
        ast.If: _if,
        ast.For: _for,
        ast.While: _while,
        ast.With: _with,
        ast.Try: _try,
        ast.FunctionDef: _define,
        ast.Import: _import,
        ast.ImportFrom: _import_from,
        ast.Delete: _delete,
        ast.Assert: lambda self, node: self.of(node.test),
    }


def _top(name: str) -> str:
    return name.partition(".")[0]


def _assigned(node: Node) -> set[str]:
    """Return the local names of *node*, except those of functions inside."""
    found = set[str]()
    waiting: list[ast.AST] = list(ast.iter_child_nodes(node))
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
            found.add(target.id)
        elif isinstance(target, ast.arg):
            found.add(target.arg)
        elif isinstance(target, ast.alias):
            found.add(target.asname or _top(target.name))
        if isinstance(target, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(target.name)
        elif not isinstance(target, ast.Lambda):
            waiting += ast.iter_child_nodes(target)
    return found


def _declared(node: Node, kind: type[ast.Global | ast.Nonlocal]) -> set[str]:
    """Return the names that *node* declares to belong to another scope."""
    return {
        name for node in ast.walk(node) if isinstance(node, kind) for name in node.names
    }


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Return whether what follows *body* does not run after it."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise)


def _dropped(node: ast.expr) -> str:
    """Return ``x.at[...].set`` if *node* is such a call, otherwise ``""``."""
    match node:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Subscript(value=ast.Attribute(value=array, attr="at")),
                attr=update,
            )
        ) if update in _UPDATES:
            return f"{ast.unparse(array)}.at[...].{update}"
    return ""


def _removed(node: ast.AST) -> str:
    """Return the container from which *node* removes something."""
    match node:
        case ast.Call(func=ast.Attribute(value=base, attr=name)) if name in _REMOVING:
            return ast.unparse(base)
    return ""


def _base(text: str) -> str:
    """Return the container of ``losses.append`` and of ``seen[0]``."""
    return text.rpartition("[" if text.endswith("]") else ".")[0]
