"""Argument trees without references to user objects."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import Any

from jaxmon.agent.inspection import found_in, name_of
from jaxmon.agent.recompiles.parameters import Parameters
from jaxmon.agent.recompiles.signatures import LEAF, NONE, Argument, Node
from jaxmon.agent.recompiles.values import Value, text_of, value_of


def names_of(parameters: Parameters, count: int) -> list[str]:
    """
    Return the names of the first *count* positional arguments: ``x``, ``args[1]``.
    """
    found = list(parameters.positional[:count])
    # Surplus arguments are numbered too.
    first = 0 if parameters.rest else len(found)
    rest, left = parameters.rest or "args", count - len(found)
    return found + [f"{rest}[{first + number}]" for number in range(left)]


def arguments_of(
    tree: Any, names: Sequence[str], statics: list[tuple[str, Value]]
) -> tuple[Argument, ...]:
    """
    Return the arguments in *tree*, positional and keyword.

    Args:
        tree: JAX's tree of a tuple and a dict.
        names: names of the positional arguments.
        statics: receives the static parts of nodes, with their class.
    """
    positional, named = tree.children()
    found = [
        Argument(name, by_name=False, node=node_of(child, statics))
        for name, child in zip(names, positional.children(), strict=True)
    ]
    data = named.node_data()
    for name, child in zip(data[1] if data else (), named.children(), strict=True):
        found.append(Argument(name, by_name=True, node=node_of(child, statics)))
    return tuple(found)


def node_of(tree: Any, statics: list[tuple[str, Value]]) -> Node:
    """
    Return JAX's tree as nodes.

    Args:
        tree: any subtree.
        statics: receives the static parts of nodes, with their class.
    """
    data = tree.node_data()
    if data is None:
        return LEAF
    kind, static = data
    if kind is type(None):
        return NONE
    children = tuple(
        [
            LEAF if child.node_data() is None else node_of(child, statics)
            for child in tree.children()
        ]
    )
    leaves = tree.num_leaves
    if kind is tuple or kind is list:
        return Node(kind.__name__, (), "", _numbers(len(children)), children, leaves)
    if kind is dict:
        keys = tuple(
            [f"[{key!r}]" if type(key) is str else _key(key) for key in static]
        )
        return Node("dict", (), "", keys, children, leaves)
    name, identity = name_of(kind), id(kind)
    fields = found_in(kind, "_fields")
    if type(fields) is tuple and len(fields) == len(children):
        keys = tuple([f".{name}" for name in fields])
        return Node(name, (identity,), "", keys, children, leaves)
    known: tuple[str, ...] | None = None
    if kind is OrderedDict or kind is defaultdict:
        # JAX stores their keys, in order, next to the children.
        static, keys = static if kind is defaultdict else (None, static)
        known = tuple([_key(key) for key in keys])
    value = value_of(static)
    if value.hidden or not value.whole:
        statics.append((name, value))
    return Node(name, (identity, value.key), value.text, known, children, leaves)


def needs_names(arguments: Sequence[Argument]) -> bool:
    """Return whether only JAX knows the names of the leaves of *arguments*."""
    return any(_unnamed(argument.node) for argument in arguments)


def _unnamed(node: Node) -> bool:
    return (node.keys is None and node.leaves > 0) or any(map(_unnamed, node.children))


def _key(key: object) -> str:
    return f"[{text_of(key)}]"


_NUMBERS: dict[int, tuple[str, ...]] = {}


def _numbers(count: int) -> tuple[str, ...]:
    found = _NUMBERS.get(count)
    if found is None:
        found = tuple(f"[{number}]" for number in range(count))
        if len(_NUMBERS) < 100:  # noqa: PLR2004 - few lengths are used again and again
            _NUMBERS[count] = found
    return found
