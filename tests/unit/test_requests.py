"""
Requests that a program marks.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import jaxmon
from jaxmon.catalog import REQUEST_SECONDS, REQUESTS, REQUESTS_IN_PROGRESS
from jaxmon.indicators import requests
from jaxmon.indicators.requests import mark_cold
from tests.indicators import recording
from tests.support import run_python


COUNT, IN_PROGRESS = REQUESTS.name, REQUESTS_IN_PROGRESS.name
SECONDS_COUNT = f"{REQUEST_SECONDS.name}_count"


@pytest.fixture
def recorded():
    """
    Return what is recorded.
    """
    with recording() as found:
        yield found


def counts(recorded):
    """
    Return route, outcome and start of the requests that ended, with their number.
    """
    return {
        tuple(part.split('"')[1] for part in one.split(",")): value
        for one, value in recorded.samples().items()
        if one.startswith(COUNT) and value
    }


# --- what is counted ----------------------------------------------------------


def test_a_request_is_counted_when_it_ends(recorded):
    """
    Until then it is in progress; all its series are there, at 0.
    """
    with jaxmon.request("predict"):
        assert recorded.value(IN_PROGRESS, route="predict") == 1
        assert len(recorded.values(COUNT, route="predict")) == 6
        assert len(recorded.values(SECONDS_COUNT, route="predict")) == 2
        assert counts(recorded) == {}

    assert recorded.value(IN_PROGRESS, route="predict") == 0
    assert counts(recorded) == {("predict", "success", "warm"): 1}
    assert recorded.value(SECONDS_COUNT, start="warm") == 1
    assert recorded.value(SECONDS_COUNT, start="cold") == 0


def test_an_exception_is_an_error_and_goes_on(recorded):
    """
    The caller gets the very exception, and the agent is told of it.
    """
    problem = ValueError("no")
    with pytest.raises(ValueError, match="no") as caught, jaxmon.request("predict"):
        raise problem

    assert caught.value is problem
    assert recorded.errors == [problem]
    assert counts(recorded) == {("predict", "error", "warm"): 1}


@pytest.mark.parametrize("gone", [asyncio.CancelledError, GeneratorExit])
def test_a_cancelled_request_is_no_error(recorded, gone):
    """
    Who left before the answer came is a client's fault, not the service's.
    """
    with pytest.raises(gone), jaxmon.request("predict"):
        raise gone

    assert counts(recorded) == {("predict", "client_error", "warm"): 1}


def test_the_program_may_say_how_it_ended(recorded):
    """
    Its word counts for more than what left the block, and the end may be told early.
    """
    with jaxmon.request("predict") as request:
        request.outcome = "client_error"
        request.end()
        assert recorded.value(IN_PROGRESS) == 0

    assert counts(recorded) == {("predict", "client_error", "warm"): 1}


def test_requests_within_a_request_are_part_of_it(recorded):
    """
    Only the outermost is counted, whatever is nested how, and it learns of the cold.
    """
    inner = jaxmon.request("inner")

    @inner
    def answer():
        with inner, inner:
            mark_cold()

    with jaxmon.request("outer") as request, inner as same:
        assert same is request
        answer()

    with inner:
        pass
    assert counts(recorded) == {
        ("outer", "success", "cold"): 1,
        ("inner", "success", "warm"): 1,
    }


def test_a_task_that_outlives_its_request_has_requests_of_its_own(recorded):
    """
    The request that it was started in has ended, though its context goes on.
    """

    async def later(ended):
        await ended.wait()
        with jaxmon.request("later"):
            pass

    async def main():
        ended = asyncio.Event()
        with jaxmon.request("first"):
            task = asyncio.create_task(later(ended))
        ended.set()
        await task

    asyncio.run(main())

    assert counts(recorded) == {
        ("first", "success", "warm"): 1,
        ("later", "success", "warm"): 1,
    }


def test_tasks_that_start_tasks_hold_no_request_that_ended(recorded):
    """
    However long the chain becomes, memory does not grow with it.
    """

    def entries():
        gc.collect()
        return sum(isinstance(one, requests._Entry) for one in gc.get_objects())

    async def link(rest):
        with jaxmon.request("link"):
            following = asyncio.create_task(link(rest - 1)) if rest else None
        if following is None:
            return entries()
        return following

    async def main():
        task: Any = asyncio.create_task(link(50))
        while isinstance(task, asyncio.Task):
            task = await task
        return task

    before = entries()

    assert asyncio.run(main()) - before <= 2
    assert counts(recorded) == {("link", "success", "warm"): 51}


def test_concurrent_tasks_are_told_apart(recorded):
    """
    A compile in one task makes its request cold, and no other that is open.
    """

    async def serve(number, together):
        async with jaxmon.request("predict") as request:
            await together.wait()
            if number % 3 == 0:
                await asyncio.to_thread(mark_cold)
            assert request.cold == (number % 3 == 0)
            await together.wait()

    async def main():
        together = asyncio.Barrier(30)
        await asyncio.gather(*(serve(number, together) for number in range(30)))

    asyncio.run(main())

    assert counts(recorded) == {
        ("predict", "success", "cold"): 10,
        ("predict", "success", "warm"): 20,
    }


def test_one_object_serves_any_number_of_requests_at_once(recorded):
    """
    However blocks overlap, each ends its own request, in time for the next one of
    its task, and learns of its own compile only.
    """
    shared = jaxmon.request("shared")

    async def serve(cold, begun, end):
        async with shared as request:
            begun.set()
            await end.wait()
            if cold:
                mark_cold()
        assert request.cold == bool(cold)
        assert requests.serving() is None
        with shared:
            pass

    async def main():
        events = [asyncio.Event() for _ in range(4)]
        tasks = [
            asyncio.create_task(serve("cold", *events[:2])),
            asyncio.create_task(serve("", *events[2:])),
        ]
        await events[0].wait()
        await events[2].wait()
        for end, task in ((events[1], tasks[0]), (events[3], tasks[1])):
            end.set()
            await task

    asyncio.run(main())

    assert recorded.value(IN_PROGRESS) == 0
    assert counts(recorded) == {
        ("shared", "success", "cold"): 1,
        ("shared", "success", "warm"): 3,
    }


def test_a_thread_needs_the_context_to_tell_whose_compile_it_is(recorded):
    """
    With a copied context a pool's thread marks the request, without it cannot.
    """
    with ThreadPoolExecutor(1) as pool:
        with jaxmon.request("bare"):
            pool.submit(mark_cold).result()
        with jaxmon.request("copied"):
            pool.submit(contextvars.copy_context().run, mark_cold).result()

    assert counts(recorded) == {
        ("bare", "success", "warm"): 1,
        ("copied", "success", "cold"): 1,
    }


# --- decorators ---------------------------------------------------------------


def function(recorded):
    """
    Say how many requests are in progress.
    """
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
    """
    Return what a call of any kind yields in the end.
    """
    if hasattr(result, "__await__"):
        return await result
    if hasattr(result, "__aiter__"):
        return [item async for item in result].pop()
    return next(result) if hasattr(result, "__next__") else result


@pytest.mark.parametrize(
    "handler",
    HANDLERS.values(),
    ids=HANDLERS,
)
def test_functions_of_every_kind_are_decorated(recorded, handler):
    """
    A request lasts as long as the work, not as the call that begins it.
    """
    decorated = jaxmon.request("predict")(handler)
    for _ in range(3):
        assert asyncio.run(outcome_of(decorated(recorded))) == 1
    gc.collect()  # generators that nobody exhausted

    assert recorded.value(IN_PROGRESS) == 0
    assert recorded.value(COUNT) == 3


def test_a_decorated_function_keeps_name_and_result(recorded):
    """
    It looks like the original, and a generator's value is handed on.
    """
    decorated = jaxmon.request("predict")(function)

    def delegate():
        value = yield from jaxmon.request("predict")(generator)(recorded)
        assert value == "end"

    list(delegate())
    assert decorated.__name__ == "function"
    assert decorated.__doc__ == function.__doc__


def test_a_decorated_method_is_still_one(recorded):
    """
    It is bound to its instance.
    """

    class Service:
        @jaxmon.request("predict")
        def answer(self, number):
            return self, number

    service = Service()
    assert service.answer(number=3) == (service, 3)


# --- threads, generators, forks -----------------------------------------------


def test_sixty_four_threads_count_exactly(recorded):
    """
    No request is lost, and none stays in progress, though all share one object.
    """
    shared, start = jaxmon.request("shared"), threading.Barrier(64)

    def work(number):
        start.wait()
        for _ in range(50):
            with shared:
                pass
            with jaxmon.request(f"own{number % 4}") as request:
                request.cold = number % 2 == 0

    threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert recorded.value(COUNT, route="shared") == 64 * 50
    for number in range(4):
        start_ = "warm" if number % 2 else "cold"
        assert recorded.value(COUNT, route=f"own{number}", start=start_) == 16 * 50
    assert recorded.value(SECONDS_COUNT) == 2 * 64 * 50
    assert recorded.value(IN_PROGRESS) == 0


def test_a_generator_closed_on_another_thread_ends_its_request(recorded):
    """
    The thread's own request is not disturbed by that.
    """

    def pieces():
        with jaxmon.request("stream"):
            yield 1
            yield 2

    stream = pieces()
    next(stream)

    def close():
        with jaxmon.request("other") as request:
            stream.close()
            assert requests.serving() is request

    contextvars.Context().run(close)
    thread = threading.Thread(target=close)
    thread.start()
    thread.join()

    assert recorded.value(IN_PROGRESS) == 0
    assert counts(recorded) == {
        ("stream", "client_error", "warm"): 1,
        ("other", "success", "warm"): 2,
    }


def test_labels_are_bounded():
    """
    Routes beyond the limit share one, and each look-up of one is counted.
    """
    with recording(limit=2) as recorded:
        for route in ("a", "b", "c", "d", "c", "a"):
            with jaxmon.request(route):
                pass

        assert recorded.value(COUNT, route="a") == 2
        assert recorded.value(COUNT, route="other") == 3
        assert recorded.overflow()["route"] == 3


# --- nobody records, or recording fails ---------------------------------------


def test_nothing_happens_where_nobody_records():
    """
    Blocks run, decorated functions return, exceptions pass.
    """
    with jaxmon.request("predict") as request:
        request.outcome = "success"
        mark_cold()
    assert jaxmon.request("predict")(len)("abc") == 3
    with pytest.raises(KeyError), jaxmon.request("predict"):
        raise KeyError


def test_a_request_across_the_end_of_recording_is_dropped():
    """
    Neither the old figures nor the new ones hear of it.
    """
    with recording() as old:
        request = jaxmon.request("predict")
        request.__enter__()
    with recording() as new:
        request.__exit__(None, None, None)
        with jaxmon.request("next"):
            pass

        assert counts(old) == {}
        assert counts(new) == {("next", "success", "warm"): 1}


@pytest.mark.contained
@pytest.mark.parametrize("method", ["begin", "end"])
def test_a_failure_of_ours_is_contained(recorded, monkeypatch, method):
    """
    The request is served; the failure is counted, and told once.
    """

    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(requests_route(recorded), method, fail)
    for _ in range(20):
        with jaxmon.request("predict"):
            pass

    assert recorded.failures.failures() == {requests.SITE: 10}


def requests_route(recorded):
    """
    Return the class of the figures of routes.
    """
    return type(recorded.routes.of("predict"))


@pytest.mark.contained
def test_an_outcome_that_is_none_is_contained(recorded):
    """
    A word that is not in the catalogue makes no series.
    """
    with jaxmon.request("predict") as request:
        request.outcome = "fine"  # type: ignore[assignment]

    assert counts(recorded) == {}
    assert recorded.value(IN_PROGRESS) == 0
    assert recorded.failures.failures() == {requests.SITE: 1}


def test_a_forked_child_leaves_the_parents_requests_alone(run_dir):
    """
    Blocks that were open at the fork end without touching locks of the parent, and
    the child counts for itself.
    """
    program = """
import os, sys, threading
import jax, jaxmon
from tests.instrumented import SILENT, samples

def count(agent, route):
    return sum(v for s, v in samples(agent).items()
               if s.startswith("jaxmon_requests_total") and f'"{route}"' in s)

agent = jaxmon.instrument(**SILENT)
figures = agent._indicators
locked, go = threading.Event(), threading.Event()
def hold():
    with figures.timeline._lock, figures.routes.of("outer")._lock:
        locked.set()
        go.wait()
with jaxmon.request("outer"), jaxmon.activity("work"):
    for step in jaxmon.steps([1]):
        threading.Thread(target=hold).start()
        locked.wait()
        pid = os.fork()
        if pid:
            go.set()
            _, status = os.waitpid(pid, 0)
    if pid == 0:
        child = jaxmon.instrument(**SILENT)
        with jaxmon.request("own"):
            pass
        assert count(child, "own") == 1 and count(child, "outer") == 0
        print("child", flush=True)
if pid == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(status) == 0
assert count(agent, "outer") == 1
print("parent")
"""
    done = run_python("-W", "ignore", "-c", program, run_dir=run_dir, seconds=60).ok()

    assert done.out.split() == ["child", "parent"]
