"""
Untrusted JSON as dataclasses.

Values that are missing, or not of the field's type, leave the field at its default. All
text is made safe to print on a terminal.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from jaxmon.report.layout import clean


T = TypeVar("T")

Reader: TypeAlias = Callable[[object], Any]
"""Returns its argument as the type of a field, `None` if it is of another type."""


def from_json(kind: type[T], value: object) -> T:
    """
    Return *value* as the dataclass *kind*, whose fields all have defaults: text,
    numbers, switches, `Any`, dataclasses, and tuples and mappings of these.

    An object in place of a list yields its values, each with its key as ``name``.
    """
    found: T = _dataclass(kind)(value)
    return found


def mapping(value: object) -> Mapping[str, Any]:
    """Return *value*, or an empty mapping if it is not a JSON object."""
    return value if isinstance(value, Mapping) else {}


# Inspecting the types of fields takes time.
_known: dict[Any, Reader] = {}


def _dataclass(kind: Any) -> Reader:
    """Return what reads a *kind*."""
    if (made := _known.get(kind)) is not None:
        return made
    readers = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}

    def read(value: object) -> Any:
        given = mapping(value)
        known = ((name, given[name]) for name in given if name in readers)
        found = ((name, readers[name](one)) for name, one in known)
        return kind(**{name: one for name, one in found if one is not None})

    _known[kind] = read
    return read


def _reader(hint: Any) -> Reader:
    if (scalar := _SCALARS.get(hint)) is not None:
        return scalar
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    arguments = get_args(hint)
    if get_origin(hint) is Mapping:
        return functools.partial(_mapping, _reader(arguments[1]))
    if get_origin(hint) is tuple:
        return functools.partial(_tuple, _reader(arguments[0]))
    return _reader(arguments[0])  # or `None`


def _mapping(read: Reader, value: object) -> dict[str, Any]:
    found = ((key, read(one)) for key, one in mapping(value).items())
    return {clean(str(key)): one for key, one in found if one is not None}


def _tuple(read: Reader, value: object) -> tuple[Any, ...]:
    found = (read(one) for one in _items(value))
    return tuple(one for one in found if one is not None)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return ({**mapping(one), "name": name} for name, one in value.items())
    return value if isinstance(value, (list, tuple)) else ()


def _text(value: object) -> str | None:
    """Return *value* in one harmless line, a number as text."""
    if isinstance(value, str):
        return clean(value)
    return None if (number := _number(value)) is None else f"{number:.0f}"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 300 digits
        return None
    return number if math.isfinite(number) else None


def _whole(value: object) -> int | None:
    return None if (number := _number(value)) is None else int(number)


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _any(value: object) -> object:
    """Return *value*, harmless if it is text; what is nested in it is read by name."""
    return clean(value) if isinstance(value, str) else value


_SCALARS = {str: _text, float: _number, int: _whole, bool: _switch, Any: _any}
