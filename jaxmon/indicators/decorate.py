"""
Functions of every kind, each call within a context of its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing
from typing import Any, TypeVar, cast


F = TypeVar("F", bound=Callable[..., Any])


def decorated(function: F, context: Callable[[], AbstractContextManager[object]]) -> F:
    """
    Return *function* with *context* around each call.

    Around the work, that is: awaiting a coroutine, exhausting a generator.
    """
    kind = _kind(function)
    wrapper: Callable[..., Any]
    if inspect.iscoroutinefunction(kind):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                return await function(*args, **kwargs)

    elif inspect.isasyncgenfunction(kind):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                async with aclosing(function(*args, **kwargs)) as items:
                    async for item in items:
                        yield item

    elif inspect.isgeneratorfunction(kind):

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                return (yield from function(*args, **kwargs))

    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                return function(*args, **kwargs)

    return cast("F", functools.wraps(function)(wrapper))


def _kind(function: Any) -> Callable[..., Any]:
    """
    Return the function inside that tells what a call is.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    called: Callable[..., Any] = type(function).__call__
    return called
