"""What is certain about the expressions of a traced function."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

from jaxmon.agent.inspection import ABSENT
from jaxmon.agent.tracing import objects
from jaxmon.agent.tracing.objects import NOTHING, TRACED, TracedValue, together


_IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
# What a message contains that is meant for the moment of tracing.
_ABOUT_TRACING = ("trac", "compil", "jit")
_COMBINING = frozenset(("abs", "divmod", "max", "min", "pow", "round", "sum"))
_HOLDING = frozenset(("dict", "list", "reversed", "tuple"))
_SHOWING = frozenset(("ascii", "format", "repr", "str"))
_NUMBERS = frozenset(("bool", "float", "int"))
_BUILTINS = {id(value): name for name, value in vars(builtins).items()}

Arguments: TypeAlias = "tuple[list[TracedValue], dict[str, TracedValue]]"


class Given(ast.expr):
    """An expression whose value is known."""

    def __init__(self, value: TracedValue) -> None:
        super().__init__()
        self.value = value


class Expressions:
    """
    Evaluates expressions, as far as something is certain. Runs no code of the program.

    Args:
        place: file and name of the function.
        outer: what a name refers to that is not local; *names* are known.
        run: runs the functions in a value with these arguments.
        counters: those that the jitted function changes.
    """

    def __init__(
        self,
        place: tuple[str, str],
        outer: Callable[[str], TracedValue],
        run: Callable[[TracedValue, Arguments], TracedValue],
        counters: objects.Counters,
    ) -> None:
        self.place, self.outer, self.run, self.counters = place, outer, run, counters
        self.names: objects.Names = {}
        self.mistakes: dict[objects.Mistake, None] = {}
        self.certain = True
        self.leaked: dict[str, objects.Mistake] = {}

    def mistake(self, kind: str, line: int, text: str) -> objects.Mistake:
        """Return a mistake in this function."""
        file, function = self.place
        return objects.Mistake(kind, file, line, text, function)

    def note(self, kind: str, line: int, text: str) -> None:
        """Record a mistake; but for dropped updates, if this runs for certain."""
        if self.certain and kind == objects.LEAKED:
            self.leaked[text] = self.mistake(kind, line, text)
        elif self.certain or kind == objects.DROPPED:
            self.mistakes[self.mistake(kind, line, text)] = None

    def note_frozen(self, origin: objects.ValueOrigin) -> None:
        """Record that the program depends on a value of the host, likewise."""
        if self.certain:
            self.mistakes[origin.mistake] = None

    def of(self, node: ast.expr | None) -> TracedValue:
        """Return what is certain about the value of *node*."""
        evaluate = self._kinds.get(type(node))
        return NOTHING if evaluate is None else evaluate(self, node)

    def local(self, node: objects.Node) -> TracedValue:
        """Return the function that *node* defines."""
        names, outer = self.names, self.outer

        def enclosing(name: str) -> TracedValue:
            found = names.get(name)
            return outer(name) if found is None else found

        return TracedValue(functions=(objects.Local(node, enclosing, self.place[0]),))

    def used(self, value: TracedValue, *, only: bool = False) -> None:
        """Record that the program depends on *value*, or *only* on random numbers."""
        for origin in value.frozen:
            if origin.random or not only:
                self.note_frozen(origin)

    def drops(self, node: ast.expr) -> bool:
        """Return whether *node* is a call that only returns a value, traced or not."""
        if not isinstance(node, ast.Call):
            return False
        if not isinstance(node.func, ast.Attribute):
            return objects.only_returns(self.of(node.func).object)
        base, name = self.of(node.func.value), node.func.attr
        named = [keyword.arg for keyword in node.keywords if keyword.arg is not None]
        if objects.MAKING_METHODS.get(name) in named:
            return not base.outer
        if base.content.traced and base.traced:
            return name in objects.ARRAY_METHODS
        return objects.only_returns(self._member(base, name).object)

    def leaks(self, target: ast.expr, value: TracedValue) -> None:
        """Record that a traced *value* was stored in *target*, which outlives it."""
        if value.traced:
            self.note(objects.LEAKED, target.lineno, ast.unparse(target))

    # --- names -------------------------------------------------------------------

    def _name(self, node: ast.Name) -> TracedValue:
        found = self.names.get(node.id)
        if found is not None:
            return found
        counter = self.counters.name(self.place[0], node.id)
        return self.outer(node.id) if counter is None else counter

    def _member(self, base: TracedValue, name: str) -> TracedValue:
        """Return the attribute *name* of *base*."""
        if (counter := self.counters.attribute(base, name)) is not None:
            return counter
        if base.object is not ABSENT:
            found = objects.attribute_of(base.object, name)
            return TracedValue(object=found, outer=True)
        if base.kind is not None and objects.method_of(base.kind, name) is not None:
            return TracedValue(object=objects.method_of(base.kind, name), outer=True)
        if base.outer:
            return TracedValue(outer=True)
        if base.content.traced and name in objects.ARRAY_ATTRIBUTES:
            return TRACED
        return TracedValue(frozen=base.frozen)

    def _subscript(self, node: ast.Subscript) -> TracedValue:
        base, index = self.of(node.value), self.of(node.slice)
        if base.traced:
            self.used(index)
        match node.slice:
            case ast.Constant(value=int(at)) if 0 <= at < len(base.elements):
                return base.elements[at]
        if base.content.traced:
            return TRACED
        return TracedValue(
            frozen=objects.origins((base, index)), functions=base.functions
        )

    def _sequence(self, node: ast.Tuple | ast.List) -> TracedValue:
        elements = tuple(map(self.of, node.elts))
        starred = any(isinstance(element, ast.Starred) for element in node.elts)
        return replace(together(elements), elements=() if starred else elements)

    # --- operators ---------------------------------------------------------------

    def _combined(self, *operands: ast.expr) -> TracedValue:
        """Return the result of an operator between *operands*."""
        values = [self.of(operand) for operand in operands]
        if any(value.content.traced for value in values):
            for value in values:
                self.used(value)
            return TRACED
        if any(value.traced for value in values):  # lists, one after the other
            return together(values)
        return TracedValue(
            shown=any(value.shown for value in values), frozen=objects.origins(values)
        )

    def _compare(self, node: ast.Compare) -> TracedValue:
        operands = [node.left, *node.comparators]
        if any(isinstance(operator, _IDENTITY) for operator in node.ops):
            return self._depends(operands)
        return self._combined(*operands)

    def _unary(self, node: ast.UnaryOp) -> TracedValue:
        value = self.of(node.operand).object
        if isinstance(node.op, ast.Not) and type(value) is bool:
            return TracedValue(object=not value)
        return self._combined(node.operand)

    def _depends(self, operands: Sequence[ast.expr]) -> TracedValue:
        return TracedValue(frozen=objects.origins(map(self.of, operands)))

    def _conditional(self, node: ast.IfExp) -> TracedValue:
        self.used(self.of(node.test), only=True)
        return objects.either(self.of(node.body), self.of(node.orelse))

    def _named(self, node: ast.NamedExpr) -> TracedValue:
        value = self.of(node.value)
        self.names[node.target.id] = value
        return value

    def _text(self, node: ast.JoinedStr) -> TracedValue:
        values = together(map(self.of, node.values))
        return TracedValue(shown=values.traced or values.shown, frozen=values.frozen)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp
    ) -> TracedValue:
        before = self.names
        self.names = dict(before)
        for generator in node.generators:
            self.of(generator.iter)
            for name in ast.walk(generator.target):
                if isinstance(name, ast.Name):
                    self.names[name.id] = NOTHING
        value = together([self.of(node.elt)])
        self.names = before
        return value

    # --- calls -------------------------------------------------------------------

    def _call(self, node: ast.Call) -> TracedValue:
        # Evaluated once: in a chain of calls, each is the base of the next.
        base, name = NOTHING, ""
        if isinstance(node.func, ast.Attribute):
            base, name = self.of(node.func.value), node.func.attr
            function = self._member(base, name)
        else:
            function = self.of(node.func)
        given = [self.of(argument) for argument in node.args]
        named = {of.arg or "**": self.of(of.value) for of in node.keywords}
        values = [*given, *named.values()]
        if name and not function.functions and self._stores(base, name):
            self.leaks(node.func, together(values))
            return NOTHING
        if function.functions:
            inside = self.run(function, (given, named))
            traced = any(value.traced for value in values)
            return TRACED if function.yields and traced else inside
        if base.traced or base.frozen or base.is_file:
            return self._method(node, base, name, values)
        if base.object is not ABSENT:
            found = self._member_call(node, base.object, name, values)
            if found is not None:
                return found
            if objects.is_bound(base.object, name, function.object):
                given = [base, *given]
        elif base.kind is not None and function.object is not ABSENT:
            given = [base, *given]
        if function.object is ABSENT:
            return NOTHING
        return self._object_call(node, function.object, given, named)

    def _stores(self, base: TracedValue, name: str) -> bool:
        """Return whether the method *name* stores its arguments for good."""
        if base.object is not ABSENT:
            return name in objects.CONTAINERS.get(type(base.object), ())
        return base.outer and name in objects.STORES

    def _method(
        self, node: ast.Call, base: TracedValue, name: str, values: list[TracedValue]
    ) -> TracedValue:
        """Return the result of a method of a value computed in the function."""
        if base.traced:
            if not base.content.traced or name not in objects.ARRAY_METHODS:
                return NOTHING
            for value in values:
                self.used(value)
            return TRACED
        if base.is_file and name == "write":
            self._prints(node, values)
        return TracedValue(frozen=objects.origins([base, *values]))

    def _member_call(
        self, node: ast.Call, holder: Any, name: str, values: list[TracedValue]
    ) -> TracedValue | None:
        """Return what the method *name* of *holder* returns, if its name says so."""
        if name in objects.LEVELS and objects.is_logger(holder):
            self._prints(node, values)
            return NOTHING
        draw = objects.draw_by(holder, name)
        return None if draw is None else self._drawn(node, draw)

    def _drawn(self, node: ast.Call, draw: objects.Draw) -> TracedValue:
        mistake = self.mistake(objects.FROZEN, node.lineno, draw.text)
        return TracedValue(frozen=(objects.ValueOrigin(mistake, draw.random),))

    def _object_call(
        self,
        node: ast.Call,
        target: Any,
        given: list[TracedValue],
        named: dict[str, TracedValue],
    ) -> TracedValue:
        """Return the result of a call of the object *target*."""
        values = [*given, *named.values()]
        if (draw := objects.draw_of(target, seeded=bool(values))) is not None:
            return self._drawn(node, draw)
        if (short := _BUILTINS.get(id(target))) is not None:
            return self._builtin(node, short, values)
        if jax := objects.name_in_jax(target):
            return self._jax(jax, given, values)
        if objects.is_numpy(target):
            return TracedValue(frozen=objects.origins(values))
        if (found := objects.unwrapped(target)) is not None:
            return self.run(TracedValue(functions=(found,)), (given, named))
        return NOTHING

    def _builtin(
        self, node: ast.Call, name: str, values: list[TracedValue]
    ) -> TracedValue:
        whole = together(values)
        if name == "print":
            self._prints(node, values)
        elif name == "open":
            return TracedValue(is_file=True)
        elif name in _SHOWING:
            return TracedValue(shown=whole.traced or whole.shown, frozen=whole.frozen)
        elif name in _COMBINING:
            return TracedValue(traced=whole.traced, frozen=whole.frozen)
        elif name in _HOLDING:
            return whole
        elif name in _NUMBERS:
            return TracedValue(frozen=whole.frozen)
        return NOTHING

    def _jax(
        self, name: str, given: list[TracedValue], values: list[TracedValue]
    ) -> TracedValue:
        """Return the result of a call of the function of JAX called *name*."""
        short = name.rpartition(".")[2]
        if any(callback in name for callback in objects.CALLBACKS):
            return NOTHING
        functions = tuple(f for value in given for f in value.functions)
        unwrapped = tuple(
            found
            for value in given
            if value.object is not ABSENT
            and (found := objects.unwrapped(value.object)) is not None
        )
        inside = TracedValue(functions=functions + unwrapped)
        if short in objects.WRAPPERS:
            return TracedValue(functions=inside.functions, yields=True)
        traced = any(value.traced for value in values)
        if name.startswith("jax.tree"):
            self.run(inside, (given[1:], {}))
            same = traced and short in ("map", "tree_map", "leaves")
            return TracedValue(traced=same, mixed=any(value.mixed for value in values))
        if short in objects.CALLERS:
            self.run(inside, ([], {"*": TRACED}))
            return TRACED
        if objects.returns_arrays(name):
            for value in values:
                self.used(value)
            return TracedValue(traced=traced)
        return NOTHING

    def _prints(self, node: ast.Call, values: list[TracedValue]) -> None:
        """Record a message that is written while tracing, unless it is about that."""
        text = ast.unparse(node).lower()
        if any(word in text for word in _ABOUT_TRACING):
            return
        whole = together(values)
        if whole.traced or whole.shown:
            self.note(objects.PRINTED, node.lineno, ast.unparse(node.func))
        for origin in whole.frozen:
            self.note_frozen(origin)

    _kinds: ClassVar[dict[type, Callable[[Any, Any], TracedValue]]] = {
        Given: lambda _, node: node.value,
        ast.Name: _name,
        ast.Attribute: lambda self, node: self._member(self.of(node.value), node.attr),
        ast.Subscript: _subscript,
        ast.Call: _call,
        ast.BinOp: lambda self, node: self._combined(node.left, node.right),
        ast.UnaryOp: _unary,
        ast.Compare: _compare,
        ast.BoolOp: lambda self, node: self._depends(node.values),
        ast.IfExp: _conditional,
        ast.NamedExpr: _named,
        ast.JoinedStr: _text,
        ast.FormattedValue: lambda self, node: self.of(node.value),
        ast.Lambda: local,
        ast.Dict: lambda self, node: together(map(self.of, node.values)),
        ast.Starred: lambda self, node: self.of(node.value),
        ast.ListComp: _comprehension,
        ast.SetComp: _comprehension,
        ast.GeneratorExp: _comprehension,
        ast.Tuple: _sequence,
        ast.List: _sequence,
        ast.Set: lambda self, node: together(map(self.of, node.elts)),
    }
