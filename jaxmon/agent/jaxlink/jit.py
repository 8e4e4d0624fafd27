"""Code objects of JAX: which one a miss runs, and copies that tell whose miss it is."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def missing(original: Any) -> types.CodeType | None:
    """Return the code that *original*, JAX's ``_cpp_pjit``, has a miss run."""
    code = getattr(original, "__code__", None)
    for one in getattr(code, "co_consts", ()):
        if isinstance(one, types.CodeType) and one.co_name == "cache_miss":
            return one
    return None


def with_code(
    original: Any, before: types.CodeType, after: types.CodeType
) -> Callable[..., Any]:
    """
    Return a copy of the function *original* that has *after* in place of *before*.
    """
    code = original.__code__
    constants = tuple([after if one is before else one for one in code.co_consts])
    copy = types.FunctionType(
        code.replace(co_consts=constants),
        original.__globals__,
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    copy.__kwdefaults__ = original.__kwdefaults__
    return copy


def closure(function: Any) -> dict[str, Any]:
    """Return the free variables of *function*, decorators taken off, by name."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    cells = function.__closure__ or ()
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
    }
