"""
Summaries of values: text and hashes, of numbers, containers, objects, functions, arrays
and JAX's own types.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxmon import interrupts
from jaxmon.agent.counted import uncounted
from jaxmon.agent.functions import bare_name, inner, place_of
from jaxmon.agent.guard import Guard
from jaxmon.agent.inspection import (
    ABSENT,
    bases_of,
    field_of,
    fields_of,
    found_in,
    is_subclass,
    layout_of,
    name_of,
    package_of,
    partial_parts,
)
from jaxmon.agent.jaxlink.arrays import Kind, device_text, kind_of, mesh_text
from jaxmon.agent.jaxlink.jit import is_class
from jaxmon.agent.recompiles.value_inspection import (
    BELOW,
    EXACT,
    LIMIT,
    SHOWN,
    TOP,
    How,
    InspectedItems,
    InspectedValue,
    Inspection,
    Nesting,
    child_keys,
    graph_paths,
    inspected_items,
    inspected_tuple,
    joined,
    static_keys,
    written,
)


_SMALL = 1 << 62
_SHOWN_FIELDS = 24
# Packages whose objects have short texts; times with a zone contain an object.
_WRITTEN = ("datetime", "decimal", "fractions", "pathlib", "uuid")


@dataclass(slots=True, eq=False)
class Value:
    """
    Summary of a value; holds only text and hashes.

    Attributes:
        key: differs if JAX treats two values as different: the type's name, then hashes
            of parts compared by identity and of parts compared by text.
        text: at most `LIMIT` characters.
        by_identity: whether a different object with the same content is not equal to
            it. Not of classes, modules and `None`, of which there is one each.
        hidden: a hash of parts that may or may not count because the class defines
            equality itself: private fields, and parts compared by identity.
        parts: its parts by path, if it has any that differ in their own right.
    """

    key: tuple[str, int, int]
    text: str
    hidden: int = 0
    by_identity: bool = False
    whole: bool = True
    parts: Mapping[str, InspectedValue] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def value_of(value: object, keys: Sequence[str] = ()) -> Value:
    """
    Return the summary of *value*, in two milliseconds at most, however large it is.
    """
    kind = type(value)
    if kind is bool or value is None or (kind is int and -_SMALL < value < _SMALL):  # type: ignore[operator]
        text = repr(value)
        return Value((kind.__name__, 0, hash(text)), text)
    inspection, name = Inspection(_EXACT, _how), name_of(type(value))
    try:
        if keys and kind is tuple:
            text, words, identity = inspected_tuple(inspection, value, TOP, keys)
        else:
            text, words, identity = inspection.inspect(value)
    except Exception as error:  # another thread may be changing it
        interrupts.pass_on(error)
        if Guard.strict:
            raise
        text = f"{name} (could not be inspected)"
        return Value((name, 0, 0), text, whole=False)
    text = text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"
    found = inspection
    key, hidden = (name, identity, words), inspection.hidden
    return Value(key, text, hidden, found.alone, found.whole, found.parts)


def text_of(value: object) -> str:
    """Return *value* as text of at most `LIMIT` characters."""
    return value_of(value).text


# --- singletons and callables ----------------------------------------------------


def _class(_: Inspection, value: Any, __: Nesting) -> InspectedValue:
    name = name_of(value)
    return InspectedValue(name, hash(name), id(value))


def _module(_: Inspection, value: Any, __: Nesting) -> InspectedValue:
    name = field_of(value, "__name__")
    text = f"module {name}" if type(name) is str else "module"
    return InspectedValue(text, hash(text), id(value))


def _member(_: Inspection, value: Any, __: Nesting) -> InspectedValue:
    """Inspect a member of an enumeration."""
    name = field_of(value, "_name_")
    text = f"{name_of(type(value))}.{name if type(name) is str else '?'}"
    return InspectedValue(text, hash(text), id(value))


def _function(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    name, place = bare_name(value.__qualname__), place_of(value)
    return inspection.itself(value, at, f"{name} at {place}" if place else name)


def _method(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    text, words, identity = inspection.inspect(value.__func__, at.inside)
    # Created on each access; equal if the object and the function are.
    owner = id(value.__self__)
    if not at.sure:
        inspection.add_hidden(owner)
        return InspectedValue(text, words)
    return InspectedValue(text, words, hash((identity, owner)))


def _builtin(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    owner = value.__self__
    if owner is None or is_subclass(type(owner), types.ModuleType):
        return InspectedValue(value.__name__, hash(value.__name__), id(value))
    kind = owner if is_subclass(type(owner), type) else type(owner)
    return inspection.itself(owner, at, f"{name_of(kind)}.{value.__name__}")


def _partial(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    fun, args, keywords = partial_parts(value)
    inside, keys = [fun], [".func"]
    if at.depth < SHOWN:
        inside += [*args, *list(dict.values(keywords))][:_SHOWN_FIELDS]
        keys += [f".args[{number}]" for number in range(len(args))]
        keys += [f".keywords[{name!r}]" for name in keywords if type(name) is str]
    parts = inspection.inspect_texts(inside, at, keys)
    text = f"partial({joined([part.text for part in parts])})"
    words = hash(("partial", *[part.words for part in parts]))
    return inspection.itself(value, at, text, words)


# --- objects ---------------------------------------------------------------------


def _object(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    """Inspect an object of any class, by its fields."""
    kind = type(value)
    package = package_of(kind)
    if is_class(kind):
        seen = _of_jax(inspection, value, at)
        if seen is not None:
            return seen
    if package in _WRITTEN and getattr(value, "tzinfo", None) is None:
        return written(repr(value))
    layout = layout_of(kind)
    name, fields = name_of(kind), fields_of(value)
    # Those of jax.jit are behind the layer that counts calls; custom_jvp's are not.
    if "__wrapped__" in (fields or fields_of(uncounted(value))):
        (seen,) = inspection.inspect_texts([inner(value)], at)
        return inspection.itself(value, at, seen.text, seen.words)
    if name == "GraphDef" and (paths := graph_paths(fields, text_of)):
        return _graph(inspection, fields, paths, at)
    if layout.by_identity:
        fields = {n: field for n, field in fields.items() if n[:1] != "_"}
        keys = [f".{n}" for n in fields]
        parts = inspection.inspect_texts(fields.values(), at, keys)
        every = dict(zip(fields, parts, strict=True))
        identity = inspection.itself(value, at, name).identity
    else:
        inspection.whole = inspection.whole and layout.is_open
        every, identity = _compared_by_value(inspection, layout.compared, fields, at)
    words = [(n, part.words) for n, part in every.items()]
    text = name
    if at.depth < SHOWN and layout.is_open:
        shown = [f"{n}={part.text}" for n, part in every.items()]
        text = f"{name}({', '.join(shown[:_SHOWN_FIELDS])})"
    return InspectedValue(text, hash((name, *words)), identity)


def _compared_by_value(
    inspection: Inspection,
    compared: frozenset[str] | None,
    fields: dict[str, Any],
    at: Nesting,
) -> tuple[dict[str, InspectedValue], int]:
    """
    Inspect the *fields* of an object whose class defines equality: those that a
    dataclass compares; of other classes, those that are not private.
    """
    every, identities = {}, []
    inside = Nesting(at.depth + 1, at.sure and compared is not None)
    for name, held in fields.items():
        if compared is None:
            key = None if name[:1] == "_" else f".{name}"
            seen = inspection.inspect(held, inside, key)
            if key is None:
                inspection.add_hidden(hash((name, seen.words)))
            else:
                every[name] = seen
        elif name in compared:
            every[name] = seen = inspection.inspect(held, inside, f".{name}")
            identities.append(seen.identity)
    return every, hash(tuple(identities)) if any(identities) else 0


def _named_tuple(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    """Inspect an instance of a subclass of `tuple`."""
    kind = type(value)
    name, names = name_of(kind), found_in(kind, "_fields")
    if kind_of(kind) == "spec":  # a tuple on JAX 0.4
        return _spec(inspection, value, at)
    at = at._replace(sure=at.sure and found_in(kind, "__eq__") is vars(tuple)["__eq__"])
    keys: tuple[str, ...] = ()
    if type(names) is tuple:
        keys = tuple([f".{field}" for field in names])
    parts = inspected_items(inspection, tuple, value, at, keys)
    if at.depth >= SHOWN:
        return InspectedValue(name, *parts.hashes(name))
    if type(names) is not tuple or len(names) != len(parts.seen):
        return InspectedValue(f"{name}({parts.texts()})", *parts.hashes(name))
    inside = joined(
        [
            f"{field}={part.text}"
            for field, part in zip(names, parts.seen, strict=True)
            if type(field) is str
        ]
    )
    return InspectedValue(f"{name}({inside})", *parts.hashes(name))


# --- arrays, and types of JAX ----------------------------------------------------


def _array(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    shape = vars(np.ndarray)["shape"].__get__(value)
    dtype = vars(np.ndarray)["dtype"].__get__(value)
    is_plain = dtype.names is None and dtype.subdtype is None
    text = str(dtype) if is_plain else "structured"
    return _typed(inspection, value, at, shape, text)


def _typed(
    inspection: Inspection, value: Any, at: Nesting, shape: Any, dtype: str
) -> InspectedValue:
    inspection.whole = False  # its elements are not inspected
    return inspection.itself(value, at, f"{dtype}[{','.join(map(str, shape))}]")


def _scalar(inspection: Inspection, value: Any, _: Nesting) -> InspectedValue:
    kind = type(value)
    if package_of(kind) and not is_subclass(kind, np.void):
        return written(repr(value))
    inspection.whole = False
    return InspectedValue(name_of(kind), 0)


def _dtype(inspection: Inspection, value: Any, _: Nesting) -> InspectedValue:
    if value.names is None and value.subdtype is None:
        return written(repr(value))
    # May have titles, which may be any objects.
    return inspection.unknown(f"dtype of {value.itemsize} bytes")


def _of_jax(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue | None:
    """Inspect an object of one of JAX's own classes, whose code can be trusted."""
    kind = type(value)
    what = kind_of(kind)
    if what is not None:
        return _OF_JAX[what](inspection, value, at)
    if found_in(kind, "shape") is ABSENT or found_in(kind, "dtype") is ABSENT:
        return None
    return _typed(inspection, value, at, value.shape, str(value.dtype))


def _sharding(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    kind = type(value)
    name = name_of(kind)
    text = f"{name} of {len(value.device_set)} devices"
    if kind_of(kind) == "named sharding":
        spec = inspection.inspect_texts([value.spec], at)[0].text
        text = f"{name}({spec} on {mesh_text(value.mesh)})"
    return InspectedValue(text, hash(value))


def _spec(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    seen = [inspection.inspect(item, at.inside) for item in tuple(value)]
    parts = InspectedItems(len(seen), seen)
    return InspectedValue(f"P({parts.texts()})", *parts.hashes("P"))


def _tree(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    data, children = value.node_data(), value.children()
    count = inspection.within_budget(len(children))
    parts, inside = [], at.inside
    keys = child_keys(data, len(children), text_of)
    if data is not None:
        kind, static = data
        parts.append(inspection.inspect(kind, inside, None))
        if named := static_keys(kind, static):
            parts.append(inspected_tuple(inspection, static, inside, named))
        else:
            parts.append(inspection.inspect(static, inside))
    for child, key in zip(children[:count], keys, strict=False):
        # Leaves are where their values are.
        is_leaf = child.node_data() is None
        parts.append(inspection.inspect(child, inside, None if is_leaf else key))
    name = name_of(type(value)).rpartition(".")[2]
    text = f"{name} of {value.num_leaves} leaves"
    return InspectedValue(text, *InspectedItems(len(children), parts).hashes(name))


def _leaf_keys(tree: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of each leaf of *tree*."""
    data = tree.node_data()
    if data is None:
        yield prefix
        return
    children = tree.children()
    keys = child_keys(data, len(children), text_of)
    for child, key in zip(children, keys, strict=True):
        yield from _leaf_keys(child, prefix + key)


def _tuple(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    if len(value) == len(("leaves", "tree")):
        leaves, tree = value
        # How Equinox passes what is no array.
        if type(leaves) is tuple and kind_of(type(tree)) == "tree":
            count = tree.num_leaves
            if count == len(leaves) == inspection.within_budget(count):
                inside, keys = at.inside, list(_leaf_keys(tree))
                parts = inspected_tuple(inspection, leaves, inside, keys)
                key = None if tree.node_data() is None else ""
                shape = inspection.inspect(tree, inside, key)
                found = InspectedItems(2, [parts, shape])
                text = f"({found.texts()})" if at.depth < SHOWN else "tuple of 2"
                return InspectedValue(text, *found.hashes("tuple"))
    return inspected_tuple(inspection, value, at)


def _graph(
    inspection: Inspection, fields: Mapping[str, Any], paths: list[str], at: Nesting
) -> InspectedValue:
    """Inspect a graph of `flax.nnx`, whose attributes have these *paths*."""
    inside = at.inside
    parts = [inspection.inspect(fields["nodes"], inside, ".nodes")]
    for path, (name, value) in zip(paths, fields["attributes"], strict=True):
        is_static = name_of(type(value)) == "Static"
        held = field_of(value, "value") if is_static else value
        parts.append(inspection.inspect(name, inside, None))
        parts.append(inspection.inspect(held, inside, path))
    found = InspectedItems(len(parts), parts)
    return InspectedValue("GraphDef", *found.hashes("GraphDef"))


_OF_JAX: dict[Kind, How] = {
    "device": lambda _, value, __: InspectedValue(device_text(value), hash(value)),
    "mesh": lambda _, value, __: InspectedValue(mesh_text(value), hash(value)),
    "named sharding": _sharding,
    "sharding": _sharding,
    "spec": _spec,
    "tree": _tree,
}

_BY_TYPE: tuple[tuple[type, How], ...] = (
    *EXACT,
    (tuple, _tuple),
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (types.BuiltinFunctionType, _builtin),
)
# For subclasses of these.
_BY_BASE: tuple[tuple[type, How], ...] = (
    *BELOW,
    (type, _class),
    (types.ModuleType, _module),
    (np.ndarray, _array),
    (np.dtype, _dtype),
    (functools.partial, _partial),
    (tuple, _named_tuple),
    (object, _object),
)
# These take precedence even if the value is also a number or a string.
_BEFORE: tuple[tuple[type, How], ...] = ((enum.Enum, _member), (np.generic, _scalar))
_EXACT = {id(kind): how for kind, how in _BY_TYPE}
_TABLES = [{id(kind): how for kind, how in table} for table in (_BEFORE, _BY_BASE)]


def _how(kind: type) -> How:
    bases = [id(base) for base in bases_of(kind)]
    for table in _TABLES:
        for base in bases:
            if base in table:
                return table[base]
    raise TypeError(name_of(kind))  # not even `object`
