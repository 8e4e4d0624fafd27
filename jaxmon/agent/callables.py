"""Inspects user callables without running their code."""

from __future__ import annotations

import functools
import types
from typing import Any

from jaxmon.agent.counted import uncounted
from jaxmon.agent.inspection import ABSENT, field_of, is_subclass


_FUNC = vars(functools.partial)["func"].__get__
_DEEPEST = 16


def inner(fun: object) -> Any:
    """Return the function inside partials, bound methods and decorators."""
    for _ in range(_DEEPEST):
        kind = type(fun)
        if kind is types.MethodType:
            fun = fun.__func__  # type: ignore[attr-defined]
        elif is_subclass(kind, functools.partial):
            fun = _FUNC(fun)
        elif kind is types.FunctionType and not fun.__dict__:
            break  # the common case: not wrapped
        else:
            wrapped = field_of(uncounted(fun), "__wrapped__")
            if wrapped is ABSENT:
                break
            fun = wrapped
    return fun


def code_of(fun: object) -> types.CodeType | None:
    """Return the code of *fun*, if it is a Python function."""
    return fun.__code__ if type(fun) is types.FunctionType else None


def place_of(fun: object) -> str | None:
    """Return ``file.py:12`` of the function inside *fun*, if there is one."""
    code = code_of(inner(fun))
    if code is None:
        return None
    file = code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{file}:{code.co_firstlineno}"


def bare_name(qualname: str) -> str:
    """
    Return the name without enclosing functions, such as ``<lambda>`` or ``Model.step``.
    """
    return qualname.rpartition("<locals>.")[2]
