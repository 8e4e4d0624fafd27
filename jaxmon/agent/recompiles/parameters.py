"""
Names of a call's positional arguments, from the jitted callable.

`inspect.signature` trusts ``__wrapped__`` and ``__signature__``, and so does JAX: for a
decorator whose arguments differ from those of the wrapped function, they give the wrong
names. The code object of the callable has the right ones, and reading it runs no user
code.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Collection
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.counted import uncounted
from jaxmon.agent.inspection import ABSENT, field_of, found_in, is_subclass


# Maximum number of nested wrappers.
_DEEP = 32

_REST = inspect.CO_VARARGS

# Of the class itself, whatever a subclass overrides.
_FUNC = functools.partial.func.__get__
_ARGS = functools.partial.args.__get__
_KEYWORDS = functools.partial.keywords.__get__


class Parameters(NamedTuple):
    """
    Parameters of a callable.

    Attributes:
        positional: names of positional parameters, in order.
        required: how many of these have no default.
        rest: name of the ``*args`` parameter, `None` if there is none.
        named: whether it has a ``**kwargs`` parameter.
        keywords: names of keyword-only parameters.
    """

    positional: tuple[str, ...] = ()
    required: int = 0
    rest: str | None = None
    named: bool = False
    keywords: tuple[str, ...] = ()


def parameters_of(
    fun: object, count: int = 0, keywords: Collection[str] = ()
) -> Parameters:
    """
    Return the parameters of *fun*; never raises, and runs no user code.

    A callable whose only positional parameter is ``*args``, as created by `jax.grad`
    and most decorators, is assumed to pass them through to the wrapped function, if
    that accepts them.

    Args:
        fun: any callable.
        count: number of positional arguments in the call.
        keywords: names of keyword arguments in the call.
    """
    if type(fun) is types.FunctionType and not fun.__code__.co_flags & _REST:
        return _of_code(fun, 0)  # the common case
    found: Parameters | None = None
    given, by_name = 0, set(keywords)
    for _ in range(_DEEP):
        while True:
            if is_subclass(type(fun), functools.partial):
                given += len(_ARGS(fun))
                by_name.update(_KEYWORDS(fun))
                fun = _FUNC(fun)
            elif type(fun) is types.MethodType:
                given += 1
                fun = fun.__func__
            else:
                break
        taken = _own(fun, given)
        if found is None or _takes(taken, count, by_name):
            found = taken
        if taken.positional or not taken.rest:
            break
        fun = field_of(uncounted(fun), "__wrapped__")
        if fun is ABSENT:
            break
    return found or Parameters(rest="args")


def _own(fun: Any, given: int) -> Parameters:
    """
    Return the parameters of *fun* itself, regardless of what it wraps, after *given*
    arguments.
    """
    if type(fun) is types.FunctionType:
        return _of_code(fun, given)
    if type(fun) is types.BuiltinFunctionType:
        return _of_builtin(fun, given)
    called = found_in(type(fun), "__call__")
    if type(called) is types.FunctionType:
        return _of_code(called, given + 1)
    return Parameters(rest="args", named=True)


def _of_code(fun: types.FunctionType, given: int) -> Parameters:
    code = fun.__code__
    names = code.co_varnames
    positional = names[: code.co_argcount]
    keywords = names[code.co_argcount :][: code.co_kwonlyargcount]
    beyond = code.co_argcount + code.co_kwonlyargcount
    required = len(positional) - len(fun.__defaults__ or ())
    return Parameters(
        positional[given:],
        max(required - given, 0),
        names[beyond] if code.co_flags & _REST else None,
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
        keywords,
    )


def _of_builtin(fun: types.BuiltinFunctionType, given: int) -> Parameters:
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError) as error:
        interrupts.pass_on(error)
        return Parameters(rest="args", named=True)
    names = [
        one.name
        for one in parameters
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return Parameters(tuple(names[given:]), named=True)


def _takes(parameters: Parameters, count: int, keywords: Collection[str]) -> bool:
    """
    Return whether *parameters* accept *count* positional arguments and these
    *keywords*.
    """
    positional = parameters.positional
    if count > len(positional) and parameters.rest is None:
        return False
    if not set(positional[count : parameters.required]) <= set(keywords):
        return False
    by_name = {*positional[count:], *parameters.keywords}
    return parameters.named or set(keywords) <= by_name
