"""
Counters of the program that a jitted function changes.

It does so while it is traced, and on no other call: what follows from the counter is a
constant of the program.
"""

from __future__ import annotations

import ast

from jaxmon.agent.inspection import ABSENT
from jaxmon.agent.tracing.sources import Node
from jaxmon.agent.tracing.values import Origin, Value


class Counters:
    """The counters that one jitted function changes."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, str], Origin] = {}

    def add(self, target: ast.expr, base: Value | None, place: tuple[str, str]) -> None:
        """
        Note that *target* changes.

        Args:
            target: a name of the module or of an enclosing function, or an attribute.
            base: what has the attribute.
            place: file and name of the function.
        """
        file, function = place
        text = ast.unparse(target)
        origin = Origin(
            target.lineno,
            text,
            random=False,
            file=file,
            function=function,
            advanced=True,
        )
        if isinstance(target, ast.Name):
            self._known[file, target.id] = origin
        elif isinstance(target, ast.Attribute) and base is not None:
            holder = _holder(base)
            if holder is not None:
                self._known[holder, target.attr] = origin

    def name(self, file: str, name: str) -> Value | None:
        """Return the counter that *name* is in *file*, `None` if it is none."""
        return _value(self._known.get((file, name)))

    def attribute(self, base: Value, name: str) -> Value | None:
        """Return the counter *name* of *base*, `None` if it is none."""
        return _value(self._known.get((_holder(base), name)))


def counts(node: Node, target: ast.expr, value: ast.expr) -> bool:
    """
    Return whether an assignment of *value* to *target*, the only one in *node*, makes a
    new value from the old one. What is assigned twice may be restored.
    """
    text = ast.unparse(target)
    again = [one for one in ast.walk(value) if _is(one, text, ast.Load)]
    stores = [one for one in ast.walk(node) if _is(one, text, ast.Store)]
    return bool(again) and len(stores) == 1


def _is(node: ast.AST, text: str, context: type[ast.expr_context]) -> bool:
    """Return whether *node* is the name or attribute *text*, loaded or stored."""
    return (
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, context)
        and ast.unparse(node) == text
    )


def _holder(base: Value) -> object:
    """Return what tells *base* from other objects, `None` if that is unknown."""
    return base.kind if base.object is ABSENT else id(base.object)


def _value(origin: Origin | None) -> Value | None:
    return None if origin is None else Value(frozen=(origin,))
