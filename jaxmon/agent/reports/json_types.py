"""Converts arbitrary data to bounded JSON types."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from itertools import islice
from numbers import Integral, Real
from typing import Any

from jaxmon.agent.inspection import name_of


_MOST_ITEMS = 1000
_MOST_CHARACTERS = 2000
_DEEPEST = 12
# Beyond it, JSON readers disagree on numbers.
_LARGEST = 1 << 63


def plain(value: object, depth: int = _DEEPEST) -> Any:
    """
    Return *value* in JSON types, with long texts and collections cut.

    Values that JSON lacks (NaN, infinity) become `None`. Objects of other types are
    replaced by the type's name: their `repr` may be slow, or wait for a device.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value[:_MOST_CHARACTERS])
    if isinstance(value, Real):
        return _number(value)
    if depth and isinstance(value, Mapping):
        items = islice(value.items(), _MOST_ITEMS)
        return {_key(key): plain(one, depth - 1) for key, one in items}
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one, depth - 1) for one in islice(value, _MOST_ITEMS)]
    return f"<{name_of(type(value))}>"


def dumps(value: object) -> str:
    """Return the result of `plain` as strict JSON."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def last(values: Iterable[object], *, size: int) -> tuple[list[str], int]:
    """
    Return as JSON the last of *values* that fit into *size* characters, in order, and
    the number omitted.
    """
    values = list(values)
    texts: list[str] = []
    for value in reversed(values):
        text = dumps(plain(value))
        size -= len(text) + 1
        if size < 0:
            break
        texts.append(text)
    return texts[::-1], len(values) - len(texts)


def _number(value: Real) -> int | float | None:
    if isinstance(value, Integral):
        whole = int(value)
        return whole if -_LARGEST <= whole < _LARGEST else None
    return float(value) if math.isfinite(value) else None


def _key(key: object) -> str:
    return key[:_MOST_CHARACTERS] if isinstance(key, str) else str(plain(key))
