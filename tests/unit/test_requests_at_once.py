"""Requests of many tasks and threads at once."""

import asyncio
import contextvars
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import jaxmon
from jaxmon.catalog import (
    REQUEST_OLDEST_SECONDS,
    REQUEST_SECONDS,
    REQUESTS,
    REQUESTS_IN_PROGRESS,
)
from jaxmon.indicators import work
from jaxmon.indicators.work import mark_cold
from tests.helpers.agents import at_once


COUNT, IN_PROGRESS = REQUESTS.name, REQUESTS_IN_PROGRESS.name
OLDEST = REQUEST_OLDEST_SECONDS.name
SECONDS_COUNT = f"{REQUEST_SECONDS.name}_count"


def test_a_task_that_outlives_its_request_has_requests_of_its_own(recorded):
    """The request that it was started in has ended, though its context goes on."""

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

    assert recorded.requests() == {
        ("first", "success", "warm"): 1,
        ("later", "success", "warm"): 1,
    }


def test_tasks_that_start_tasks_hold_no_request_that_ended(recorded):
    """However long the chain becomes, memory does not grow with it."""

    def entries():
        gc.collect()
        return sum(isinstance(one, work.RequestEntry) for one in gc.get_objects())

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
    assert recorded.requests() == {("link", "success", "warm"): 51}


def test_concurrent_tasks_are_told_apart(recorded):
    """A compile in one task makes its request cold, and no other that is open."""

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

    assert recorded.requests() == {
        ("predict", "success", "cold"): 10,
        ("predict", "success", "warm"): 20,
    }


def test_one_object_serves_any_number_of_requests_at_once(recorded):
    """Overlapping blocks each end their request and learn of their compile only."""
    shared = jaxmon.request("shared")

    async def serve(cold, begun, end):
        async with shared as request:
            begun.set()
            await end.wait()
            if cold:
                mark_cold()
        assert request.cold == bool(cold)
        assert work.serving() is None
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
    assert recorded.requests() == {
        ("shared", "success", "cold"): 1,
        ("shared", "success", "warm"): 3,
    }


def test_a_thread_needs_the_context_to_tell_whose_compile_it_is(recorded):
    """With a copied context a pool's thread marks the request, without it cannot."""
    with ThreadPoolExecutor(1) as pool:
        with jaxmon.request("bare"):
            pool.submit(mark_cold).result()
        with jaxmon.request("copied"):
            pool.submit(contextvars.copy_context().run, mark_cold).result()

    assert recorded.requests() == {
        ("bare", "success", "warm"): 1,
        ("copied", "success", "cold"): 1,
    }


def test_sixty_four_threads_count_exactly(recorded):
    """No request is lost, and none stays in progress, though all share one object."""
    shared, start = jaxmon.request("shared"), threading.Barrier(64)

    def work(number):
        start.wait()
        for _ in range(50):
            with shared:
                pass
            with jaxmon.request(f"own{number % 4}") as request:
                request.cold = number % 2 == 0

    at_once(*[partial(work, n) for n in range(64)])

    assert recorded.value(COUNT, route="shared") == 64 * 50
    for number in range(4):
        start_ = "warm" if number % 2 else "cold"
        assert recorded.value(COUNT, route=f"own{number}", start=start_) == 16 * 50
    assert recorded.value(SECONDS_COUNT) == 2 * 64 * 50
    assert recorded.value(IN_PROGRESS) == 0


def test_a_generator_closed_on_another_thread_ends_its_request(recorded):
    """The thread's own request is not disturbed by that."""

    def pieces():
        with jaxmon.request("stream"):
            yield 1
            yield 2

    stream = pieces()
    next(stream)

    def close():
        with jaxmon.request("other") as request:
            stream.close()
            assert work.serving() is request

    contextvars.Context().run(close)
    thread = threading.Thread(target=close)
    thread.start()
    thread.join()

    assert recorded.value(IN_PROGRESS) == 0
    assert recorded.requests() == {
        ("stream", "client_error", "warm"): 1,
        ("other", "success", "warm"): 2,
    }


def test_the_oldest_request_of_a_route_is_the_one_that_began_first(recorded):
    """Whatever begins or ends meanwhile; when it ends, the next takes its place."""
    before = time.perf_counter()
    requests_ = [jaxmon.request("predict") for _ in range(2)]
    first = contextvars.Context().run(requests_[0].__enter__)
    began = time.perf_counter()
    second = contextvars.Context().run(requests_[1].__enter__)
    for _ in range(100):
        with jaxmon.request("predict"), jaxmon.request("predict"):
            pass
    with jaxmon.request("other"):
        pass

    read = time.perf_counter()
    age = recorded.value(OLDEST, route="predict")
    assert read - began <= age <= time.perf_counter() - before
    assert recorded.values(OLDEST, route="other") == [0]

    first.end()
    between = recorded.value(OLDEST, route="predict")
    assert 0 < between <= time.perf_counter() - began

    second.end()
    assert recorded.values(OLDEST, route="predict") == [0]


def test_no_request_stays_the_oldest_after_its_end(recorded):
    """
    Neither one that is cancelled, nor one that fails, nor one in a generator that is
    never finished, nor one that is forgotten without leaving its block, nor one that
    ended in another thread or while its queue still had its item.
    """

    async def cancelled():
        async def wait():
            async with jaxmon.request("predict"):
                waiting.set_result(None)
                await asyncio.Event().wait()

        waiting = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(wait())
        await waiting
        assert recorded.value(OLDEST) > 0
        task.cancel()
        await asyncio.wait([task])

    @jaxmon.request("predict")
    def pieces():
        yield 1
        yield 2

    async def queued():
        items: asyncio.Queue[str] = asyncio.Queue()
        with jaxmon.request("predict"):
            items.put_nowait("item")
        assert recorded.value(OLDEST) == 0
        items.get_nowait()

    asyncio.run(cancelled())
    assert recorded.values(OLDEST) == [0]

    with pytest.raises(ZeroDivisionError), jaxmon.request("predict"):
        _ = 1 / 0
    assert recorded.values(OLDEST) == [0]

    left = pieces()
    assert next(left) == 1
    assert recorded.value(OLDEST) > 0
    del left
    gc.collect()
    assert recorded.values(OLDEST) == [0]

    jaxmon.request("predict").__enter__()
    gc.collect()
    assert recorded.values(OLDEST) == [0]

    elsewhere = jaxmon.request("predict")
    entered = contextvars.copy_context().run(elsewhere.__enter__)
    thread = threading.Thread(target=entered.end)
    thread.start()
    thread.join()
    assert recorded.values(OLDEST) == [0]

    asyncio.run(queued())
    assert recorded.values(OLDEST) == [0]
