"""Queues and pools that are followed behave as they would without jaxmon."""

import inspect
import queue
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import jaxmon
from jaxmon.agent import handoffs as notes
from jaxmon.agent.guard import Guard
from jaxmon.agent.handoffs import Handoffs
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.jaxlink.patches import Lookup
from tests.helpers.indicators import (
    PLACES,
    QUEUES,
    Item,
    Jax,
    compile_,
    following,
    in_thread,
    recording,
)


@pytest.fixture
def recorded() -> Iterator[Any]:
    """Record, and follow requests."""
    with following() as found:
        yield found


def test_items_and_order_are_the_programs(recorded):
    """Items are the same objects in the same order, and nothing keeps them."""
    for kind in QUEUES:
        waiting, mirror = kind(), kind()
        items = [Item(number) for number in (3, 1, 2)]
        with jaxmon.request("put"):
            for one in items:
                waiting.put(one)
                mirror._put(one)
        taken = [waiting.get_nowait() for _ in items]
        assert all(a is b for a, b in zip(taken, map(_next, [mirror] * 3), strict=True))
        gone = [weakref.ref(one) for one in items]
        del items, taken, one
        assert [one() for one in gone] == [None] * 3


def _next(waiting: Any) -> object:
    return waiting._get()


def test_one_object_may_be_in_a_queue_for_many(recorded):
    """As small integers and `None` are; it is taken in the order it was put."""
    waiting: queue.Queue[int] = queue.Queue()
    with jaxmon.request("first"):
        waiting.put(7)

        def others():
            waiting.put(7)  # no request
            with jaxmon.request("last"):
                waiting.put(7)
                waiting.get()
                in_thread(waiting.get)

                def batcher():
                    waiting.get()
                    compile_(recorded)

                in_thread(batcher)

        in_thread(others)

    assert recorded.requests() == {
        ("first", "success", "warm"): 1,
        ("last", "success", "cold"): 1,
    }


def test_no_frame_of_ours_is_in_a_traceback(recorded):
    """Neither of an empty or full queue, nor of items that cannot be compared."""

    def provoke() -> Iterator[Callable[[], object]]:
        yield queue.Queue[int]().get_nowait
        full = queue.Queue[int](1)
        full.put(1)
        yield lambda: full.put_nowait(2)
        odd = queue.PriorityQueue[Any]()
        odd.put(1)
        yield lambda: odd.put("text")
        with ThreadPoolExecutor(1) as pool:
            yield lambda: pool.submit(int, "x").result()

    with jaxmon.request("wrong"):
        for call in provoke():
            with pytest.raises((queue.Empty, queue.Full, TypeError, ValueError)) as got:
                call()
            frames = traceback.extract_tb(got.value.__traceback__)
            assert not [one for one in frames if "/jaxmon/" in one.filename]


def test_a_stack_has_no_frame_of_ours(recorded):
    """Where an item is compared, and where a pool calls a function."""
    seen: list[str] = []

    class Nosy(Item):
        def __lt__(self, other: Item) -> bool:
            seen.extend(one.filename for one in traceback.extract_stack())
            return super().__lt__(other)

    def nosy() -> None:
        seen.extend(one.filename for one in traceback.extract_stack())

    with jaxmon.request("look"), ThreadPoolExecutor(1) as pool:
        ordered: queue.PriorityQueue[Item] = queue.PriorityQueue()
        for number in (2, 1):
            ordered.put(Nosy(number))
        ordered.get()
        pool.submit(nosy).result()

    assert seen
    assert not [one for one in seen if "/jaxmon/" in one]


def test_everything_is_as_before_afterwards():
    """Each replaced method is restored, and looks the same meanwhile."""
    before = [vars(owner)[name] for owner, name in PLACES]
    hooks = Hooks(Jax(), Guard())
    with recording() as found:
        part = Handoffs(found.routes, Guard(), lambda *_: None)
        part.attach(hooks)
        during = [vars(owner)[name] for owner, name in PLACES]
        looked = [getattr(owner, name) for owner, name in PLACES]
        bound = queue.Queue[int]().get
        part.stop()
        hooks.detach()

    assert all(type(one) is Lookup for one in during)
    assert looked == before
    assert inspect.ismethod(bound)
    assert [vars(owner)[name] for owner, name in PLACES] == before


def test_a_subclass_with_an_order_of_its_own_is_left_alone(recorded):
    """It may keep its items anywhere."""

    class Odd(queue.Queue[Item]):
        def _init(self, maxsize: int) -> None:
            del maxsize
            self.queue: Any = set()

        def _put(self, item: Item) -> None:
            self.queue.add(item)

        def _get(self) -> Any:
            return self.queue.pop()

    waiting, item = Odd(), Item()
    with jaxmon.request("odd"):
        waiting.put(item)
        assert waiting.get() is item

    assert recorded.failures.failures() == {}


def test_memory_is_bounded(recorded):
    """A request that puts and takes without end keeps nothing."""
    waiting: queue.Queue[object] = queue.Queue()
    with jaxmon.request("stream") as request:
        for _ in range(5000):
            waiting.put(object())
            waiting.get()
        assert not request.notes
        for _ in range(5000):
            waiting.put(object())
        assert request.notes is not None
        assert len(request.notes) == len(notes._waiting) == 1000
