"""
What a call was compiled for: its abstract arguments, static values, options, context.

A `Signature` holds types, hashes and texts, and no function, argument or value of the
user's. It is built from what JAX has worked out for the call already, so that no code
of the user's runs again: about 0.6 µs for each leaf.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from inspect import Signature as Parameters
from typing import Any, NamedTuple

from jaxmon.agent.compiling.values import Value, device_text, text_of, value_of


_SETTINGS = 1_000
_TYPES = 100
_TREES = 100
_FLAT = re.compile(r"\[<flat index (\d+)>\]")
_LEAVES_SHARED = 10_000
_PLAIN = (bool, int, str, float, type(None))


class Placement(NamedTuple):
    """
    Where a committed array is.
    """

    text: str
    devices: int
    hash: int


class Leaf(NamedTuple):
    """
    The type of one leaf; *placement* is `None` unless the array is committed.
    """

    shape: tuple[Any, ...]
    dtype: Any
    weak: bool
    placement: Placement | None


class Node(NamedTuple):
    """
    One node of an argument's tree.

    Attributes:
        name: ``dict``, ``tuple``, the name of a class; ``*`` for a leaf.
        identity: tells classes of one name apart, and the static part of a node.
        static: the static part in words.
        keys: how each child is reached; `None` where only its class knows.
        children: nodes below.
        leaves: leaves below.
    """

    name: str
    identity: tuple[Any, ...]
    static: str
    keys: tuple[str, ...] | None
    children: tuple[Any, ...]
    leaves: int


LEAF = Node("*", (), "", (), (), 1)
NONE = Node("None", (), "", (), (), 0)


class Argument(NamedTuple):
    """
    One argument of a call.
    """

    name: str
    by_name: bool
    node: Node


class Static(NamedTuple):
    """
    One static argument of a call.
    """

    name: str
    by_name: bool
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """
    Everything that may make JAX compile, for one call.

    Attributes:
        arguments: the arguments that are traced, in the order of their leaves.
        leaves: types of their leaves.
        static: the static arguments.
        options: what `jax.jit` was given, by name; only what is not the default.
        context: values of JAX's configuration that compiled code depends on.
        names: what JAX calls each leaf, where its tree alone does not tell.
        digest: equal for equal signatures.
    """

    arguments: tuple[Argument, ...]
    leaves: tuple[Leaf, ...]
    static: tuple[Static, ...]
    options: tuple[tuple[str, str], ...]
    context: tuple[Any, ...]
    names: tuple[str, ...] | None = None
    digest: int = field(init=False)

    def __post_init__(self) -> None:
        whole = (self.arguments, self.leaves, self.static, self.options, self.context)
        object.__setattr__(self, "digest", hash(whole))


class Call(NamedTuple):
    """
    A call as the frames of JAX hold it. Must not outlive the observation: it refers to
    the user's arguments.

    Attributes:
        args: positional arguments.
        kwargs: arguments by name.
        parameters: signature of the user's function, if it has one.
        static_argnums: positions of static arguments.
        static_argnames: names of static arguments.
        info: JAX's ``PjitInfo``, where the options are; `None` for pmap.
        leaves: the traced leaves, `None` where JAX does not keep them.
        tree: their tree.
        avals: their abstract values, empty where JAX has none.
        names: what JAX calls them.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    parameters: Parameters | None
    static_argnums: Sequence[int]
    static_argnames: Sequence[str]
    info: Any = None
    leaves: Sequence[Any] | None = None
    tree: Any = None
    avals: Sequence[Any] = ()
    names: Sequence[str] | None = None


class Signatures:
    """
    Builds signatures.

    Args:
        jax: the module.
        context: returns the values of configuration that programs depend on.
    """

    def __init__(self, jax: Any, context: Callable[[], tuple[Any, ...]]) -> None:
        self._tree_util = jax.tree_util
        self._array = jax.Array
        # By type: whether its objects know where they are. Asking costs more.
        self._arrays: dict[type, bool] = {}
        core, api_util = jax._src.core, jax._src.api_util  # noqa: SLF001
        # It moved after 0.4.35.
        self._abstract: Callable[[Any], Any] = getattr(
            core, "shaped_abstractify", None
        ) or getattr(api_util, "shaped_abstractify", core.get_aval)
        self._context = context
        # Settings that are objects, by what they are equal to; few and long-lived.
        self._latest: tuple[int, tuple[Any, ...]] = (0, ())
        self._known: dict[tuple[type, int], Value] = {}
        # Equal leaves and trees are one object: a signature costs 8 bytes a leaf.
        self._leaves: dict[Leaf, Leaf] = {}
        # With each, whether its paths need names of JAX's.
        self._trees: dict[tuple[Argument, ...], tuple[tuple[Argument, ...], bool]] = {}

    def of(self, call: Call) -> Signature:
        """
        Return the signature of *call*.
        """
        static, positions = _static(call)
        leaves, tree = call.leaves, call.tree
        if leaves is None or tree is None:
            given = tuple(call.args[position] for position in positions)
            leaves, tree = self._tree_util.tree_flatten((given, dict(call.kwargs)))
        arguments, unnamed = self._shared(_arguments(call, positions, tree))
        types = self._types(leaves, call.avals)
        names = None
        if unnamed and call.names and len(call.names) == len(types):
            # To 0.4 JAX says <flat index 1>.
            names = tuple([_FLAT.sub(r"[\1]", name) for name in call.names])
        return Signature(
            arguments,
            types,
            static,
            _options(call.info),
            self._plain_context(),
            names,
        )

    def _shared(
        self, arguments: tuple[Argument, ...]
    ) -> tuple[tuple[Argument, ...], bool]:
        found = self._trees.get(arguments)
        if found is None:
            if len(self._trees) >= _TREES:
                self._trees.clear()
            found = self._trees[arguments] = arguments, _needs_names(arguments)
        return found

    def _plain_context(self) -> tuple[Any, ...]:
        raw = self._context()
        digest = hash(raw)
        known, context = self._latest
        if digest != known:
            context = tuple(
                [
                    value if type(value) in _PLAIN else self._setting(value)
                    for value in raw
                ]
            )
            self._latest = digest, context
        return context

    def _setting(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            plain = value.value  # as a user sets it
            return plain if type(plain) is str else value.name
        if value == ():
            return None
        key = type(value), hash(value)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _SETTINGS:
                self._known.clear()
            found = self._known[key] = value_of(value)
        return found

    def _types(self, leaves: Sequence[Any], avals: Sequence[Any]) -> tuple[Leaf, ...]:
        if len(avals) != len(leaves):
            avals = [self._abstract(leaf) for leaf in leaves]
        if len(self._leaves) > _LEAVES_SHARED:
            self._leaves.clear()
        shared, placements = self._leaves, dict[int, Placement]()
        arrays, found = self._arrays, []
        for leaf, aval in zip(leaves, avals, strict=True):
            placement = None
            kind = type(leaf)
            if kind not in arrays and len(arrays) < _TYPES:
                arrays[kind] = isinstance(leaf, self._array)
            if arrays.get(kind) and leaf._committed:  # noqa: SLF001
                sharding = leaf.sharding
                placement = placements.get(id(sharding))
                if placement is None:
                    placement = placements[id(sharding)] = placement_of(sharding)
            one = Leaf(
                getattr(aval, "shape", ()),
                getattr(aval, "dtype", None),
                bool(getattr(aval, "weak_type", False)),
                placement,
            )
            found.append(shared.setdefault(one, one))
        return tuple(found)


def placement_of(sharding: Any) -> Placement:
    """
    Return where *sharding* puts an array, in words.
    """
    devices = sharding.device_set
    kind = type(sharding).__name__
    if len(devices) == 1:
        text = device_text(next(iter(devices)))
    elif kind == "NamedSharding":
        mesh = ",".join(f"{axis}={size}" for axis, size in sharding.mesh.shape.items())
        text = f"{_spec(sharding.spec)} on mesh {mesh}"
    else:
        text = f"{kind} on {len(devices)} devices"
    memory = getattr(sharding, "memory_kind", None)
    if memory not in (None, "device", "unpinned_host"):
        text = f"{text} in {memory}"
    single = len(devices) == 1
    # Two kinds of sharding on one device are one thing to a compiled program.
    return Placement(text, len(devices), 0 if single else hash(sharding))


def _spec(spec: Any) -> str:
    parts = ", ".join(text_of(part) for part in spec)
    return f"P({parts})"


def _static(call: Call) -> tuple[tuple[Static, ...], Sequence[int]]:
    """
    Return the static arguments of *call*, and the positions of the others.
    """
    count = len(call.args)
    if not (call.static_argnums or call.static_argnames):
        return (), range(count)
    numbers = {n + count if n < 0 else n for n in call.static_argnums}
    found, positions = [], []
    for position, value in enumerate(call.args):
        if position in numbers:
            name = name_at(call.parameters, position)
            found.append(Static(name, by_name=False, value=value_of(value)))
        else:
            positions.append(position)
    found += [
        Static(name, by_name=True, value=value_of(call.kwargs[name]))
        for name in sorted(set(call.static_argnames) & set(call.kwargs))
    ]
    return tuple(found), positions


def name_at(parameters: Parameters | None, position: int) -> str:
    """
    Return the name of the argument at *position*: ``x``, or ``args[1]``.
    """
    known = parameters.parameters if parameters else {}
    for number, (name, parameter) in enumerate(known.items()):
        if parameter.kind is Parameter.VAR_POSITIONAL:
            return f"{name}[{position - number}]"
        if number == position:
            return name
    return f"args[{position}]"


def _arguments(call: Call, positions: Sequence[int], tree: Any) -> tuple[Argument, ...]:
    positional, named = tree.children()
    parameters = call.parameters
    found = [
        Argument(name_at(parameters, position), by_name=False, node=node_of(child))
        for position, child in zip(positions, positional.children(), strict=True)
    ]
    if call.kwargs:
        data = named.node_data()
        for name, child in zip(data[1] if data else (), named.children(), strict=True):
            found.append(Argument(name, by_name=True, node=node_of(child)))
    return tuple(found)


def node_of(tree: Any) -> Node:
    """
    Return the tree of JAX as nodes without any object of the user's in it.
    """
    data = tree.node_data()
    if data is None:
        return LEAF
    kind, static = data
    if kind is type(None):
        return NONE
    children = tuple(
        [
            LEAF if child.node_data() is None else node_of(child)
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
    name, identity = kind.__qualname__, id(kind)
    fields = getattr(kind, "_fields", None)
    if fields is not None and len(fields) == len(children):
        keys = tuple([f".{name}" for name in fields])
        return Node(name, (identity,), "", keys, children, leaves)
    value = value_of(static)
    known: tuple[str, ...] | None = None
    if kind.__module__ == "collections" and children:
        listed = static[1] if name == "defaultdict" else static
        known = tuple([_key(key) for key in listed])
    return Node(name, (identity, value.key), value.text, known, children, leaves)


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


def _needs_names(arguments: Sequence[Argument]) -> bool:
    return any(_unnamed(argument.node) for argument in arguments)


def _unnamed(node: Node) -> bool:
    return (node.keys is None and node.leaves > 0) or any(map(_unnamed, node.children))


def _options(info: Any) -> tuple[tuple[str, str], ...]:
    """
    Return what `jax.jit` was given that makes a difference to the program.
    """
    if info is None:
        return ()
    found = []
    # JAX works out the names for the numbers, where there are names.
    for name, given in (
        ("donated arguments", info.donate_argnames or info.donate_argnums),
        ("static arguments", info.static_argnames or info.static_argnums),
        ("compiler_options", getattr(info, "compiler_options_kvs", ())),
    ):
        if given:
            found.append((name, ", ".join(map(str, given))))
    for name in ("in_shardings", "out_shardings"):
        leaves = getattr(info, f"{name}_leaves", ())
        texts = [_sharding(leaf) for leaf in leaves]
        if any(texts):
            found.append((name, ", ".join(text or "any" for text in texts)))
    for name in ("device", "backend", "keep_unused", "inline"):
        value = getattr(info, name, None)
        if value not in (None, False):
            found.append((name, text_of(value)))
    return tuple(found)


def _sharding(leaf: Any) -> str:
    # What JAX puts where nothing was given.
    if leaf is None or "Unspecified" in type(leaf).__name__:
        return ""
    if hasattr(leaf, "device_set"):
        return placement_of(leaf).text
    return text_of(leaf)
