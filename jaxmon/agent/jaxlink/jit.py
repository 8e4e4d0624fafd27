"""JAX's jitted objects, and copies of the code that creates them."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from typing import Any

from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.ownership import is_class


TYPE_NAME = "PjitFunction"
"""Name of the class of jitted objects, by which libraries recognise them."""


def is_jitted(fun: object) -> bool:
    """Return whether *fun* is a jitted object, of JAX or ours."""
    return name_of(type(fun)).endswith(TYPE_NAME)


def existing() -> list[Any]:
    """
    Return the compiled jitted objects of JAX in this process.

    JAX has no list of them that Python can read, so this goes through every object
    known to the garbage collector: about 50 ms, paid by users of a budget.
    """
    return [
        one
        for one in gc.get_objects()
        if name_of(type(one)) == TYPE_NAME and is_compiled(one)
    ]


def is_compiled(jitted: Any) -> bool:
    """Return whether JAX has programs for *jitted*, its own object or `None`."""
    return jitted is not None and jitted._cache_size() > 0  # noqa: SLF001 - told nowhere else


def donates(fun: object) -> bool:
    """
    Return whether *fun* may donate arguments: since 0.5 JAX records it for jitted
    functions.
    """
    info = getattr(fun, "_jit_info", None)
    donated = [
        getattr(info, name, None) for name in ("donate_argnums", "donate_argnames")
    ]
    return info is None or donated != [(), ()]


def exported(fun: object) -> Any:
    """
    Return the `jax.export.Exported` whose ``call`` is *fun*, `None` if there is none.
    """
    if type(fun) is not types.MethodType:
        return None
    kind = type(fun.__self__)
    is_one = name_of(kind) == "Exported" and is_class(kind)
    return fun.__self__ if is_one else None


def missing(original: Any) -> types.CodeType | None:
    """Return the code that a miss runs, from *original*, JAX's ``_cpp_pjit``."""
    code = getattr(original, "__code__", None)
    for one in getattr(code, "co_consts", ()):
        if isinstance(one, types.CodeType) and one.co_name == "cache_miss":
            return one
    return None


def with_code(
    original: Any, before: types.CodeType, after: types.CodeType
) -> Callable[..., Any]:
    """
    Return a copy of the function *original* with the code *before* replaced by *after*.
    """
    code = original.__code__
    constants = tuple([after if one is before else one for one in code.co_consts])
    return copied(original, code.replace(co_consts=constants))


def copied(
    function: types.FunctionType, code: types.CodeType | None = None
) -> types.FunctionType:
    """Return a copy of *function*, with *code* if given."""
    copy = types.FunctionType(
        code or function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def closure(function: Any) -> dict[str, Any]:
    """Return the free variables of *function*, without decorators, by name."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    cells = function.__closure__ or ()
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
    }
