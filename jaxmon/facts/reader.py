"""
Untrusted JSON as records.

Values that are missing, not of the field's type, or implausible leave the field at its
default. All text is made safe to print on a terminal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from jaxmon.facts.record import Fact
from jaxmon.host.formats.layout import clean


T = TypeVar("T")

Reader = Callable[[object], Any]
"""Returns its argument as the type of a field, `None` if it is of another type."""


def from_json(kind: type[T], value: object) -> T:
    """
    Return *value* as the record or dataclass *kind*, whose fields all have defaults:
    text, numbers, switches, `Any`, literals, records, and tuples and mappings of these.
    A field of any other type is not read.

    An object in place of a list yields its values, each with its key as ``name``. A
    record in place of an object is read as that.
    """
    return sifted(kind, value)[0]


def sifted(kind: type[T], value: object) -> tuple[T, tuple[str, ...]]:
    """
    Return what `from_json` does, and the fields with implausible numbers: not finite,
    negative where none can be, or larger than anything that is measured.
    """
    dropped: dict[str, None] = {}
    with _noting(dropped):
        found: T = _record(kind)(mapping(value))
    return found, tuple(dropped)


def mapping(value: object) -> Mapping[str, Any]:
    """Return *value*, or an empty mapping if it is not a JSON object or a record."""
    if isinstance(value, Fact):
        return vars(value)
    return value if isinstance(value, Mapping) else {}


# Three centuries, the largest number of 64 bits, and more operations than any computer
# does in its life.
_MOST_SECONDS, _MOST_COUNT, _MOST = 1e10, float(1 << 63), 1e30
# Names of fields that cannot be negative; others may be losses, and differences.
_UNSIGNED = (
    r"^(?!saved|growth).*(?:seconds|bytes|ratio$)|^(?:count|calls|steps|starts)$"
)
_dropped: ContextVar[dict[str, None] | None] = ContextVar("dropped", default=None)

# Inspecting the types of fields takes time.
_readers: dict[Any, Reader] = {}


def _record(kind: Any) -> Reader:
    if (made := _readers.get(kind)) is not None:
        return made
    hints = get_type_hints(kind)
    readers = {
        name: reader
        for name, hint in hints.items()
        if (reader := _reader(hint, name)) is not None
    }

    def read(value: object) -> Any:
        if value is None:
            return None
        given = mapping(value)
        fields = ((name, given[name]) for name in given if name in readers)
        found = ((name, readers[name](item)) for name, item in fields)
        return kind(**{name: item for name, item in found if item is not None})

    _readers[kind] = read
    return read


def _reader(hint: Any, name: str) -> Reader | None:
    if hint in (float, int):
        return functools.partial(_plausible, name, hint, *_range(name, hint))
    if (scalar := _SCALARS.get(hint)) is not None:
        return scalar
    arguments, of = get_args(hint), get_origin(hint)
    if not arguments:
        is_record = issubclass(hint, Fact) or dataclasses.is_dataclass(hint)
        return _record(hint) if is_record else None
    if of is Literal:
        return functools.partial(_literal, arguments)
    inner = None if of is ClassVar else _reader(arguments[of is Mapping], name)
    if inner is None or of not in (Mapping, tuple):
        return inner  # or `None`
    return functools.partial(_mapping if of is Mapping else _tuple, inner)


def _range(name: str, kind: type) -> tuple[float, float]:
    """Return the least and the largest value that a field called *name* can have."""
    most = _MOST_SECONDS if "seconds" in name else _MOST_COUNT if kind is int else _MOST
    return (0.0 if re.search(_UNSIGNED, name) else -most), most


def _plausible(
    name: str, kind: type[int | float], least: float, most: float, value: object
) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # An integer may be too large for a float, but can be compared; NaN is in no range.
    if least <= value <= most:
        return kind(value)
    if (dropped := _dropped.get()) is not None:
        dropped[name] = None
    return None


@contextlib.contextmanager
def _noting(dropped: dict[str, None]) -> Iterator[None]:
    token = _dropped.set(dropped)
    try:
        yield
    finally:
        _dropped.reset(token)


def _literal(values: tuple[object, ...], value: object) -> object:
    return value if isinstance(value, str) and value in values else None


def _mapping(read: Reader, value: object) -> dict[str, Any]:
    found = ((key, read(item)) for key, item in mapping(value).items())
    return {clean(str(key)): item for key, item in found if item is not None}


def _tuple(read: Reader, value: object) -> tuple[Any, ...]:
    found = (read(item) for item in _items(value))
    return tuple(item for item in found if item is not None)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return ({**mapping(item), "name": name} for name, item in value.items())
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


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _any(value: object) -> object:
    """Return *value*, harmless if it is text; what is nested in it is read by name."""
    return clean(value) if isinstance(value, str) else value


_SCALARS = {str: _text, bool: _switch, Any: _any}
