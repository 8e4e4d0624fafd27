"""Decorated functions of every kind."""

import asyncio
import functools
import gc

import pytest

import jaxmon
from jaxmon.catalog import REQUESTS, REQUESTS_IN_PROGRESS


COUNT, IN_PROGRESS = REQUESTS.name, REQUESTS_IN_PROGRESS.name


def function(recorded):
    """Say how many requests are in progress."""
    return recorded.value(IN_PROGRESS)


async def coroutine(recorded):
    await asyncio.sleep(0)
    return recorded.value(IN_PROGRESS)


def generator(recorded):
    yield recorded.value(IN_PROGRESS)
    return "end"


async def async_generator(recorded):
    yield recorded.value(IN_PROGRESS)


class Model:
    def method(self, recorded):
        return recorded.value(IN_PROGRESS)

    def __call__(self, recorded):
        return recorded.value(IN_PROGRESS)


class AsyncModel:
    async def __call__(self, recorded):
        return recorded.value(IN_PROGRESS)


HANDLERS = {
    "function": function,
    "coroutine": coroutine,
    "generator": generator,
    "async generator": async_generator,
    "method": Model().method,
    "object": Model(),
    "async object": AsyncModel(),
    "partial": functools.partial(function),
    "partial coroutine": functools.partial(coroutine),
    "partial async object": functools.partial(AsyncModel()),
}


async def outcome_of(result):
    """Return what a call of any kind yields in the end."""
    if hasattr(result, "__await__"):
        return await result
    if hasattr(result, "__aiter__"):
        return [item async for item in result].pop()
    return next(result) if hasattr(result, "__next__") else result


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_functions_of_every_kind_are_decorated(recorded, handler):
    """A request lasts as long as the work, not as the call that begins it."""
    decorated = jaxmon.request("predict")(handler)
    for _ in range(3):
        assert asyncio.run(outcome_of(decorated(recorded))) == 1
    gc.collect()  # generators that nobody exhausted

    assert recorded.value(IN_PROGRESS) == 0
    assert recorded.value(COUNT) == 3


def test_a_decorated_function_keeps_name_and_result(recorded):
    """It looks like the original, and a generator's value is handed on."""
    decorated = jaxmon.request("predict")(function)

    def delegate():
        value = yield from jaxmon.request("predict")(generator)(recorded)
        assert value == "end"

    list(delegate())
    assert decorated.__name__ == "function"
    assert decorated.__doc__ == function.__doc__


def test_a_decorated_method_is_still_one(recorded):
    """It is bound to its instance."""

    class Service:
        @jaxmon.request("predict")
        def answer(self, number):
            return self, number

    service = Service()
    assert service.answer(number=3) == (service, 3)
