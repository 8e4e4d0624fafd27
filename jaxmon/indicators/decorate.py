"""Decorates functions, coroutines and generators with a context per call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, TypeVar, cast


F = TypeVar("F", bound=Callable[..., Any])
Manager: TypeAlias = Callable[[], AbstractContextManager[object]]


class Step(Protocol):
    """What surrounds each step of a generator. A context manager costs more."""

    def enter(self) -> object:
        """Begin a step."""

    def leave(self) -> object:
        """End it, however it ended."""


def decorated(
    function: F, context: Manager, *, step: Callable[[], Step] | None = None
) -> F:
    """
    Return *function*, of any kind, with *context* around each call: around the work,
    which is awaiting a coroutine, exhausting a generator. *step* creates what surrounds
    each step of a generator: between them, the consumer runs, in any thread and
    context.
    """
    kind = kind_of(function)
    wrapper: Callable[..., Any]
    if inspect.iscoroutinefunction(kind):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                return await function(*args, **kwargs)

    elif inspect.isasyncgenfunction(kind):
        wrapper = _async_generator(function, context, step)
    elif inspect.isgeneratorfunction(kind):
        wrapper = _generator(function, context, step)
    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                return function(*args, **kwargs)

    return cast("F", functools.wraps(function)(wrapper))


def _generator(
    function: Callable[..., Any], context: Manager, step: Callable[[], Step] | None
) -> Callable[..., Any]:
    if step is None:

        def delegating(*args: Any, **kwargs: Any) -> Any:
            with context():
                return (yield from function(*args, **kwargs))

        return delegating

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        inside, items = step(), function(*args, **kwargs)
        enter, leave = inside.enter, inside.leave
        with _ManagerInStep(inside, context()):
            proceed, given = items.send, None
            while True:
                enter()
                try:
                    item = proceed(given)
                except StopIteration as end:
                    return end.value
                finally:
                    leave()
                    given = None  # an exception would keep itself alive
                try:
                    given = yield item
                    proceed = items.send
                except GeneratorExit:
                    with _StepContext(inside):
                        items.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown further in
                    proceed, given = items.throw, error

    return wrapper


def _async_generator(
    function: Callable[..., Any], context: Manager, step: Callable[[], Step] | None
) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        inside, items = step and step(), function(*args, **kwargs)
        with _ManagerInStep(inside, context()):
            proceed, given = items.asend, None
            while True:
                if inside is not None:
                    inside.enter()
                try:
                    item = await proceed(given)
                except StopAsyncIteration:
                    return
                finally:
                    if inside is not None:
                        inside.leave()
                    given = None  # an exception would keep itself alive
                try:
                    given = yield item
                    proceed = items.asend
                except GeneratorExit:
                    with _StepContext(inside):
                        await items.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown further in
                    proceed, given = items.athrow, error

    return wrapper


class _StepContext:
    """A step, or none, as a context manager."""

    def __init__(self, step: Step | None) -> None:
        self._step = step

    def __enter__(self) -> None:
        if self._step is not None:
            self._step.enter()

    def __exit__(self, *_: object) -> None:
        if self._step is not None:
            self._step.leave()


class _ManagerInStep:
    """*manager*, entered and left as if by a step of a generator."""

    def __init__(
        self, step: Step | None, manager: AbstractContextManager[object]
    ) -> None:
        self._step = _StepContext(step)
        self._manager = manager

    def __enter__(self) -> None:
        with self._step:
            self._manager.__enter__()

    def __exit__(self, *failure: Any) -> bool | None:  # noqa: PYI036 - passed on
        with self._step:
            return self._manager.__exit__(*failure)


def kind_of(function: Any) -> Callable[..., Any]:
    """Return the inner function, which determines the kind of a call."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    called: Callable[..., Any] = type(function).__call__
    return called
