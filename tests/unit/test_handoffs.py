"""Requests across queues and thread pools, without JAX."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import jaxmon
from jaxmon.indicators.endings import End, now
from jaxmon.indicators.work import compile_begins
from tests.helpers.indicators import ASYNC, QUEUES, Item, compile_, following, in_thread


@pytest.fixture
def recorded() -> Iterator[Any]:
    """Record, and follow requests."""
    with following() as found:
        yield found


# --- who is cold --------------------------------------------------------------------


@pytest.mark.parametrize("kind", QUEUES)
def test_a_thread_that_takes_an_item_compiles_for_its_request(recorded, kind):
    """For that of the item that was taken, and of no other."""
    waiting = kind()

    def batcher():
        waiting.get()
        compile_(recorded)

    with jaxmon.request("first"):
        waiting.put(Item(1))
        in_thread(batcher)
    with jaxmon.request("second"):
        waiting.put(Item(2))
        in_thread(waiting.get)

    assert recorded.requests() == {
        ("first", "success", "cold"): 1,
        ("second", "success", "warm"): 1,
    }


@pytest.mark.parametrize("kind", ASYNC)
@pytest.mark.parametrize("limit", [None, 60])
def test_a_task_that_takes_items_compiles_for_their_requests(recorded, kind, limit):
    """On a thread as well, and if each `get` has a time limit."""

    async def serve(waiting, route):
        with jaxmon.request(route):
            done = asyncio.get_running_loop().create_future()
            item: Any = Item()
            item.done = done
            await waiting.put(item)
            await done

    async def batcher(waiting):
        for size in (2, 1):
            items: list[Any] = []
            while len(items) < size:
                items.append(await asyncio.wait_for(waiting.get(), limit))
            if size > 1:
                await asyncio.to_thread(compile_, recorded)
            for one in items:
                one.done.set_result(None)

    async def main():
        waiting = kind()
        task = asyncio.create_task(batcher(waiting))
        await asyncio.gather(serve(waiting, "a"), serve(waiting, "b"))
        await serve(waiting, "c")
        await task

    asyncio.run(main())

    assert recorded.requests() == {
        ("a", "success", "cold"): 1,
        ("b", "success", "cold"): 1,
        ("c", "success", "warm"): 1,
    }


def test_what_a_pool_runs_is_for_the_request_that_submitted_it(recorded):
    """And what it runs next is not, although it is the same thread."""
    with ThreadPoolExecutor(1) as pool:
        with jaxmon.request("first"):
            pool.submit(compile_, recorded).result()
        with jaxmon.request("second"):
            holder = [pool]
            in_thread(lambda: holder[0].submit(compile_, recorded).result())

    found = recorded.requests()
    assert found["first", "success", "cold"] == 1
    assert ("second", "success", "cold") not in found


def test_a_pipeline_hands_requests_on(recorded):
    """A stage that puts something else into the next queue does so for what it took."""
    raw, ready = queue.Queue[Item](), queue.Queue[list[Item]]()

    def collect():
        ready.put([raw.get(), raw.get()])

    def batcher():
        ready.get()
        compile_(recorded)

    with jaxmon.request("one"):
        raw.put(Item())

        def another():
            with jaxmon.request("two"):
                raw.put(Item())
                in_thread(collect)
                in_thread(batcher)

        in_thread(another)

    assert recorded.requests() == {
        ("one", "success", "cold"): 1,
        ("two", "success", "cold"): 1,
    }


def test_a_request_that_has_succeeded_was_not_waiting_for_a_compile(recorded):
    """The thread took its item, delivered, and compiles for the next request."""
    waiting: queue.Queue[Item] = queue.Queue()
    end: End = []
    steps = [threading.Event() for _ in range(2)]

    def batcher():
        waiting.get()
        waiting.get()
        compile_begins(recorded.compiles, now(), end)
        steps[0].set()
        steps[1].wait(60)
        end.append(now())

    thread = threading.Thread(target=batcher)
    thread.start()
    with jaxmon.request("waits"):
        with jaxmon.request("nested"):
            waiting.put(Item())

        def delivered():
            with jaxmon.request("delivered"):
                waiting.put(Item())
                steps[0].wait(60)

        in_thread(delivered)
        steps[1].set()
        thread.join()

    assert recorded.requests() == {
        ("delivered", "success", "warm"): 1,
        ("waits", "success", "cold"): 1,
    }


def test_one_that_gave_up_was_waiting(recorded):
    """A time limit ends a request before the compile on its behalf."""
    waiting: queue.Queue[Item] = queue.Queue()
    end: End = []

    def batcher():
        waiting.get()
        compile_begins(recorded.compiles, now(), end)

    with suppress(TimeoutError), jaxmon.request("slow"):
        waiting.put(Item())
        in_thread(batcher)
        raise TimeoutError
    end.append(now())

    assert recorded.requests() == {("slow", "error", "cold"): 1}


# --- who is delayed -----------------------------------------------------------------


def test_an_item_that_waited_while_its_taker_compiled_is_delayed(recorded):
    """The compile was for another; once it is over, the next is warm."""
    waiting: queue.Queue[Item | None] = queue.Queue()
    took, go = threading.Event(), threading.Event()

    def batcher():
        waiting.get()
        took.set()
        go.wait(60)
        compile_(recorded)
        while waiting.get() is not None:
            took.set()

    def serve(route, *, then=None):
        with jaxmon.request(route):
            took.clear()
            waiting.put(Item())
            if then is not None:
                took.wait(60)
                then()
            else:
                go.set()
            took.wait(60)

    thread = threading.Thread(target=batcher)
    thread.start()
    serve("cold", then=lambda: in_thread(lambda: serve("delayed")))
    with jaxmon.request("warm"):
        took.clear()
        waiting.put(Item())
        took.wait(60)
    waiting.put(None)
    thread.join()

    assert recorded.requests() == {
        ("cold", "success", "cold"): 1,
        ("delayed", "success", "delayed"): 1,
        ("warm", "success", "warm"): 1,
    }


def test_an_item_still_in_its_queue_was_delayed(recorded):
    """Its request gave up while something compiled."""
    waiting: queue.Queue[Item] = queue.Queue()
    with suppress(TimeoutError), jaxmon.request("slow"):
        waiting.put(Item())
        in_thread(lambda: compile_(recorded))
        raise TimeoutError

    assert recorded.requests() == {("slow", "error", "delayed"): 1}


# --- named by the program -----------------------------------------------------------


@pytest.mark.parametrize("block", [True, False])
def test_a_batch_compiles_for_the_requests_that_it_names(recorded, block):
    """With a block and as a call; the next batch is for the next."""
    taken: list[Any] = []

    def run(*requests, new):
        batch = jaxmon.batch("predict", size=1, capacity=2, requests=requests)
        if block:
            with batch:
                return compile_(recorded) if new else None
        return compile_(recorded) if new else None

    def batcher():
        run(taken[0], None, new=True)
        run(taken[1], new=False)

    with jaxmon.request("first") as first:

        def second():
            with jaxmon.request("second") as two:
                taken.extend([first, two])
                in_thread(batcher)

        in_thread(second)

    # The second waited while its batcher compiled for the first.
    assert recorded.requests() == {
        ("first", "success", "cold"): 1,
        ("second", "success", "delayed"): 1,
    }


def test_a_batch_that_names_nonsense_is_only_counted(recorded):
    """Whatever is not a request is ignored."""
    nonsense: Any = [object(), None, 3]
    with jaxmon.batch("predict", size=1, capacity=2, requests=nonsense):
        compile_(recorded)

    assert recorded.value("jaxmon_batch_fill_ratio_count", route="predict") == 1


def test_without_an_agent_a_batch_is_nothing():
    """With a block as well."""
    with jaxmon.batch("predict", size=1, capacity=2, requests=[]):
        pass
