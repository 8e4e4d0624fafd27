"""The jitted objects of a function that are live, and the sum of their calls."""

import functools
import threading

from jaxmon.agent.counted import CountedFunction
from jaxmon.agent.functions import LiveObjects
from tests.helpers.agents import at_once, switching_often


def counted(objects: LiveObjects) -> CountedFunction:
    """Return what is one of *objects*; what it calls stands for JAX's object."""
    made = CountedFunction(functools.partial(int), lambda jitted: jitted)
    objects.add(made)
    return made


def test_a_sum_keeps_what_objects_that_ended_had_counted() -> None:
    """An object that ended counts on as a number, once, and none is kept alive."""
    objects = LiveObjects()
    first, second = counted(objects), counted(objects)
    for _ in range(3):
        first(), second()
    assert objects.calls == 6
    del first
    assert [one for _, one in objects.newest_first()] == [second]
    assert objects.calls == 6
    second()

    assert objects.calls == objects.calls == 7


def test_the_newest_object_comes_first_and_keeps_its_number() -> None:
    """However many others end meanwhile."""
    objects = LiveObjects()
    kept = [counted(objects) for _ in range(3)]
    before = dict(objects.newest_first())
    for _ in range(200):
        counted(objects)
    assert objects.calls == 0

    assert list(before.values()) == kept[::-1]
    assert dict(objects.newest_first()) == before


def test_threads_whose_objects_come_and_go_lose_no_count() -> None:
    """
    However many end at once, what is kept of them stays small, and no reading is too
    high.
    """
    objects, barrier = LiveObjects(), threading.Barrier(9)
    read: list[int] = []

    def work() -> None:
        barrier.wait(90)
        for number in range(500):
            one = counted(objects)
            for _ in range(number % 5):
                one()

    def look() -> None:
        barrier.wait(90)
        read.extend(objects.calls for _ in range(500))

    with switching_often():
        at_once(*[work] * 8, look)

    assert objects.calls == 8 * 500 * 2
    assert max(read) <= objects.calls
    assert objects._records == {}
