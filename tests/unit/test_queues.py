"""Queues whose depth a program reports."""

import asyncio
import gc
import multiprocessing
import queue
import threading
from collections import deque
from functools import partial

import pytest

import jaxmon
from jaxmon.catalog import QUEUE_DEPTH
from jaxmon.indicators import queues
from tests.helpers.indicators import recording


DEPTH = QUEUE_DEPTH.name


@pytest.fixture(autouse=True)
def no_queue_is_left(monkeypatch):
    """Let each test begin without queues."""
    monkeypatch.setattr(queues, "_sources", {})


def depth_of(recorded, name):
    """Return the depth of the queue *name*, `None` if none is exported."""
    found = recorded.values(DEPTH, queue=name)
    return found[0] if found else None


# --- a function that is asked --------------------------------------------------


def test_a_queue_is_asked_at_each_scrape(recorded):
    """Each page has the depth of its moment."""
    waiting: queue.Queue[int] = queue.Queue()
    jaxmon.queue("decode", waiting.qsize)
    told = [depth_of(recorded, "decode")]
    for number in range(3):
        waiting.put(number)
    told.append(depth_of(recorded, "decode"))
    waiting.get()
    told.append(depth_of(recorded, "decode"))

    assert told == [0, 3, 2]


def test_a_queue_may_be_named_before_anybody_records():
    """A depth set at creation is exported by agents that start later."""
    waiting = deque([1, 2])
    jaxmon.queue("decode", waiting.__len__)
    for _ in range(2):
        with recording() as recorded:
            assert depth_of(recorded, "decode") == 2


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (queue.Queue, "qsize"),
        (queue.SimpleQueue, "qsize"),
        (asyncio.Queue, "qsize"),
        (deque, "__len__"),
        (set, "__len__"),
    ],
)
def test_a_queue_goes_with_its_object(recorded, kind, method):
    """A method does not keep its object alive, be it written in Python or in C."""
    waiting = kind()
    jaxmon.queue("decode", getattr(waiting, method))
    assert depth_of(recorded, "decode") == 0

    del waiting
    gc.collect()
    assert depth_of(recorded, "decode") is None
    assert queues._sources == {}


def test_what_takes_no_weak_reference_is_asked_until_it_is_closed(recorded):
    """Nor does a function without other references; closing is idempotent."""
    ways = (
        [1, 2].__len__,
        partial(len, [1, 2]),
        lambda: 2,
        multiprocessing.Value("i", 2).get_obj().value.__int__,
    )
    for number, way in enumerate(ways):
        told = jaxmon.queue(f"queue{number}", way)
        del way
        gc.collect()
        assert depth_of(recorded, f"queue{number}") == 2
        told.close()
        told.close()
        assert depth_of(recorded, f"queue{number}") is None


def test_queues_of_one_name_add_up(recorded):
    """Several workers of a process each have theirs."""
    one, other = deque([1]), deque([1, 2])
    jaxmon.queue("decode", one.__len__)
    told = jaxmon.queue("decode", other.__len__)
    jaxmon.queue("decode").set(4)
    assert depth_of(recorded, "decode") == 7

    told.close()  # with what was said of the name
    assert depth_of(recorded, "decode") == 1


@pytest.mark.contained
@pytest.mark.parametrize("answer", [-1, None, "many", float("nan")])
def test_a_queue_that_cannot_be_read_costs_itself_only(recorded, answer):
    """Half of a sum is no depth: the whole name is left out, until it can be read."""
    answers = [answer]
    jaxmon.queue("decode", lambda: answers[0])
    jaxmon.queue("decode", lambda: 1)
    jaxmon.queue("prefill", lambda: 2)
    for _ in range(20):
        assert depth_of(recorded, "prefill") == 2
        assert depth_of(recorded, "decode") is None
    assert recorded.failures.failures()["queues"] == 40

    answers[0] = 3
    assert depth_of(recorded, "decode") == 4


def test_functions_are_bounded(recorded, caplog, monkeypatch):
    """One too many is refused, and said; those that are gone make room."""
    monkeypatch.setattr(queues, "MOST_SOURCES", 2)
    kept, gone = deque([1]), deque([1])
    jaxmon.queue("kept", kept.__len__)
    jaxmon.queue("gone", gone.__len__)
    jaxmon.queue("refused", lambda: 1)
    assert "'refused' is not observed" in caplog.text
    assert depth_of(recorded, "refused") is None

    del gone
    jaxmon.queue("late", lambda: 1)
    assert depth_of(recorded, "late") == 1
    assert depth_of(recorded, "kept") == 1


def test_names_are_bounded():
    """The rest share a name, as a sum; of what was merely said there is no sum."""
    with recording(limit=1) as recorded:
        for number in range(3):
            jaxmon.queue(f"said{number}").set(5)
            jaxmon.queue(f"asked{number}", lambda: 2)

        assert depth_of(recorded, "said0") == 5
        assert depth_of(recorded, "other") == 6
        assert len(recorded.values(DEPTH)) == 2
        assert recorded.overflow()["queue"] > 0


def test_queues_come_and_go_while_they_are_asked(recorded):
    """Threads register, say and close while others scrape; what stays is right."""
    stop = threading.Event()

    def come_and_go(number):
        while not stop.is_set():
            told = jaxmon.queue(f"queue{number}", deque([1]).__len__)
            jaxmon.queue("said").set(number)
            told.close()

    threads = [threading.Thread(target=come_and_go, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    waiting = deque([1, 2, 3])
    jaxmon.queue("decode", waiting.__len__)
    seen = {depth_of(recorded, "decode") for _ in range(300)}
    stop.set()
    for thread in threads:
        thread.join()

    assert seen == {3}
    assert len(queues._sources) == 1


# --- a depth that is said ------------------------------------------------------


def test_a_depth_may_be_said(recorded):
    """It holds until the next, whichever object says it."""
    decode = jaxmon.queue("decode")
    assert depth_of(recorded, "decode") is None
    decode.set(3)
    assert depth_of(recorded, "decode") == 3
    jaxmon.queue("decode").set(0)
    assert depth_of(recorded, "decode") == 0

    decode.close()
    assert depth_of(recorded, "decode") is None


@pytest.mark.contained
def test_nonsense_is_refused(recorded):
    """The program goes on, the failure is counted, and what was said before holds."""
    decode = jaxmon.queue("decode")
    decode.set(3)
    for _ in range(20):
        decode.set(-1)
        decode.set("many")  # type: ignore[arg-type]

    assert depth_of(recorded, "decode") == 3
    decode.set(4)
    assert depth_of(recorded, "decode") == 4
    assert recorded.failures.failures() == {"queues": 40}


def test_nobody_need_record():
    """Without an agent nothing happens."""
    decode = jaxmon.queue("decode", lambda: 1)
    decode.set(3)
    decode.close()
    with recording() as recorded:
        assert recorded.values(DEPTH) == []
