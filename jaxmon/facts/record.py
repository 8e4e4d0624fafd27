"""Records of facts, and what they are as JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from math import isfinite
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform


NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The default of a field that is a mapping."""

_MOST_ITEMS = 1000
_MOST_CHARACTERS = 2000
_DEEPEST = 12
# Beyond it, JSON readers disagree on numbers.
_LARGEST = 1 << 63
# The name of a type, whatever its metaclass does.
_NAME = vars(type)["__qualname__"].__get__


@dataclass_transform(frozen_default=True)
class Fact:
    """
    A record of facts; each field has a default, which is never changed.

    For type checkers its subclasses are frozen dataclasses. To define one takes 10 µs,
    a fortieth of what a dataclass takes: an agent loads fifty of them while a program
    starts. Unlike a named tuple, a field can be called ``count``, and nothing takes a
    record for a list.

    A field that was not given is known to be unset: it is not encoded.

    Attributes:
        fields: names of its fields, as they are declared.
        by_name: the fields that are an object in JSON, in which each record has its
            ``name`` as key.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    by_name: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.fields = (*cls.fields, *cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        if values:
            named = {**dict(zip(self.fields, values, strict=False)), **named}
        self.__dict__ = named

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values in some fields."""
        return type(self)(**{**vars(self), **changes})

    def filled(self) -> Self:
        """Return a copy in which every field is given."""
        return type(self)(*self._values())

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.fields])

    def __eq__(self, other: object) -> bool:
        """Return whether *other* says the same."""
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({given})"


def encoded(value: object, depth: int = _DEEPEST) -> Any:
    """
    Return *value* in JSON types, with long texts and collections cut; of records, what
    was given.

    Values that JSON lacks (NaN, infinity) become `None`. Objects of other types are
    replaced by the type's name: their `repr` may be slow, or wait for a device.
    """
    # Exact types first: the classes of `numbers` and `collections.abc` are slow to ask.
    if (scalar := _SCALARS.get(type(value))) is not None:
        return scalar(value)
    by_name: tuple[str, ...] = ()
    if depth and isinstance(value, Fact):
        found, by_name = vars(value).copy(), value.by_name
    elif depth and isinstance(value, (dict, Mapping)):
        found = _entries(value)
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        return [encoded(item, depth - 1) for item in islice(value, _MOST_ITEMS)]
    elif isinstance(value, str):
        return _text(value)
    else:
        return _number(value) if isinstance(value, Real) else f"<{_NAME(type(value))}>"
    # Most are what they are in JSON: without a call of ours.
    depth -= 1
    for name, item in found.items():
        kind = type(item)
        if not (
            (kind is str and len(item) <= _MOST_CHARACTERS)
            or (kind is int and 0 <= item < _LARGEST)
            or (kind is float and isfinite(item))
            or item is None
            or kind is bool
            or (kind is dict and not item)
        ):
            if name in by_name:
                found[name] = dict(_named(item, depth))
            elif isinstance(item, Fact) and not vars(item):
                found[name] = {}
            else:
                found[name] = encoded(item, depth)
    return found


K = TypeVar("K")


def summed(pairs: Iterable[tuple[K, float]]) -> dict[K, float]:
    """Return the sum of the values of each key in *pairs*, by key."""
    found: dict[K, float] = defaultdict(float)
    for key, value in pairs:
        found[key] += value
    return dict(found)


def dumps(value: object) -> str:
    """Return the result of `encoded` as strict JSON."""
    # A tenth of the time goes into a search for cycles; there are none.
    return json.dumps(
        value, allow_nan=False, check_circular=False, separators=(",", ":")
    )


def last(values: Iterable[object], *, size: int) -> tuple[list[str], int]:
    """
    Return as JSON the last of *values* that fit into *size* characters, in order, and
    the number omitted.
    """
    values = list(values)
    texts: list[str] = []
    for value in reversed(values):
        text = dumps(encoded(value))
        size -= len(text) + 1
        if size < 0:
            break
        texts.append(text)
    return texts[::-1], len(values) - len(texts)


def _named(records: Iterable[Any], depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what was given in *records*, as `encoded` has it, with their names."""
    for record in islice(records, _MOST_ITEMS):
        found = encoded(record, depth)
        yield _text(record.name), found
        found.pop("name", None)


def _entries(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return what is in *value*, a copy, with short texts as keys."""
    if type(value) is dict and len(value) <= _MOST_ITEMS:
        for key in value:
            if type(key) is not str or len(key) > _MOST_CHARACTERS:
                break
        else:
            return value.copy()
    return {_key(key): item for key, item in islice(value.items(), _MOST_ITEMS)}


def _text(value: str) -> str:
    return str(value[:_MOST_CHARACTERS])


def _number(value: Real) -> int | float | None:
    return _whole(int(value)) if isinstance(value, Integral) else _real(float(value))


def _whole(value: int) -> int | None:
    return value if -_LARGEST <= value < _LARGEST else None


def _real(value: float) -> float | None:
    return value if isfinite(value) else None


_SCALARS: Mapping[type, Callable[[Any], Any]] = {
    type(None): lambda value: value,
    bool: bool,
    int: _whole,
    float: _real,
    str: _text,
}


def _key(key: object) -> str:
    return key[:_MOST_CHARACTERS] if isinstance(key, str) else str(encoded(key))
