"""A limit: its name, its default, and what it means."""

from __future__ import annotations

from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, overload


T = TypeVar("T", float, str)

Form: TypeAlias = Literal["count", "duration", "ratio"]


class Limit(Generic[T]):
    """
    A limit of `Limits`, whose attribute of that name is its value: a ``count`` above 0,
    a ``ratio`` between 0 and 1, or a ``duration`` as Prometheus has it, ``10m``.
    """

    def __init__(self, form: Form, default: T, meaning: str) -> None:
        self.name = ""
        self.form = form
        self.default: T = default
        self.meaning = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the *name* of the attribute."""
        self.name = name

    @overload
    def __get__(self, limits: None, owner: type) -> Self: ...

    @overload
    def __get__(self, limits: object, owner: type) -> T: ...

    def __get__(self, limits: Any, owner: type) -> Self | T:
        """Return the value in *limits*."""
        if limits is None:
            return self
        value: T = limits.changed.get(self.name, self.default)
        return value


def count(default: float, meaning: str) -> Limit[float]:
    """Return a limit that is a number above 0, of seconds if *meaning* says so."""
    return Limit("count", float(default), meaning)


def duration(default: str, meaning: str) -> Limit[str]:
    """Return a limit that is a length of time."""
    return Limit("duration", default, meaning)


def ratio(default: float, meaning: str) -> Limit[float]:
    """Return a limit that is a part of a whole."""
    return Limit("ratio", float(default), meaning)
