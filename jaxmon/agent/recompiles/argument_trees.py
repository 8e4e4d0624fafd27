"""
Argument trees without references to user objects, and the names of arguments.

`inspect.signature` trusts ``__wrapped__`` and ``__signature__``, and so does JAX: for a
decorator whose arguments differ from those of the wrapped function, they give the wrong
names. The code object of the callable has the right ones, and reading it runs no user
code.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Sequence
from operator import is_
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.counted import uncounted
from jaxmon.agent.inspection import (
    ABSENT,
    field_of,
    found_in,
    is_subclass,
    name_of,
    partial_parts,
)
from jaxmon.agent.recompiles.value_inspection import static_keys
from jaxmon.agent.recompiles.values import Value, text_of, value_of


_DEEP = 32

_REST = inspect.CO_VARARGS


class Node(NamedTuple):
    """
    A node of an argument's tree; a leaf has the name ``*``. Classes of the same name
    differ in *identity*; *keys* is `None` if only the class can list them.
    """

    name: str
    identity: tuple[Any, ...]
    static: Value | None
    keys: tuple[str, ...] | None
    children: tuple[Any, ...]
    leaves: int


LEAF = Node("*", (), None, (), (), 1)
NONE = Node("None", (), None, (), (), 0)


class Argument(NamedTuple):
    """One argument of a call."""

    name: str
    by_name: bool
    node: Node


def names_in_call(
    fun: object, count: int, keywords: Collection[str] = ()
) -> Sequence[str]:
    """Return the names of *count* positional arguments of *fun*, as `names_of`."""
    if type(fun) is types.FunctionType:
        code = fun.__code__
        if count <= code.co_argcount and not code.co_flags & _REST:
            return code.co_varnames[:count]  # the common case
    return names_of(parameters_of(fun, count, keywords), count)


def names_of(parameters: Parameters, count: int) -> list[str]:
    """Return the names of the first *count* positional arguments: ``x``, ``y[1]``."""
    found = list(parameters.positional[:count])
    if len(found) == count:
        return found
    # Surplus arguments are numbered too.
    first = 0 if parameters.rest else len(found)
    numbers = range(first, first + count - len(found))
    return found + [f"{parameters.rest or 'args'}[{number}]" for number in numbers]


def arguments_of(
    tree: Any, names: Sequence[str], statics: list[tuple[str, Value]]
) -> tuple[Argument, ...]:
    """Return the arguments in *tree*; *statics* receives static parts of nodes."""
    positional, named = tree.children()
    found = []
    for name, child in zip(names, positional.children(), strict=True):
        found.append(Argument(name, False, node_of(child, statics)))  # noqa: FBT003 - of a tuple
    if named.num_nodes > 1:
        keywords = zip(named.node_data()[1], named.children(), strict=True)
        for name, child in keywords:
            found.append(Argument(name, True, node_of(child, statics)))  # noqa: FBT003 - likewise
    return tuple(found)


def node_of(tree: Any, statics: list[tuple[str, Value]]) -> Node:
    """Return JAX's *tree* as nodes; *statics* as in `arguments_of`."""
    data = tree.node_data()
    if data is None:
        return LEAF
    kind, static = data
    if kind is type(None):
        return NONE
    leaves = tree.num_leaves
    if tree.num_nodes == leaves + 1:  # children that are leaves, often thousands
        children = (LEAF,) * leaves
    else:
        children = tuple([node_of(child, statics) for child in tree.children()])
    if kind is tuple or kind is list:
        return Node(kind.__name__, (), None, _numbers(len(children)), children, leaves)
    if kind is dict:
        return Node("dict", (), None, _keys(static), children, leaves)
    name, identity = name_of(kind), id(kind)
    fields = found_in(kind, "_fields")
    if type(fields) is tuple and len(fields) == len(children):
        keys = tuple([f".{name}" for name in fields])
        return Node(name, (identity,), None, keys, children, leaves)
    child_keys: tuple[str, ...] | None = None
    if kind is OrderedDict or kind is defaultdict:
        # JAX stores their keys, in order, next to the children.
        static, keys = static if kind is defaultdict else (None, static)
        child_keys = tuple([_key(key) for key in keys])
    value = value_of(static, static_keys(kind, static))
    if value.hidden or not value.whole:
        statics.append((name, value))
    return Node(name, (identity, value.key), value, child_keys, children, leaves)


def needs_names(arguments: Sequence[Argument]) -> bool:
    """Return whether only JAX knows the names of the leaves of *arguments*."""
    return any([_unnamed(argument.node) for argument in arguments])


def _unnamed(node: Node) -> bool:
    return (node.keys is None and node.leaves > 0) or any(map(_unnamed, node.children))


def _key(key: object) -> str:
    return f"[{text_of(key)}]"


_STRINGS = {id(str)}
# By the number of keys, those of the latest dict with their texts: the next call has
# the same ones.
_KEYS: dict[int, tuple[list[Any], tuple[str, ...]]] = {}


def _keys(keys: list[Any]) -> tuple[str, ...]:
    """Return the texts of the *keys* of a dict; only strings are kept."""
    latest = _KEYS.get(len(keys))
    if latest is not None and all(map(is_, latest[0], keys)):
        return latest[1]
    if set(map(id, map(type, keys))) != _STRINGS:
        return tuple([f"[{k!r}]" if type(k) is str else _key(k) for k in keys])
    found = tuple([f"[{key!r}]" for key in keys])
    if len(_KEYS) >= 100:  # noqa: PLR2004 - few sizes are used again and again
        _KEYS.clear()
    _KEYS[len(keys)] = keys, found
    return found


@functools.lru_cache(maxsize=100)
def _numbers(count: int) -> tuple[str, ...]:
    return tuple(f"[{number}]" for number in range(count))


class Parameters(NamedTuple):
    """Parameters of a callable: the *required* positional ones, ``*rest``, *named*."""

    positional: tuple[str, ...] = ()
    required: int = 0
    rest: str | None = None
    named: bool = False
    keywords: tuple[str, ...] = ()


def parameters_of(
    fun: object, count: int = 0, keywords: Collection[str] = ()
) -> Parameters:
    """
    Return the parameters of *fun*; never raises, and runs no user code. One that takes
    ``*args`` only, as of `jax.grad`, passes them to what it wraps, if that takes them.
    """
    if type(fun) is types.FunctionType and not fun.__code__.co_flags & _REST:
        return _of_code(fun, 0)  # the common case
    found: Parameters | None = None
    given, by_name = 0, set(keywords)
    for _ in range(_DEEP):
        while True:
            if is_subclass(type(fun), functools.partial):
                fun, args, bound = partial_parts(fun)
                given += len(args)
                by_name.update(bound)
            elif type(fun) is types.MethodType:
                given += 1
                fun = fun.__func__
            else:
                break
        taken = _direct(fun, given)
        if found is None or _takes(taken, count, by_name):
            found = taken
        if taken.positional or not taken.rest:
            break
        fun = field_of(uncounted(fun), "__wrapped__")
        if fun is ABSENT:
            break
    return found or Parameters(rest="args")


def _direct(fun: Any, given: int) -> Parameters:
    """Return the parameters of *fun*, whatever it wraps, after *given* arguments."""
    if type(fun) is types.FunctionType:
        return _of_code(fun, given)
    if type(fun) is types.BuiltinFunctionType:
        return _of_builtin(fun, given)
    called = found_in(type(fun), "__call__")
    if type(called) is types.FunctionType:
        return _of_code(called, given + 1)
    return Parameters(rest="args", named=True)


def _of_code(fun: types.FunctionType, given: int) -> Parameters:
    code = fun.__code__
    names = code.co_varnames
    positional = names[: code.co_argcount]
    keywords = names[code.co_argcount :][: code.co_kwonlyargcount]
    beyond = code.co_argcount + code.co_kwonlyargcount
    required = len(positional) - len(fun.__defaults__ or ())
    return Parameters(
        positional[given:],
        max(required - given, 0),
        names[beyond] if code.co_flags & _REST else None,
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
        keywords,
    )


def _of_builtin(fun: types.BuiltinFunctionType, given: int) -> Parameters:
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError) as error:
        interrupts.pass_on(error)
        return Parameters(rest="args", named=True)
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind
        in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return Parameters(tuple(names[given:]), named=True)


def _takes(parameters: Parameters, count: int, keywords: Collection[str]) -> bool:
    """Return whether *parameters* accept *count* arguments and these *keywords*."""
    positional = parameters.positional
    if count > len(positional) and parameters.rest is None:
        return False
    if not set(positional[count : parameters.required]) <= set(keywords):
        return False
    by_name = {*positional[count:], *parameters.keywords}
    return parameters.named or set(keywords) <= by_name
