"""Inspection of numbers, strings, containers and their subclasses."""

from __future__ import annotations

from typing import Any

from jaxmon.agent.inspection import is_subclass, name_of
from jaxmon.agent.recompiles.value_inspection import (
    LIMIT,
    SHOWN,
    How,
    InspectedValue,
    Inspection,
    inspected_items,
    joined,
)


# Longer texts are compared by their ends, larger numbers by size.
_LONG = 1_000_000
_SHORT = 64


# --- numbers and texts -----------------------------------------------------------


def _written(inspection: Inspection, value: Any, _: int, sure: bool) -> InspectedValue:  # noqa: FBT001
    text = repr(value)
    if value == value:  # noqa: PLR0124 - but for what is not a number
        return InspectedValue(text, hash(text))
    if not sure:
        inspection.add_hidden(id(value))
    return InspectedValue(text, hash(text), id(value) if sure else 0)


def _number(inspection: Inspection, value: int, _: int, __: bool) -> InspectedValue:  # noqa: FBT001
    bits = int.bit_length(value)
    if bits <= _SHORT:
        text = int.__repr__(value)
        return InspectedValue(text, hash(text))  # -1 and -2 have one hash
    # Python may refuse to convert it to decimal, or take seconds.
    text = f"int of {bits} bits"
    if bits <= _LONG:
        return InspectedValue(text, hash((text, int.__hash__(value))))
    inspection.whole = False
    return InspectedValue(text, hash(text))


def _text_of(base: Any) -> How:
    def how(inspection: Inspection, value: Any, _: int, __: bool) -> InspectedValue:  # noqa: FBT001
        count = base.__len__(value)
        shown = repr(base.__getitem__(value, slice(LIMIT)))
        if count <= _LONG:
            return InspectedValue(shown, base.__hash__(value))
        inspection.whole = False
        end = base.__getitem__(value, slice(-LIMIT, None))
        return InspectedValue(shown, hash((count, shown, end)))

    return how


def _below(how: How) -> How:
    """
    Return the inspector for subclasses of the numbers or texts that *how* inspects.
    """

    def look_at(
        inspection: Inspection,
        value: Any,
        depth: int,
        sure: bool,  # noqa: FBT001
    ) -> InspectedValue:
        name = name_of(type(value))
        text, words, identity = how(inspection, value, depth, sure)
        return InspectedValue(f"{name}({text})", hash((name, words)), identity)

    return look_at


def _fraction(_: Inspection, value: Any, __: int, ___: bool) -> InspectedValue:  # noqa: FBT001
    base: Any = float if is_subclass(type(value), float) else complex
    text = base.__repr__(value)
    return InspectedValue(text, hash(text))


# --- containers ------------------------------------------------------------------


def _tuple(
    inspection: Inspection,
    value: Any,
    depth: int,
    sure: bool,  # noqa: FBT001
) -> InspectedValue:
    parts = inspected_items(inspection, tuple, value, depth, sure=sure)
    hashes = parts.hashes("tuple")
    if depth >= SHOWN:
        return InspectedValue(f"tuple of {parts.length}", *hashes)
    comma = "," if parts.length == 1 else ""
    return InspectedValue(f"({parts.texts()}{comma})", *hashes)


def _slice(
    inspection: Inspection,
    value: slice,
    depth: int,
    sure: bool,  # noqa: FBT001
) -> InspectedValue:
    text, *hashes = _tuple(
        inspection, (value.start, value.stop, value.step), depth, sure
    )
    return InspectedValue(f"slice{text}", *hashes)


def _list(inspection: Inspection, value: Any, depth: int, sure: bool) -> InspectedValue:  # noqa: FBT001
    parts = inspected_items(inspection, list, value, depth, sure=sure)
    shown = depth < SHOWN and type(value) is list
    name = name_of(type(value))
    text = f"[{parts.texts()}]" if shown else f"{name} of {parts.length}"
    return InspectedValue(text, *parts.hashes(name))


def _set(inspection: Inspection, value: Any, depth: int, sure: bool) -> InspectedValue:  # noqa: FBT001
    kind = type(value)
    base: Any = frozenset if is_subclass(kind, frozenset) else set
    count, name = base.__len__(value), name_of(kind)
    text = f"{name} of {count}"
    if (
        inspection.within_budget(count) < count
    ):  # an equal set may have a different order
        return InspectedValue(text, hash(text))
    items = list(base.__iter__(value))
    seen = [inspection.inspect(item, depth + 1, sure=sure) for item in items]
    words = hash((name, frozenset([one.words for one in seen])))
    identity = sum(one.identity for one in seen)
    if depth < SHOWN:
        inside = f"{{{joined(sorted([one.text for one in seen]))}}}"
        text = inside if kind is set else f"{name}({inside})"
    return InspectedValue(text, words, identity)


def _dict(inspection: Inspection, value: Any, depth: int, sure: bool) -> InspectedValue:  # noqa: FBT001
    kind, count = type(value), dict.__len__(value)
    name = name_of(kind)
    text = f"{name} of {count}"
    if inspection.within_budget(2 * count) < 2 * count:
        return InspectedValue(text, hash(text))
    sure = sure and kind is dict
    pairs = [
        (
            inspection.inspect(key, depth + 1, sure=sure),
            inspection.inspect(one, depth + 1, sure=sure),
        )
        for key, one in dict.items(dict.copy(value))
    ]
    words = hash((name, frozenset([(key.words, one.words) for key, one in pairs])))
    identity = sum(
        hash((key.identity, one.identity))
        for key, one in pairs
        if key.identity or one.identity
    )
    if depth < SHOWN:
        inside = f"{{{joined([f'{key.text}: {one.text}' for key, one in pairs])}}}"
        text = inside if kind is dict else f"{name}({inside})"
    return InspectedValue(text, words, identity)


_string, _bytes = _text_of(str), _text_of(bytes)

EXACT: tuple[tuple[type, How], ...] = (
    (type(None), _written),
    (type(...), _written),
    (bool, _written),
    (float, _written),
    (complex, _written),
    (range, _written),
    (slice, _slice),
    (int, _number),
    (str, _string),
    (bytes, _bytes),
    (tuple, _tuple),
    (list, _list),
    (set, _set),
    (frozenset, _set),
    (dict, _dict),
)
"""Inspectors by exact type."""

BELOW: tuple[tuple[type, How], ...] = (
    (int, _below(_number)),
    (float, _below(_fraction)),
    (complex, _below(_fraction)),
    (str, _below(_string)),
    (bytes, _below(_bytes)),
    (list, _list),
    (set, _set),
    (frozenset, _set),
    (dict, _dict),
)
"""Inspectors for subclasses of these."""
