"""
Inspects a value and its contents without running its code.

No method of a value is called, not even ``__hash__``: it may raise anything, take
seconds or wait for a device. Only items of containers and fields are inspected, at most
`_LOOKED` values of a microsecond or two each. The result consists of text and hashes;
no value is kept. Numbers, strings and containers are inspected here, objects in
`values`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.inspection import field_of, found_in, is_subclass, name_of


LIMIT = 80
"""Maximum number of characters shown of a value."""

SHOWN = 3
"""Maximum depth shown."""

_LOOKED = 1000
MOST_PARTS = 256
"""Maximum number of parts of a value that are kept."""
_DEEPEST = 12
_HASHES = (1 << 61) - 1
# Longer texts are compared by their ends, larger numbers by size.
_LONG = 1_000_000
_SHORT = 64


class InspectedValue(NamedTuple):
    """A value's text, a hash by value, and one of what is compared by identity."""

    text: str
    words: int
    identity: int = 0


def written(text: str) -> InspectedValue:
    """Return the result for a value with this *text*, and with no other."""
    return InspectedValue(text, hash(text))


class Nesting(NamedTuple):
    """Where a value is: how deep, and whether its container is equal only if it is."""

    depth: int
    sure: bool

    @property
    def inside(self) -> Nesting:
        """Where the contents of the value are."""
        return Nesting(self.depth + 1, self.sure)


TOP = Nesting(0, sure=True)
_NO_KEYS = repeat("")


class Inspection:
    """
    Inspection of one value. Inspectors are found by the id of the type: a dict of types
    would call their metaclasses.

    Attributes:
        alone: whether something was compared by identity.
        hidden: a hash of parts that may or may not make two values different.
        parts: values without contents, or compared by identity, by path; `MOST_PARTS`.
        path: of the value being inspected, ``.layers[0].rate``; `None` if it has none.
    """

    __slots__ = (
        *("_exact", "_find", "_left", "alone", "hidden", "parts", "path", "whole"),
    )

    def __init__(self, exact: Mapping[int, How], find: Callable[[type], How]) -> None:
        self._exact = exact
        self._find = find
        self._left = _LOOKED
        self.alone = False
        self.hidden = 0
        self.parts: dict[str, InspectedValue] = {}
        self.path: str | None = ""
        self.whole = True

    def inspect(
        self, value: Any, at: Nesting = TOP, key: str | None = ""
    ) -> InspectedValue:
        """Inspect *value*, of any type, found in another one by its *key*."""
        self._left -= 1
        kind = type(value)
        how = self._exact.get(id(kind)) or self._find(kind)
        if self._left < 0 or at.depth > _DEEPEST:
            self.whole = False
            return InspectedValue(name_of(kind), 0)
        outer, number = self.path, len(self.parts)
        path = self.path = None if outer is None or key is None else outer + key
        seen = how(self, value, at)
        is_part = len(self.parts) == number or seen.identity == id(value)
        if path is not None and is_part and number < MOST_PARTS:
            self.parts[path] = seen
        self.path = outer
        return seen

    def within_budget(self, count: int) -> int:
        """Return how many of *count* values fit the inspection budget."""
        if count > self._left:
            self.whole = False
            return max(self._left, 0)
        return count

    def itself(
        self, value: object, at: Nesting, text: str, words: int | None = None
    ) -> InspectedValue:
        """Return the result for a *value* that is compared by identity."""
        words = hash(text) if words is None else words
        if at.sure:
            self.alone = True
            return InspectedValue(text, words, id(value))
        self.add_hidden(id(value))
        return InspectedValue(text, words)

    def unknown(self, text: str) -> InspectedValue:
        """Return the result for a value of which only the *text* is known."""
        self.whole = False
        return written(text)

    def inspect_texts(
        self, values: Iterable[Any], at: Nesting, keys: Iterable[str] = _NO_KEYS
    ) -> list[InspectedValue]:
        """
        Inspect *values* for their texts only: identity decides about their container.
        """
        before = self.alone, self.hidden, self.whole
        pairs = zip(values, keys, strict=False)
        inside = Nesting(at.depth + 1, sure=True)
        seen = [self.inspect(value, inside, key) for value, key in pairs]
        self.alone, self.hidden, self.whole = before
        return seen

    def add_hidden(self, part: int) -> None:
        """Add a part that may make a difference, in any order."""
        self.hidden = (self.hidden + hash((part,))) & _HASHES


How: TypeAlias = "Callable[[Inspection, Any, Nesting], InspectedValue]"
"""An inspector."""


class InspectedItems(NamedTuple):
    """Items of a container; in a large one only some are *seen*."""

    length: int
    seen: list[InspectedValue]

    def hashes(self, name: str) -> tuple[int, int]:
        """Return the hashes for an ordered container called *name*."""
        found = tuple([part.identity for part in self.seen])
        words = hash((name, self.length, *[part.words for part in self.seen]))
        return words, hash(found) if any(found) else 0

    def texts(self) -> str:
        """Return the texts of the items as one line."""
        more = len(self.seen) < self.length
        return joined([part.text for part in self.seen], more=more)


def inspected_items(
    inspection: Inspection, base: Any, value: Any, at: Nesting, keys: Sequence[str] = ()
) -> InspectedItems:
    """Inspect the items of *value*, ordered, of class *base*; *keys* or numbers."""
    count = base.__len__(value)
    some = inspection.within_budget(count)
    numbers = [*range(count)]
    if some == count:
        items = list(base.__iter__(value))
    else:  # both ends: new items are at one of them
        items = list(base.__getitem__(value, slice(some - some // 2)))
        items += base.__getitem__(value, slice(count - some // 2, None))
        numbers = numbers[: some - some // 2] + numbers[count - some // 2 :]
    inside, named = at.inside, len(keys) == count
    return InspectedItems(
        count,
        [
            inspection.inspect(item, inside, keys[n] if named else f"[{n}]")
            for n, item in zip(numbers, items, strict=False)
        ],
    )


def joined(texts: Iterable[str], *, more: bool = False) -> str:
    """Return *texts* as a line of about `LIMIT` characters; *more* were omitted."""
    shown: list[str] = []
    length = 0
    for text in texts:
        if length > LIMIT:
            more = True
            break
        shown.append(text)
        length += len(text)
    if more:
        shown.append("…")
    return ", ".join(shown)


# --- numbers and texts -----------------------------------------------------------


def _written(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    text = repr(value)
    if value == value:  # noqa: PLR0124 - but for what is not a number
        return written(text)
    if not at.sure:
        inspection.add_hidden(id(value))
    return InspectedValue(text, hash(text), id(value) if at.sure else 0)


def _number(inspection: Inspection, value: int, _: Nesting) -> InspectedValue:
    bits = int.bit_length(value)
    if bits <= _SHORT:
        return written(int.__repr__(value))  # -1 and -2 have one hash
    # Python may refuse to convert it to decimal, or take seconds.
    text = f"int of {bits} bits"
    if bits <= _LONG:
        return InspectedValue(text, hash((text, int.__hash__(value))))
    return inspection.unknown(text)


def _text_of(base: Any) -> How:
    def how(inspection: Inspection, value: Any, _: Nesting) -> InspectedValue:
        count = base.__len__(value)
        shown = repr(base.__getitem__(value, slice(LIMIT)))
        if count <= _LONG:
            return InspectedValue(shown, base.__hash__(value))
        inspection.whole = False
        end = base.__getitem__(value, slice(-LIMIT, None))
        return InspectedValue(shown, hash((count, shown, end)))

    return how


def _below(how: How) -> How:
    """Return the inspector for subclasses of what *how* inspects."""

    def look_at(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
        name = name_of(type(value))
        text, words, identity = how(inspection, value, at)
        return InspectedValue(f"{name}({text})", hash((name, words)), identity)

    return look_at


def _fraction(_: Inspection, value: Any, __: Nesting) -> InspectedValue:
    base: Any = float if is_subclass(type(value), float) else complex
    return written(base.__repr__(value))


# --- containers ------------------------------------------------------------------


def inspected_tuple(
    inspection: Inspection, value: Any, at: Nesting, keys: Sequence[str] = ()
) -> InspectedValue:
    """Inspect a tuple; *keys* are those of its items, instead of numbers."""
    parts = inspected_items(inspection, tuple, value, at, keys)
    hashes = parts.hashes("tuple")
    if at.depth >= SHOWN:
        return InspectedValue(f"tuple of {parts.length}", *hashes)
    comma = "," if parts.length == 1 else ""
    return InspectedValue(f"({parts.texts()}{comma})", *hashes)


def _slice(inspection: Inspection, value: slice, at: Nesting) -> InspectedValue:
    ends = value.start, value.stop, value.step
    text, *hashes = inspected_tuple(inspection, ends, at)
    return InspectedValue(f"slice{text}", *hashes)


def _list(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    parts = inspected_items(inspection, list, value, at)
    shown = at.depth < SHOWN and type(value) is list
    name = name_of(type(value))
    text = f"[{parts.texts()}]" if shown else f"{name} of {parts.length}"
    return InspectedValue(text, *parts.hashes(name))


def _set(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    kind = type(value)
    base: Any = frozenset if is_subclass(kind, frozenset) else set
    count, name = base.__len__(value), name_of(kind)
    text = f"{name} of {count}"
    # An equal set may have a different order.
    if inspection.within_budget(count) < count:
        return written(text)
    items, inside = list(base.__iter__(value)), at.inside
    seen = [inspection.inspect(item, inside, None) for item in items]
    words = hash((name, frozenset([part.words for part in seen])))
    identity = sum(part.identity for part in seen)
    if at.depth < SHOWN:
        shown = f"{{{joined(sorted([part.text for part in seen]))}}}"
        text = shown if kind is set else f"{name}({shown})"
    return InspectedValue(text, words, identity)


def _dict(inspection: Inspection, value: Any, at: Nesting) -> InspectedValue:
    kind, count = type(value), dict.__len__(value)
    name = name_of(kind)
    text = f"{name} of {count}"
    if inspection.within_budget(2 * count) < 2 * count:
        return written(text)
    inside, pairs = Nesting(at.depth + 1, at.sure and kind is dict), []
    for key, item in dict.items(dict.copy(value)):
        seen = inspection.inspect(key, inside, None)
        pairs.append((seen, inspection.inspect(item, inside, f"[{seen.text}]")))
    words = hash((name, frozenset([(key.words, item.words) for key, item in pairs])))
    identity = sum(
        hash((key.identity, item.identity))
        for key, item in pairs
        if key.identity or item.identity
    )
    if at.depth < SHOWN:
        shown = f"{{{joined([f'{key.text}: {item.text}' for key, item in pairs])}}}"
        text = shown if kind is dict else f"{name}({shown})"
    return InspectedValue(text, words, identity)


_string, _bytes = _text_of(str), _text_of(bytes)
_CONTAINERS: tuple[tuple[type, How], ...] = (
    *((list, _list), (set, _set), (frozenset, _set), (dict, _dict)),
)

EXACT: tuple[tuple[type, How], ...] = (
    *[
        (kind, _written)
        for kind in (type(None), type(...), bool, float, complex, range)
    ],
    (slice, _slice),
    (int, _number),
    (str, _string),
    (bytes, _bytes),
    *_CONTAINERS,
)
"""Inspectors by exact type."""

BELOW: tuple[tuple[type, How], ...] = (
    (int, _below(_number)),
    (float, _below(_fraction)),
    (complex, _below(_fraction)),
    (str, _below(_string)),
    (bytes, _below(_bytes)),
    *_CONTAINERS,
)
"""Inspectors for subclasses of these."""


def field_names(kind: type, *, static: bool) -> list[str]:
    """Return a dataclass's fields, static or not as JAX, Equinox and Flax say."""
    fields = found_in(kind, "__dataclass_fields__")
    if type(fields) is not dict:
        return []
    return [
        field.name
        for field in fields.values()
        if type(field) is dataclasses.Field
        and type(field.name) is str
        and _is_static(field.metadata) is static
    ]


def _is_static(metadata: Mapping[Any, Any]) -> bool:
    return bool(metadata.get("static")) or metadata.get("pytree_node") is False


def static_keys(kind: type, static: Any) -> Sequence[str]:
    """Return the keys of *static*, the static part of a *kind* of node, if known."""
    if type(static) is not tuple or not static:
        return ()
    names = [f".{name}" for name in field_names(kind, static=True)]
    if len(static) == len(names) + 1:  # Equinox's begins with what a method wraps
        names = ["", *names]
    return names if len(names) == len(static) else ()


def child_keys(
    data: Any, count: int, text_of: Callable[[object], str]
) -> Sequence[str]:
    """Return the keys of the children of a node of a tree."""
    if data is None:
        return ()
    kind, static = data
    found: Sequence[str] = ()
    if kind is dict:
        found = [f"[{text_of(key)}]" for key in static]
    elif kind is not tuple and kind is not list:
        names = found_in(kind, "_fields")
        if type(names) is not tuple:
            names = field_names(kind, static=False)
        found = [f".{name}" for name in names]
    return found if len(found) == count else [f"[{number}]" for number in range(count)]


def graph_paths(
    fields: Mapping[str, Any], text_of: Callable[[object], str]
) -> list[str]:
    """Return the paths of a `flax.nnx` graph's attributes, one node after another."""
    nodes, attributes = fields.get("nodes"), fields.get("attributes")
    if type(nodes) is not list or type(attributes) is not list:
        return []
    found: list[str] = []
    # Each with its path, and how many of its attributes are still to come.
    open_nodes: list[tuple[str, int]] = []
    left = iter(nodes)

    def enter(path: str) -> None:
        count = field_of(next(left, None), "num_attributes")
        open_nodes.append((path, count if type(count) is int else 0))

    enter("")
    for attribute in attributes:
        while open_nodes and not open_nodes[-1][1]:
            open_nodes.pop()
        if not open_nodes or type(attribute) is not tuple or len(attribute) != 2:  # noqa: PLR2004 - name and value
            return []
        (path, count), (name, value) = open_nodes[-1], attribute
        open_nodes[-1] = path, count - 1
        path += f".{name}" if type(name) is str else f"[{text_of(name)}]"
        found.append(path)
        if name_of(type(value)) == "NodeAttr":
            enter(path)
    return found
