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
# Beyond it, readers of JSON no longer agree on what a number is.
_LARGEST = 1 << 63


def plain(value: object, depth: int = _DEEPEST) -> Any:
    """
    Return *value* in JSON types, long texts and collections cut.

    What JSON lacks (not a number, infinity) becomes `None`. Of an object of another
    type only the type is told: its own text may be slow to make, or wait for a device.
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
    """Return what `plain` returned as strict JSON: any reader takes it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def last(values: Iterable[object], *, size: int) -> tuple[list[str], int]:
    """
    Return as JSON the last of *values* that fit into *size* characters together, in
    their order, and how many are left out.
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
