"""What processes leave behind, of which the sidecar has read nothing, or something."""

import json
import time

import pytest

from jaxmon.agent.end_writer import EndWriter
from jaxmon.facts.ending import CRASHED, FINISHED, State
from jaxmon.facts.host import host
from jaxmon.host.formats import json_text
from tests.job.ranks import report
from tests.job.served import agent, ranks_of, read


def test_a_process_that_failed_before_it_was_read_is_reported(run_dir, stack):
    """Its last words are, for an hour; which rank it was is unknown."""
    # Not since the start of the system, which may be an hour ago or less.
    now = time.time()
    ways: list[tuple[str, State, float]] = [
        ("exception", CRASHED, now),
        ("exit", FINISHED, now),
        ("finished", FINISHED, now),
        ("exception", CRASHED, now - 4000.0),
    ]
    for slot, (kind, state, then) in enumerate(ways):
        one = EndWriter(run_dir / f"agent-{slot}.end", 0o600)
        one.begin()
        one.update({"kind": kind, "time": then, "boottime": None})
        one.end(state)
        one.abandon()
    ranks = ranks_of(run_dir, stack)
    found = read(ranks)["ranks"]
    assert [(of["ended"], of["words"]["kind"]) for of in found] == [
        ("crashed", "exception"),
        ("finished", "exit"),
    ]
    assert len(host("h", read(ranks)).unknown) == 2
    agent(stack, run_dir, 0, report(0))
    again = EndWriter(run_dir / "agent-0.end", 0o600)
    again.begin()
    stack.callback(again.abandon)
    found = read(ranks)["ranks"]
    assert [of.get("index") for of in found] == [0, None, None]
    for _ in range(2):  # as in a crash loop: the first was not read in time
        one = EndWriter(run_dir / "agent-7.end", 0o600)
        one.begin()
        one.update({"kind": "exit", "rank": 1})
        one.abandon()
    found = read(ranks)["ranks"]
    assert [of["worker"] for of in found].count("7") == 2


def test_which_rank_it_was_is_known_from_its_last_words(run_dir, stack):
    """Each of several attempts that fail one after the other, read in time or not."""
    now = [100.0]
    ranks = ranks_of(run_dir, stack, clock=lambda: now[0])
    place = {"ranks": 4, "coordinator": "a:1", "pid": 7, "observed_seconds": 3.0}
    for index in range(3):
        one = EndWriter(run_dir / "agent-0.end", 0o600)
        one.begin()
        if index == 1:  # it is read, but has not joined its job yet
            early = {"index": None, "count": None, "coordinator": "", "pid": 7}
            running = agent(stack, run_dir, 0, early)
            read(ranks)
            running.server.stop()
            (run_dir / "agent-0.sock").unlink()
        one.update({"kind": "exception", "time": time.time(), "rank": index, **place})
        one.end(CRASHED)
        one.abandon()
        now[0] += 10.0
        read(ranks)
    found = host("h", read(ranks)).ranks
    assert {of.index for of in found} == {0, 1, 2}
    assert {(of.count, of.coordinator, of.pid) for of in found} == {(4, "a:1", 7)}
    assert [of.ended for of in found] == ["crashed"] * 3


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(
    "odd",
    [
        '"steps": NaN',
        '"steps": 1e999',
        f'"boottime": 1{"0" * 400}',
        f'"causes": {"[" * 98}{"]" * 98}',
        f'"causes": {"[" * 900}{"]" * 900}',
    ],
)
def test_odd_last_words_hide_no_other_rank(run_dir, stack, odd, joined):
    """Whoever may write to the run directory cannot make the whole host unreadable."""
    ranks = ranks_of(run_dir, stack)
    path = run_dir / "agent-0.end"
    one = EndWriter(path, 0o600)
    one.begin()
    if joined:
        agent(stack, run_dir, 0, report(0))
        read(ranks)
    one.update({"kind": "exception", "time": time.time()})
    one.end(CRASHED)
    one.abandon()
    known, _, _ = path.read_bytes().rpartition(b"}")
    path.write_bytes(known + f", {odd}}}\n".encode())
    agent(stack, run_dir, 1, report(1))
    text = json.dumps(read(ranks))
    indices = [of.index for of in host("h", json_text.parse(text)).ranks]
    assert 1 in indices
    assert (0 in indices) is joined


def test_what_many_processes_left_hides_no_rank(run_dir, stack):
    """Whoever may write to the run directory can make any number of such files."""
    for slot in range(300):
        one = EndWriter(run_dir / f"agent-{slot}.end", 0o600)
        one.begin()
        one.update({"kind": "exception", "time": time.time()})
        one.end(CRASHED)
        one.abandon()
    ranks = ranks_of(run_dir, stack)
    assert len(read(ranks)["ranks"]) == 256
    agent(stack, run_dir, 2000, report(0))
    found = read(ranks)["ranks"]
    assert len(found) == 257
    assert found[-1]["index"] == 0


def test_what_a_process_left_is_as_old_as_its_words(run_dir, stack):
    """Those of an earlier process of the slot say nothing of the latest."""
    one = EndWriter(run_dir / "agent-0.end", 0o600)
    one.begin()
    one.update({"kind": "exception", "time": time.time() - 100.0, "boottime": None})
    one.end(CRASHED)
    one.abandon()
    [found] = read(ranks_of(run_dir, stack))["ranks"]
    for age in ("ended_seconds", "since_seconds"):
        assert found[age] == pytest.approx(100.0, abs=50.0)
    one = EndWriter(run_dir / "agent-0.end", 0o600)
    one.begin()
    one.end(CRASHED)
    one.abandon()
    [found] = read(ranks_of(run_dir, stack))["ranks"]
    assert found["ended_seconds"] == pytest.approx(100.0, abs=50.0)


def test_last_words_are_kept_when_the_slot_has_another_process(run_dir, stack):
    """Both are reported, and each has its own words, whatever the process numbers."""
    now = [100.0]
    ranks = ranks_of(run_dir, stack, clock=lambda: now[0])
    for way in ("exit", "exception"):
        one = EndWriter(run_dir / "agent-0.end", 0o600)
        one.begin()
        running = agent(stack, run_dir, 0, report(0))
        read(ranks)
        one.update({"kind": way, "boottime": 1.0})
        one.abandon()
        running.server.stop()
        (run_dir / "agent-0.sock").unlink()
        now[0] += 10.0
    one = EndWriter(run_dir / "agent-0.end", 0o600)
    one.begin()
    stack.callback(one.abandon)
    agent(stack, run_dir, 0, report(0))
    found = read(ranks)["ranks"]
    assert [(of["ended"], of["words"].get("kind")) for of in found] == [
        ("", None),
        ("finished", "exit"),
        ("crashed", "exception"),
    ]
    assert found[1]["words"]["age_seconds"] > 0
    now[0] += 4000.0
    assert len(read(ranks)["ranks"]) == 1
