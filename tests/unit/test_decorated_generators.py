"""Decorated generators, whose steps are taken by others."""

import asyncio
import contextvars
import functools
import gc
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest

import jaxmon
from jaxmon.catalog import REQUESTS, REQUESTS_IN_PROGRESS
from jaxmon.indicators.work import mark_cold, serving


COUNT, IN_PROGRESS = REQUESTS.name, REQUESTS_IN_PROGRESS.name


def generator(recorded):
    yield recorded.value(IN_PROGRESS)
    return "end"


def tokens(*steps):
    """Compile in the second step, and say what is sent and thrown."""
    said = list(steps)
    for number in range(3):
        if number == 1:
            mark_cold()
        try:
            said.append((yield serving()))
        except LookupError as error:
            said.append(type(error))
    return said


async def async_tokens(*steps):
    said = list(steps)
    for number in range(3):
        await asyncio.sleep(0)
        if number == 1:
            mark_cold()
        try:
            said.append((yield serving()))
        except LookupError as error:
            said.append(type(error))


decorated_tokens = jaxmon.request("tokens")(tokens)
decorated_async_tokens = jaxmon.request("tokens")(async_tokens)


def in_thread(step):
    """Take a step on a thread of its own, whose context is a new one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(step).result()


STEPS = {
    "here": lambda step: step(),
    "in copies of the context": lambda step: contextvars.copy_context().run(step),
    "in new contexts": lambda step: contextvars.Context().run(step),
    "on threads": in_thread,
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_what_happens_in_a_step_is_on_behalf_of_its_request(recorded, step):
    """Whichever code requests the next item, the request is the generator's."""
    generator = decorated_tokens()
    seen = [step(functools.partial(next, generator, None)) for _ in range(4)]

    assert seen[0] is seen[1] is seen[2] is not None
    assert seen[3] is None
    assert serving() is None
    assert recorded.requests() == {("tokens", "success", "cold"): 1}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_generators_that_take_turns_are_requests_of_their_own(recorded, step):
    """Neither is within the other, in whatever order they begin and end."""
    first, second = decorated_tokens(), jaxmon.request("warm")(generator)(recorded)
    for one in (first, second, first, second, first, first):
        step(functools.partial(next, one, None))

    assert recorded.requests() == {
        ("tokens", "success", "cold"): 1,
        ("warm", "success", "warm"): 1,
    }
    assert recorded.value(IN_PROGRESS) == 0


@pytest.mark.parametrize("step", [*STEPS.values()][:3], ids=[*STEPS][:3])
def test_async_generators_have_their_requests_too(recorded, step):
    """Each step in a task of its own, two generators in turns."""

    async def run():
        first, second = decorated_async_tokens(), decorated_async_tokens()
        for _ in range(3):
            for one in (first, second):
                await step(lambda one=one: asyncio.create_task(anext(one)))
                assert serving() is None
        for one in (first, second):
            assert await anext(one, "end") == "end"

    asyncio.run(run())

    assert recorded.requests() == {("tokens", "success", "cold"): 2}


def test_between_steps_another_may_be_served(recorded):
    """What the consumer does is on behalf of its own request, or of none."""
    generator = decorated_tokens()
    next(generator)
    mark_cold()
    with jaxmon.request("consumer") as consumer:
        assert next(generator) is not consumer
        assert serving() is consumer
        next(generator)
    generator.close()

    assert recorded.requests() == {
        ("consumer", "success", "warm"): 1,
        ("tokens", "client_error", "cold"): 1,
    }


def test_a_generator_within_a_request_is_part_of_it(recorded):
    """As long as the request lasts, wherever its steps are taken; not afterwards."""
    with jaxmon.request("outer") as outer:
        generator = decorated_tokens()
        assert next(generator) is outer
        assert contextvars.Context().run(next, generator) is outer
        delegated = list(jaxmon.request("inner")(decorated_tokens)())
        assert delegated == [outer] * 3
    assert next(generator) is None
    with jaxmon.request("later"):
        assert next(generator, "end") == "end"

    assert recorded.requests() == {
        ("outer", "success", "cold"): 1,
        ("later", "success", "warm"): 1,
    }


def test_blocks_within_a_generator_are_kept_from_step_to_step(recorded):
    """A block around a yield is the generator's, and never seen by its consumer."""

    @jaxmon.request("outer")
    def blocks():
        with jaxmon.request("inner") as inner:
            yield inner
            assert serving() is inner
            yield inner
        assert serving() is inner
        yield inner

    generator = blocks()
    seen = [contextvars.copy_context().run(next, generator)]
    assert serving() is None
    seen += list(generator)

    assert len(seen) == 3
    assert len(set(map(id, seen))) == 1
    assert recorded.requests() == {("outer", "success", "warm"): 1}


def test_what_is_sent_and_thrown_reaches_the_generator(recorded):
    """As ``yield from`` hands it on, also to delegates, and the value comes back."""

    @jaxmon.request("outer")
    def delegate():
        return (yield from decorated_tokens("begun"))

    generator = delegate()
    next(generator)
    generator.send("sent")
    generator.throw(KeyError("thrown"))
    with pytest.raises(StopIteration) as end:
        next(generator)

    assert end.value.value == ["begun", "sent", KeyError, None]
    assert recorded.requests() == {("outer", "success", "cold"): 1}


def test_what_is_sent_and_thrown_reaches_the_async_generator(recorded):
    """An exception that it does not catch ends it, and its request."""
    reached = []

    @jaxmon.request("outer")
    async def echo():
        given = None
        while True:
            try:
                given = yield given
            except KeyError as error:
                given = error
            finally:
                reached.append(given)

    async def run():
        generator = echo()
        await anext(generator)
        assert await generator.asend("sent") == "sent"
        thrown = KeyError("thrown")
        assert await generator.athrow(thrown) is thrown
        with pytest.raises(ZeroDivisionError):
            await generator.athrow(ZeroDivisionError())
        closed = echo()
        await anext(closed)
        await closed.aclose()

    asyncio.run(run())

    assert len(reached) == 4
    assert recorded.requests() == {
        ("outer", "error", "warm"): 1,
        ("outer", "client_error", "warm"): 1,
    }


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_generator_may_be_left_early(recorded, step):
    """Closed, or dropped, in any context: its request ends then, and not before."""
    kept, dropped, never_begun = (decorated_tokens() for _ in range(3))
    step(functools.partial(next, kept))
    step(functools.partial(next, dropped))
    del dropped, never_begun
    gc.collect()
    assert recorded.requests() == {("tokens", "client_error", "warm"): 1}
    step(kept.close)

    assert recorded.requests() == {("tokens", "client_error", "warm"): 2}
    assert recorded.value(IN_PROGRESS) == 0
    assert serving() is None


def test_a_generator_that_fails_is_an_error(recorded):
    """The exception is the very same, without a context, and keeps nothing alive."""
    problem = ZeroDivisionError()

    @jaxmon.request("fails")
    def fails():
        yield
        yield

    generator = fails()
    next(generator)
    with pytest.raises(ZeroDivisionError) as caught:
        generator.throw(problem)

    assert caught.value is problem
    assert problem.__context__ is None
    assert recorded.errors == [problem]
    assert recorded.requests() == {("fails", "error", "warm"): 1}
    with pytest.raises(RuntimeError, match="StopIteration"):
        fails_to_stop()


def fails_to_stop():
    @jaxmon.request("stops")
    def stops():
        yield next(iter(()))

    return list(stops())


def test_a_generator_stays_one():
    """Frameworks ask what a function is before they call it."""
    assert inspect.isgeneratorfunction(decorated_tokens)
    assert inspect.isgenerator(decorated_tokens())
    assert inspect.isasyncgenfunction(decorated_async_tokens)
