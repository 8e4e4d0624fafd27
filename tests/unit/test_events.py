"""
The log of events: its bounds, its order, and threads that write while others read.
"""

import threading
from collections import Counter

import pytest

from jaxmon.agent.events import KINDS, LIMIT, EventLog
from tests.helpers.agents import at_once


def test_events_are_numbered_and_read_in_order() -> None:
    """Numbers count all kinds together, and reading merges the kinds again."""
    log = EventLog()
    assert (log.last(), log.since()) == (0, [])
    for kind in ("compile", "miss", "compile"):
        log.add(kind, "f", f"a {kind}")
    found = log.since()
    assert [event.number for event in found] == [1, 2, 3]
    assert [event.kind for event in found] == ["compile", "miss", "compile"]
    assert [event.number for event in log.since(1, "compile")] == [3]
    assert log.since(3) == []
    assert log.last() == 3


def test_one_kind_does_not_push_out_another() -> None:
    """Each kind keeps its last events, however many another one has."""
    log = EventLog()
    log.add("oom", "f", "memory ran out", report="r.json")
    for number in range(3 * LIMIT):
        log.add("transfer", None, f"transfer {number}")
    (oom,) = log.since(kind="oom")
    assert (oom.message, oom.details) == ("memory ran out", {"report": "r.json"})
    transfers = log.since(kind="transfer")
    assert len(transfers) == LIMIT
    assert transfers[-1].message == f"transfer {3 * LIMIT - 1}"
    assert len(log.since()) == LIMIT + 1


def test_one_function_does_not_push_out_the_others() -> None:
    """
    However often one function compiles, what others did before can be read: who has
    more than an equal share gives up its own oldest events.
    """
    log = EventLog()
    for function in ("calm", "storm", "other storm", None):
        log.add("recompile", function, "first")
    for number in range(2 * LIMIT):
        log.add("recompile", "storm", f"{number}")
        if number % 2:
            log.add("recompile", "other storm", f"{number}")
    found = log.since(kind="recompile")

    assert len(found) == LIMIT
    of = Counter(event.function for event in found)
    assert (of["calm"], of[None]) == (1, 1)
    assert min(of["storm"], of["other storm"]) >= LIMIT // 4
    assert [event.message for event in found[-2:]] == [str(2 * LIMIT - 1)] * 2
    assert log.last() == found[-1].number


def test_messages_are_cut() -> None:
    """A message of any length costs a bounded amount of memory."""
    log = EventLog()
    log.add("error", None, "x" * 1_000_000)
    assert len(log.since()[0].message) == 2000


def test_unknown_kinds_are_refused() -> None:
    """A kind that no reader knows is a mistake of ours."""
    log = EventLog()
    with pytest.raises(KeyError):
        log.add("nonsense", None, "")  # type: ignore[arg-type]
    for kind in KINDS:
        log.add(kind, None, kind)
    assert len(log.since()) == len(KINDS)


def test_threads_may_write_while_others_read() -> None:
    """No event is lost or numbered twice, and a reader never fails."""
    log = EventLog()
    each, threads = LIMIT // 4, 4
    failures: list[BaseException] = []
    over = threading.Event()

    def write() -> None:
        for number in range(each):
            log.add("miss", "f", str(number))

    def read() -> None:
        try:
            while not over.is_set():
                numbers = [event.number for event in log.since()]
                assert numbers == sorted(set(numbers))
                log.last()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    at_once(*[write] * threads)
    over.set()
    reader.join()
    assert failures == []
    assert {event.number for event in log.since()} == set(range(1, each * threads + 1))
