"""
Compile signatures: abstract arguments, static values, options, context.

A `Signature` holds types, hashes and texts, but no function, argument or value of the
user. It is built from data that JAX has already computed for a call, without running
user code, not even that of static values: about 0.6 µs per leaf, and a few
microseconds, two milliseconds at most, per static value.
"""

from __future__ import annotations

import enum
import re
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.context import Options
from jaxmon.agent.inspection import field_of, is_subclass, name_of
from jaxmon.agent.jaxlink import arrays as leaf_types
from jaxmon.agent.jaxlink.arguments import JitCall
from jaxmon.agent.jaxlink.arrays import (
    NO_MESH,
    Leaf,
    LeafTypes,
    device_text,
    kind_of,
    mesh_text,
    order_of,
)
from jaxmon.agent.jaxlink.configuration import inside
from jaxmon.agent.jaxlink.jit import JitOptions, Option, is_class
from jaxmon.agent.recompiles.argument_trees import (
    Argument,
    arguments_of,
    names_in_call,
    names_of,
    needs_names,
    parameters_of,
)
from jaxmon.agent.recompiles.values import Value, text_of, value_of


_TREES = 100
_MOST_NAMED = 100
# Types of settings, by id: the metaclass of another type may claim to equal one of
# them.
_PLAIN = frozenset(map(id, (bool, int, str, float, type(None))))

MADE_BY = "transformation"
"""The option for the JAX function that created the callable."""


class Static(NamedTuple):
    """One static argument of a call."""

    name: str
    by_name: bool
    value: Value


class PartlyCompared(NamedTuple):
    """A static argument, or static part of a node, not compared in full."""

    kind: str
    where: str
    value: Value


_hidden_of, _is_whole = attrgetter("value.hidden"), attrgetter("value.whole")
_shape_of = attrgetter("shape")


@dataclass(slots=True, eq=False)
class Signature:
    """
    Everything that may make JAX compile a call. Immutable.

    Attributes:
        arguments: the traced arguments, in the order of their leaves.
        leaves: types of their leaves.
        options: the options of `jax.jit` that are not the default, by name.
        context: values of JAX's configuration that compiled code depends on.
        names: JAX's name of each leaf, if the tree alone does not determine it.
        beyond: values that could not be compared in full, with their names.
        operands: types of what a program of a transformed function is applied to.
        shapes: equal for equal shapes of all of them.
        call: equal for equal signatures, whatever their *operands*.
        digest: equal for equal signatures.
        hidden: a hash of parts that may or may not make a difference.
        whole: whether everything could be compared.
    """

    arguments: tuple[Argument, ...]
    leaves: tuple[Leaf, ...]
    static: tuple[Static, ...]
    options: Options
    context: tuple[Any, ...]
    names: tuple[str, ...] | None = None
    beyond: tuple[PartlyCompared, ...] = ()
    operands: tuple[Leaf, ...] = ()
    shapes: int = field(init=False)
    call: int = field(init=False)
    digest: int = field(init=False)
    hidden: int = field(init=False)
    whole: bool = field(init=False)

    def __post_init__(self) -> None:
        leaves, operands, beyond = self.leaves, self.operands, self.beyond
        self.hidden = hash(tuple(map(_hidden_of, beyond)))
        self.whole = all(map(_is_whole, beyond))
        self.shapes = hash(tuple(map(_shape_of, leaves + operands)))
        called = self.arguments, leaves, self.static, self.options, self.context
        self.call = hash(called)
        self.digest = hash((self.call, operands)) if operands else self.call


class SignatureBuilder:
    """Builds signatures, on the calling threads, with the configuration's values."""

    def __init__(self, jax: Any, context: Callable[[], tuple[Any, ...]]) -> None:
        # Equal leaves and trees are one object: a signature takes 8 bytes per leaf.
        self._types = LeafTypes(jax, placement_of)
        self._context = context
        # Settings that are objects, by position: few and long-lived.
        self._settings: dict[int, tuple[Callable[[], Any], Value | str | None]] = {}
        # The latest configuration, without user objects, and its settings.
        self._latest: tuple[tuple[Any, ...], tuple[Any, ...]] = (), ()
        # Each with whether its paths need JAX's names.
        self._trees: dict[tuple[Argument, ...], tuple[tuple[Argument, ...], bool]] = {}
        # Most of the configuration never changes, so it is not read during a compile.
        self._plain(context())

    def of(self, call: JitCall) -> Signature | None:
        """
        Return the signature of *call*, which has its kinds and nodes then, if known.
        """
        if call.leaves is None:
            return None
        call.kinds = self._types.kinds(call.leaves, call.avals)
        if call.tree is None:
            return None
        names = names_in_call(call.fun, len(call.args), call.kwargs)
        static: tuple[Static, ...] = ()
        if call.static_argnums or call.static_argnames:
            static, positions = _static(call, names)
            names = [names[position] for position in positions]
        parts: list[tuple[str, Value]] = []
        arguments, unnamed = self._shared(arguments_of(call.tree, names, parts))
        call.nodes = arguments
        types = call.kinds.types()
        paths = None
        if unnamed and call.names and len(call.names) == len(types):
            paths = tuple([leaf_types.plain(name) for name in call.names])
        context = self._plain(self._context())
        beyond: tuple[PartlyCompared, ...] = ()
        if static or parts:
            beyond = _partly_compared(static, parts)
        options = options_of(call.given)
        return Signature(arguments, types, static, options, context, paths, beyond)

    def without_call(self) -> Signature:
        """Return the signature of a program whose call is unknown."""
        return Signature((), (), (), (), self._plain(self._context()))

    def operands(
        self, operands: Sequence[Any], avals: Sequence[Any]
    ) -> tuple[Leaf, ...]:
        """Return the types of the *operands* of a program, with their *avals*."""
        return self._types.kinds(operands, avals).types()

    def _shared(
        self, arguments: tuple[Argument, ...]
    ) -> tuple[tuple[Argument, ...], bool]:
        found = self._trees.get(arguments)
        if found is None:
            if len(self._trees) >= _TREES:
                self._trees.clear()
            found = self._trees[arguments] = arguments, needs_names(arguments)
        return found

    def _plain(self, context: tuple[Any, ...]) -> tuple[Any, ...]:
        latest, plain = self._latest
        # It seldom changes. Compared by identity, because ``==`` may be user code.
        if len(latest) == len(context) and all(map(is_, latest, context)):
            return plain
        plain = tuple(
            [
                value if id(type(value)) in _PLAIN else self._setting(position, value)
                for position, value in enumerate(context)
            ]
        )
        if all(map(_may_be_kept, context)):
            self._latest = context, plain
        return plain

    def _setting(self, position: int, value: Any) -> Any:
        kind = type(value)
        if kind is tuple and not value:
            return None
        setting = self._settings.get(position)
        if setting is not None and setting[0]() is value:
            return setting[1]
        if is_subclass(kind, enum.Enum):
            plain = field_of(value, "_value_")  # as set by users
            plain = plain if type(plain) is str else value_of(value).text
            if is_class(kind):  # it lives as long as JAX
                self._settings[position] = (lambda: value), plain
        else:
            found = value_of(inside(value))
            plain = None if found.text == NO_MESH else found
            try:
                self._settings[position] = weakref.ref(value), plain
            except TypeError as error:  # tuples have no weak references
                interrupts.pass_on(error)
        return plain


def _may_be_kept(setting: object) -> bool:
    """Return whether *setting* is not a user object."""
    kind = type(setting)
    return id(kind) in _PLAIN or (not setting if kind is tuple else is_class(kind))


def _partly_compared(
    static: Iterable[Static], parts: Iterable[tuple[str, Value]]
) -> tuple[PartlyCompared, ...]:
    found = [
        PartlyCompared("static_argument", argument.name, argument.value)
        for argument in static
        if argument.value.hidden or not argument.value.whole
    ]
    return (*found, *[PartlyCompared("tree_structure", *part) for part in parts])


def _static(
    call: JitCall, names: Sequence[str]
) -> tuple[tuple[Static, ...], list[int]]:
    """Return the static arguments of *call*, and the positions of the others."""
    count = len(call.args)
    numbers = {n + count if n < 0 else n for n in call.static_argnums}
    found: list[Static] = []
    positions: list[int] = []
    for position, value in enumerate(call.args):
        if position in numbers:
            name = names[position]
            static = Static(name, by_name=False, value=value_of(value))
            if name == "static" and type(value) is tuple and _is_equinox(call.fun):
                static = Static("", by_name=False, value=equinox_arguments(value))
            found.append(static)
        else:
            positions.append(position)
    # A name may be of a user-defined subclass of `str`.
    given = {n: value for n, value in call.kwargs.items() if type(n) is str}
    found += [
        Static(name, by_name=True, value=value_of(given[name]))
        for name in sorted(set(call.static_argnames) & set(given))
    ]
    return tuple(found), positions


def _is_equinox(fun: object) -> bool:
    return type(fun) is types.FunctionType and fun.__module__ == "equinox._jit"


def equinox_arguments(static: tuple[Any, ...]) -> Value:
    """Return what Equinox passes as static, with the names of the arguments."""
    found = value_of(static, ("function", "first", ""))
    leaves = static[0][0] if type(static[0]) is tuple and static[0] else ()
    fun = next(iter(leaves), None) if type(leaves) is tuple else None
    names = names_of(parameters_of(fun), _MOST_NAMED)
    found.parts = {_named_path(path, names): v for path, v in found.parts.items()}
    return found


def _named_path(path: str, names: Sequence[str]) -> str:
    if path.startswith("first"):
        return names[0] + path.removeprefix("first")
    # Of the others, those by position and by name.
    rest = re.match(r"\[0\]\[(\d+)\]|\[1\]\['(\w+)'\]", path)
    if rest is None:
        return path
    number = _MOST_NAMED if rest[1] is None else int(rest[1]) + 1
    name = rest[2] or (names[number] if number < len(names) else rest[0])
    return f"{name}{path[rest.end() :]}"


def options_of(given: JitOptions) -> Options:
    """Return the options in *given*, without user objects."""
    made = (MADE_BY, given.maker, None)
    return (made, *[(option.name, *_described(option)) for option in given.options])


def _described(option: Option) -> tuple[str, object]:
    value = option.value
    if option.how == "names":
        return _list(value), None
    if option.how == "pairs":
        return _list(value), value_of(value).key
    if option.how == "shardings":
        found = [_sharding(leaf) for leaf in value]
        words = ", ".join([words or "any" for words, _ in found])
        return words, tuple([differs for _, differs in found])
    return _text_and_key(value)


def _text_and_key(given: object) -> tuple[str, object]:
    value = value_of(given)
    return value.text, value.key


def _list(given: Iterable[object]) -> str:
    return ", ".join([name if type(name) is str else text_of(name) for name in given])


def _sharding(leaf: Any) -> tuple[str, object]:
    if leaf is None:
        return "", None
    if is_class(type(leaf)) and hasattr(leaf, "device_set"):
        placement = placement_of(leaf)
        return str(placement), (placement.order, placement.hash)
    return _text_and_key(leaf)


class Placement(NamedTuple):
    """
    Placement of a committed array, with hashes of the order of devices, and of the
    whole as JAX compares it; *memory* is its kind if that is not the default.
    """

    text: str
    devices: int
    order: int
    hash: int
    memory: str = ""

    def __str__(self) -> str:
        return self.text + self.memory


def placement_of(sharding: Any) -> Placement:
    """Describe the placement of *sharding*. User-defined classes are not called."""
    kind = type(sharding)
    if not is_class(kind):
        return Placement(name_of(kind), 0, 0, id(sharding))
    devices = sharding.device_set
    single = len(devices) == 1
    named = kind_of(kind) == "named sharding"
    order = 0 if single else order_of(sharding)
    whole = 0 if single else hash(sharding)
    first = next(iter(devices))
    if single:
        text = device_text(first)
        # Since 0.5, a mesh of one device is different from the device; the partitioning
        # over it makes no difference.
        text = f"{text} on {mesh_text(sharding.mesh)}" if named else text
    elif named:
        text = f"{text_of(sharding.spec)} on {mesh_text(sharding.mesh)}"
    else:
        text = f"{kind.__name__} on {len(devices)} devices"
    kept = sharding.memory_kind
    special = kept is not None and kept != _default_memory(first)
    memory = f" in {kept}" if special else ""
    return Placement(text, len(devices), order, whole, memory)


def _default_memory(device: Any) -> str | None:
    try:
        return str(device.default_memory().kind)
    except Exception as error:  # noqa: BLE001 - a plugin need not know of memories
        interrupts.pass_on(error)
        return None


class Mismatch(NamedTuple):
    """One difference that requires separate programs; *text* has it in one line."""

    kind: str
    where: str
    before: str
    after: str
    text: str
