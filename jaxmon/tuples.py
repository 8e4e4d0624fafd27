"""Named tuples that are defined in a third of the time that `typing` takes for one."""

from __future__ import annotations

import functools
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Self


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - type checkers know this form
else:
    from collections import _tuplegetter  # as `namedtuple`: in C, where there is one

    class _Fields(tuple):
        """What all of them inherit, as `collections.namedtuple` has it."""

        __slots__ = ()
        _fields: tuple[str, ...] = ()

        def __repr__(self) -> str:
            given = [f"{name}={value!r}" for name, value in self._asdict().items()]
            return f"{type(self).__name__}({', '.join(given)})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changes: Any) -> Self:
            return type(self)(**{**self._asdict(), **changes})

    @functools.cache
    def _template(number: int) -> CodeType:
        given = ", ".join([f"_{n}" for n in range(number)])
        made = f"lambda _cls, {given}: _new(_cls, ({given},))"
        return compile(made, "<string>", "eval")

    def _code(fields: tuple[str, ...]) -> CodeType:
        # To compile it for each would take most of the time.
        (code, *_) = _template(len(fields)).co_consts
        return code.replace(co_varnames=("_cls", *fields))

    class _Definition(type):
        """Makes a tuple of what is declared in the body of a class."""

        def __new__(
            cls, name: str, bases: tuple[type, ...], body: dict[str, Any]
        ) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            new = FunctionType(_code(fields), {"_new": tuple.__new__})
            new.__defaults__ = tuple([body[field] for field in fields if field in body])
            new.__name__ = "__new__"
            new.__qualname__ = f"{name}.__new__"
            items = {field: _tuplegetter(n, None) for n, field in enumerate(fields)}
            added = {"__new__": new, "_fields": fields, "__match_args__": fields}
            return type(name, (_Fields,), {**body, **items, **added, "__slots__": ()})

    class NamedTuple(metaclass=_Definition):
        """The base of a named tuple, for type checkers that of `typing`."""
