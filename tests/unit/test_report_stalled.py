"""The finding that a program does not get on."""

import pytest

from jaxmon.facts.process import JobRank, read
from jaxmon.facts.walltime import from_place
from jaxmon.screens.notes import doubts
from jaxmon.screens.text import screen
from jaxmon.symptoms.alert import PAGE, TICKET
from jaxmon.symptoms.findings import NOTHING, verdict
from jaxmon.symptoms.job import is_held_up
from jaxmon.symptoms.stalls import waiting
from tests.helpers.findings import NO_MORE, findings, function, ledger


@pytest.mark.parametrize("state", ["data_wait", "fetch"])
def test_what_does_not_end_is_told_once(state):
    """
    Advice on prefetching does not help a loader that hangs; a device that does not
    finish may wait for another process, which no profile of this one shows.
    """
    waits = {"state": state, "place": f"{state}.py:7", "seconds": 400.0}
    figures = {"changes": 500, "longest_before": 0.1, "longest_there": 0.1}

    (only,) = findings(time=ledger({state: 0.7}, **waits, **figures), **NO_MORE)
    assert only.topic == "stalled"


def test_a_wait_for_a_lock_is_told_soon_with_the_others():
    """Where it waits, and who waits for a lock too."""
    now = {
        "state": "blocked",
        "place": "blocked.py:7",
        "seconds": 20.0,
        "changes": 500,
        "longest_before": 0.1,
        "stack": ["blocked.py:7 in publish"],
        "lock": True,
        "others": [{"name": "saver", "stack": ["blocked.py:3 in save"]}],
    }
    (only,) = findings(time=ledger({"blocked": 0.03}, **now), **NO_MORE)

    assert "waiting for a lock for 20.0 s at blocked.py:7" in only.verdict
    assert only.evidence == (
        "thread saver waits for a lock too: blocked.py:3 in save",
        "blocked.py:7 in publish",
    )
    short = {**now, "seconds": 10.0}
    assert findings(time=ledger({"blocked": 0.03}, **short), **NO_MORE) == []


def dead(age, kind="thread"):
    """Return that a thread, or a task of one, has failed *age* seconds ago."""
    error = {"type": "ValueError", "message": "corrupt", "where": "read.py:3"}
    return {"gone": [{"kind": kind, "name": "prefetch", "age_seconds": age, **error}]}


PARKED = {"state": "blocked", "stack": ["/lib/threading.py:327 in wait", "a.py:3 in m"]}
AGAIN = {"state": "fetch", "changes": 8, "called": ["train.step"], "repeats": 3}


def killed(age, code=-9):
    """Return that a worker process has ended by a signal *age* seconds ago."""
    (gone,) = LOST["gone"]
    return {"gone": [{**gone, "age_seconds": age, "code": code}]}


LOST = {"gone": [{"kind": "process", "name": "w", "pid": 7, "code": -9}]}


DEADLOCK = {"lock": True, "others": [{"name": "save", "stack": ["save.py:3 in save"]}]}


@pytest.mark.parametrize(
    ("now", "stalls"),
    [
        ({"seconds": 16.0, "longest_there": 1.0, "longest_before": 1.0}, True),
        # Not yet, and not slow either: it has never been so.
        ({"seconds": 14.0, "longest_there": 1.0, "longest_before": 1.0}, "data_wait"),
        ({"seconds": 59.0, "longest_before": 1.0}, "data_wait"),
        ({"seconds": 61.0, "longest_before": 1.0}, True),
        ({"seconds": 61.0, "longest_before": 30.0}, False),
        ({"seconds": 61.0, "longest_before": 1.0, "changes": 3}, False),
        ({"seconds": 61.0, "changes": 3, **DEADLOCK}, True),
        ({"seconds": 59.0, "changes": 3, **DEADLOCK}, False),
        ({"seconds": 61.0, "changes": 3, "lock": True}, False),
        ({"seconds": 301.0, "changes": 0}, True),
        # A thread has failed, and the wait began soon after, or before.
        ({"seconds": 16.0, "changes": 0, **dead(16.0)}, True),
        ({"seconds": 14.0, "changes": 0, **dead(16.0)}, False),
        ({"seconds": 90.0, "changes": 0, **dead(14.0)}, False),
        ({"seconds": 90.0, "changes": 0, **dead(16.0)}, True),
        ({"seconds": 16.0, "changes": 0, **dead(70.0)}, True),
        ({"seconds": 16.0, "changes": 0, **dead(80.0)}, False),
        ({"seconds": 16.0, "state": "blocked", **dead(16.0)}, True),
        ({"seconds": 16.0, "state": "python", **dead(16.0)}, False),
        # Since when a process has been gone is unknown; or it has just been killed.
        ({"seconds": 16.0, "changes": 0, **LOST}, False),
        ({"seconds": 16.0, **killed(17.0)}, True),
        ({"seconds": 16.0, **killed(17.0), "work": True}, True),
        ({"seconds": 14.0, **killed(17.0)}, False),
        ({"seconds": 16.0, **killed(80.0)}, False),
        # A server has waited so long for work before; a program ends its workers.
        ({"seconds": 16.0, "longest_there": 2.0, **killed(17.0), "work": True}, False),
        ({"seconds": 16.0, **killed(17.0, -15)}, False),
        ({"seconds": 301.0, "longest_there": 200.0}, False),
        ({"seconds": 9_000.0, "state": "idle"}, False),
        # A server waits for its end from the first; a loop does so again and again.
        ({"seconds": 9_000.0, "longest_before": 1.0, **PARKED}, False),
        ({"seconds": 16.0, "longest_there": 1.0, **PARKED}, True),
        ({"seconds": 61.0, "longest_before": 1.0, **PARKED, "stack": []}, True),
        # A program that has run before; not its first run, on a line not seen before,
        # nor one that always takes long.
        ({"seconds": 16.0, "longest_there": 1.5, **AGAIN}, True),
        ({"seconds": 14.0, "longest_there": 1.0, **AGAIN}, False),
        ({"seconds": 16.0, "longest_there": 1.7, **AGAIN}, False),
        ({"seconds": 31.0, "longest_there": 1.0, **AGAIN, "repeats": 2}, False),
        ({"seconds": 61.0, "longest_there": 1.0, **AGAIN, "repeats": 1}, True),
        ({"seconds": 61.0, "longest_there": 7.0, **AGAIN, "repeats": 1}, False),
        ({"seconds": 31.0, **AGAIN}, False),
        ({"seconds": 31.0, "longest_there": 1.0, **AGAIN, "state": "python"}, False),
        # The exception of a task may have been read where it waits for something else.
        ({"seconds": 16.0, "changes": 0, **dead(16.0, "task")}, True),
        ({"seconds": 16.0, "state": "blocked", **dead(16.0, "task")}, False),
        # Of the threads that could fill a queue, none is left.
        ({"seconds": 16.0, "changes": 0, "alone": True}, True),
        ({"seconds": 14.0, "changes": 0, "alone": True}, False),
        # Whether more is to come is not known, unless what would send it is gone.
        ({"seconds": 400.0, "longest_there": 1.0, "work": True}, False),
        ({"seconds": 400.0, "longest_there": 1.0, **PARKED, "work": True}, False),
        ({"seconds": 400.0, "work": True, "alone": True}, True),
        ({"seconds": 400.0, "work": True, **dead(390.0)}, True),
    ],
)
def test_a_program_stalls_if_it_takes_far_longer_than_ever(now, stalls):
    """Long for this line, for this state, or for anything; never while it is idle."""
    now = {"state": "data_wait", "place": "a.py:3", "changes": 500, **now}
    topics = [
        one.topic
        for one in findings(time=ledger({"device": 0.05}, **now), transfers={})
    ]

    assert topics == (
        [stalls if stalls == "data_wait" else "stalled"] if stalls else []
    )


def test_what_has_failed_is_evidence_where_a_program_waits():
    """What a loop waits for is gone: which, how, and where."""
    now = {"state": "data_wait", "place": "a.py:3", "seconds": 400.0, **dead(400.0)}
    now |= {"changes": 500, "longest_before": 1.0}
    (one,) = findings(time=ledger({"device": 0.05}, **now), transfers={})
    assert one.topic == "stalled"
    assert one.verdict == (
        "Thread prefetch ended 6 min 40 s ago by ValueError: corrupt, read.py:3; the "
        "program has been waiting for data for 6 min 40 s at a.py:3; before, it took "
        "1.0 s at most."
    )
    assert one.action.startswith("Let helpers pass their exceptions on")
    others = {**now, **dead(900.0)}
    (one,) = findings(time=ledger({"device": 0.05}, **others), transfers={})
    assert one.verdict.startswith("The program has been waiting for data")
    assert one.evidence[0] == (
        "thread prefetch ended 15 min ago by ValueError: corrupt, read.py:3"
    )
    assert one.action.startswith("What it waits for may be gone")
    now |= {"state": "device"}
    (one,) = findings(time=ledger({"device": 0.05}, **now), transfers={})
    assert not any("prefetch" in line for line in (one.verdict, *one.evidence))


def test_a_wait_that_lasts_is_not_slow():
    """It is what goes on now; what was lost before is said of the time before."""
    now = {"state": "data_wait", "place": "a.py:3", "seconds": 12.0, "changes": 500}
    now = {**now, "longest_before": 0.3, **killed(13.0)}
    (one,) = findings(time=ledger({"data_wait": 0.02}, **now), transfers={})
    assert one.verdict == (
        "The program has been waiting for data for 12.0 s at a.py:3; before, it took "
        "0.30 s at most."
    )
    assert one.evidence == ("process w (pid 7) was ended by SIGKILL 13 s ago",)
    assert not one.seconds
    usual = {**now, "longest_before": 2.0, "gone": ()}
    slow, *others = findings(time=ledger({"data_wait": 0.4}, **usual), transfers={})
    assert not others
    assert slow.verdict.startswith("The program waited for data for 4 min")
    both = findings(time=ledger({"data_wait": 0.4}, **now), transfers={})
    assert ["waited for" in of.verdict for of in both] == [True, False]


@pytest.mark.parametrize(
    ("seconds", "before", "lasts"),
    [(25.0, 1.2, True), (4.0, 1.2, False), (25.0, 0.0, True), (14.0, 0.0, False)],
)
def test_a_rank_that_waits_for_long_is_for_its_job_to_judge(seconds, before, lasts):
    """It need not read less often; a process on its own may compute so long."""
    now = {"state": "fetch", "place": "a.py:3", "seconds": seconds, "changes": 500}
    time = ledger({"fetch": 0.04}, **now, longest_before=before, repeats=83)
    rank = {"observed_seconds": 600.0, "rank": {"index": 0, "count": 2}}
    found = findings(time=time, process=rank, transfers={})
    assert [of.topic for of in found] == ["fetch"] * lasts
    for of in found:
        assert of.verdict.startswith("The program has been waiting for results for 25")
        assert "`jaxmon job why` says which" in of.action
    assert is_held_up(JobRank(0, 2), found) is lasts
    assert not is_held_up(JobRank(), found)
    assert not findings(time=time, transfers={})


def test_a_program_whose_worker_was_killed_is_not_idle():
    """That it waits for work, whose source is gone, is said once."""
    now = {"state": "data_wait", "place": "a.py:3", "seconds": 90.0, "work": True}
    time = ledger({"idle": 0.15, "data_wait": 0.02}, **now)
    (one,) = findings(time=time, transfers={})
    assert one.topic == "idle"
    (one,) = findings(time={**time, "now": {**now, **killed(91.0)}}, transfers={})
    assert one.topic == "stalled"
    assert one.verdict.startswith("Process w (pid 7) was ended by SIGKILL 1 min 31 s")
    assert "the kernel's log if memory ran out" in one.action


@pytest.mark.parametrize("code", [-9, 3])
def test_a_worker_of_a_pool_that_has_failed_is_in_the_verdict(code):
    """The call waits for its result for ever, and the pool mentions it nowhere."""
    now = {**PARKED, "place": "a.py:3", "seconds": 16.0}
    failed = {"kind": "process", "name": "w", "pid": 7, "code": code, "pooled": True}
    time = ledger({"device": 0.05}, **now, gone=[{**failed, "age_seconds": 15.0}])
    (one,) = findings(time=time, transfers={})
    how = "was ended by SIGKILL" if code < 0 else "exited with code 3"
    assert one.verdict == (
        f"Process w (pid 7) {how} 15 s ago, and a call that waits for its result never "
        "returns; the program has been blocked outside of JAX for 16.0 s at a.py:3."
    )
    assert "BrokenProcessPool" in one.action
    assert not any("pid 7" in line for line in one.evidence)
    assert not findings(time=ledger({"device": 0.05}, **now), transfers={})


@pytest.mark.parametrize("loop", ["solve.py:9", ""])
def test_a_program_that_does_not_end_is_named_with_its_loop(loop):
    """Which function it waits for, and where that loops until a condition is met."""
    now = {**AGAIN, "place": "a.py:3", "seconds": 36.0, "longest_there": 0.5}
    now["longest_before"] = 0.5
    loops = function(flops={"open_loop": loop})
    one, *_ = findings(time=ledger({"fetch": 0.9}, **now), functions=loops)
    assert one.verdict == (
        "The program has been waiting for results for 36.0 s at a.py:3; before, it "
        "took 0.50 s at most."
    )
    assert "called last: train.step" in one.evidence
    said = "train.step loops until a condition is met: solve.py:9"
    assert (said in one.evidence) == bool(loop)
    assert ("bound its iterations" in one.action) == bool(loop)


FORKED = {
    "kind": "other",
    "where": "load.py:5",
    "text": "JAX warned in xla_bridge._at_fork",
    "count": 2,
}


@pytest.mark.parametrize(
    ("now", "stalls"),
    [
        ({"seconds": 61.0}, True),
        ({"seconds": 59.0}, False),
        ({"seconds": 61.0, "longest_there": 20.0}, False),
        ({"seconds": 61.0, "state": "fetch"}, False),
    ],
)
def test_a_forked_worker_may_never_make_its_first_batch(now, stalls):
    """It waits for a lock of JAX; later ones may just take long."""
    now = {"state": "data_wait", "place": "a.py:3", "changes": 9, **now}
    time = ledger({"device": 0.05}, **now)
    found = [
        one for one in findings(time=time, warnings=[FORKED]) if one.topic == "stalled"
    ]
    assert bool(found) == stalls
    for one in found:
        assert one.evidence[0].startswith("load.py:5 has forked this process")
        assert "spawn" in one.action
    assert "stalled" not in [one.topic for one in findings(time=time)]


def test_what_is_forked_is_not_observed():
    """A server that forks its workers shows nothing of them; others have no note."""
    (doubt,) = doubts(read({"warnings": [FORKED]}))
    assert doubt.startswith("load.py:5 forked this process after JAX had started.")
    assert [*doubts(read({"warnings": [{**FORKED, "text": "JAX warned in x"}]}))] == []


@pytest.mark.parametrize(("asleep", "seconds"), [(2, 16.0), (0, 61.0)])
def test_forked_workers_that_sleep_are_not_slow(asleep, seconds):
    """What they do is known from the kernel; else it takes a minute to be odd."""

    def found(seconds):
        now = {"state": "blocked", "place": "a.py:3", "seconds": seconds}
        now = {**now, "asleep": asleep}
        return findings(time=ledger({"device": 0.05}, **now), warnings=[FORKED])

    (one,) = [one for one in found(seconds) if one.topic == "stalled"]
    assert ("2 worker processes asleep" in str(one.evidence)) == bool(asleep)
    assert "stalled" not in [one.topic for one in found(seconds - 2)]


def test_a_queue_that_stays_full_is_said_to_be_so():
    """The thread that it waits for waits itself, for room in a queue."""
    lines = ["/lib/threading.py:9 in wait", "/lib/queue.py:8 in put", "a.py:5 in read"]
    now = {"state": "blocked", "place": "a.py:3", "seconds": 16.0}
    full = {**now, "full": [{"name": "loader", "stack": lines}]}
    one, *_ = findings(time=ledger({"device": 0.05}, **full), transfers={})

    assert one.evidence[0] == (
        "thread loader waits for room in a full queue: a.py:5 in read"
    )
    assert "put with a timeout" in one.action
    others = findings(time=ledger({"device": 0.05}, **now), transfers={})
    assert "stalled" not in [one.topic for one in others]


@pytest.mark.parametrize(("seconds", "severity"), [(20.0, TICKET), (301.0, PAGE)])
def test_the_first_call_of_a_child_pages_once_it_is_long(seconds, severity):
    """Before, it may as well be slow."""
    time = ledger({"device": 0.9}, state="device", place="a.py:3", seconds=seconds)
    never = function(calls=0, hits=0, misses=1, compiles={})
    process = {"forked": True, "observed_seconds": 600.0}
    found = findings(time=time, functions=never, process=process)
    assert [of.severity for of in found if of.topic == "stalled"] == [severity]


def test_the_program_s_line_comes_first_where_it_stalls():
    """What it has called there is the standard library's, and waits."""
    lines = ["~/lib/threading.py:9 in wait", "~/lib/queue.py:8 in get"]
    stack = [*lines, "load.py:3 in take", "train.py:7 in <module>"]
    now = {"state": "gil", "place": "load.py:3", "seconds": 400.0, "stack": stack}
    one, *_ = findings(time=ledger({"device": 0.05}, **now), transfers={})
    assert one.evidence == (
        "load.py:3 in take",
        "innermost: ~/lib/threading.py:9 in wait",
        "train.py:7 in <module>",
    )
    unknown = {**now, "place": ""}
    assert from_place(tuple(stack), "") == tuple(stack)
    one, *_ = findings(time=ledger({"device": 0.05}, **unknown), transfers={})
    assert one.evidence[0] == stack[0]


def test_a_queue_that_nothing_can_fill_is_said_to_be_so():
    """A loader may also end without an exception, and without a last item."""
    now = {"state": "data_wait", "place": "a.py:3", "seconds": 16.0, "alone": True}
    one, *_ = findings(time=ledger({"device": 0.05}, **now), transfers={})
    assert one.evidence[0] == (
        "the program has no other thread that could fill the queue"
    )


PUTS = {
    "state": "blocked",
    "place": "a.py:17",
    "changes": 36,
    "longest_there": 1.2,
    "alone": True,
    "stack": ["/lib/threading.py:327 in wait", "/lib/queue.py:140 in put"],
}


def test_a_full_queue_that_nothing_can_empty_is_said_to_be_so():
    """What took from it may have returned; a lock has nothing to do with it."""
    now = {**PUTS, "seconds": 16.0}
    (one,) = findings(time=ledger({"device": 0.05}, **now), transfers={})
    assert one.evidence[0] == (
        "the program has no other thread that could empty the queue"
    )
    assert one.action.startswith("What it waits for may be gone")
    # Another thread could, and the same line has taken long before.
    served = {**now, "alone": False, "longest_there": 1.7}
    assert findings(time=ledger({"device": 0.05}, **served), transfers={}) == []


ENDLESS = {"state": "python", "place": "python.py:7", "repeats": 100}


@pytest.mark.parametrize(
    ("change", "now", "quiet"),
    [
        ({}, {}, True),
        ({"call_age": 14.0}, {}, False),
        ({"call_pause": 4.0}, {}, False),
        ({"jax_age": 14.0}, {}, False),  # calls what was compiled ahead of time
        ({}, {"repeats": 3}, False),
        ({}, {"state": "blocked"}, False),
    ],
)
def test_python_that_calls_nothing_any_more_is_no_slow_work(change, now, quiet):
    """Calls came again and again: the loop may not end, and is not to be optimised."""
    time = ledger({"python": 0.9}, **{**ENDLESS, **now})
    time |= {"call_age": 40.0, "jax_age": 33.0}
    found = findings(time={**time, **change}, **NO_MORE)
    texts = [of.verdict for of in found if of.topic == "host"]

    says = "No progress? The program has not called a jitted function for 33.0 s, "
    says += "and runs Python, now at python.py:7; before, at most 1.0 s passed between"
    assert [text for text in texts if says in text] == texts[1:] * quiet
    once = {**time["since_start"]["places"][0], "once": True}
    time["since_start"]["places"] = [once]
    assert not any("No progress" in of.verdict for of in findings(time=time, **NO_MORE))


@pytest.mark.parametrize(
    ("change", "judged"),
    [
        ({"seconds": 9.1}, "15.0 s"),
        ({"seconds": 9.1, "alone": False, "longest_there": 1.85}, "18.5 s"),
        # Not longer than ever, or a pause, or it is not known what would be long.
        ({"seconds": 9.1, "longest_there": 9.5}, ""),
        ({"seconds": 4.0}, ""),
        ({"seconds": 9.1, "alone": False, "longest_there": 0.0}, ""),
        ({"seconds": 9.1, "alone": False, "changes": 3}, ""),
        ({"seconds": 9.1, "state": "idle", "alone": False}, ""),
        ({"seconds": 16.0}, ""),  # a finding says so
    ],
)
def test_a_wait_that_is_not_judged_yet_is_not_said_to_be_nothing(change, judged):
    """It says since when it waits, and from when on that is a stall."""
    snapshot = read({"time": ledger({"device": 0.05}, **{**PUTS, **change})})
    text = (
        "The program has been blocked outside of JAX for 9.1 s at a.py:17. It counts "
        f"as stalled from {judged} on."
    )
    waits = waiting(snapshot)
    assert waits == (text if judged else "")
    assert verdict([], waits) == (text if judged else NOTHING)
    lines = " ".join(map(str.strip, screen(snapshot, [], worker="0")))
    assert (text in lines, NOTHING in lines) == (bool(judged), not judged)


def test_a_thread_that_may_fill_the_queue_is_shown():
    """The stack of the thread that waits does not show what the other one waits for."""
    now = {"state": "data_wait", "place": "a.py:3", "seconds": 301.0}
    stack = ["b.py:9 in read", "b.py:20 in run"]
    reader = {"name": "reader", "stack": stack, "place": "b.py:9"}
    one, *_ = findings(time=ledger({"device": 0.05}, **now), transfers={})
    assert one.evidence == ()
    assert one.action.startswith("Look at what the loader waits for")
    shown = {**now, "fillers": [reader]}
    one, *_ = findings(time=ledger({"device": 0.05}, **shown), transfers={})
    assert one.evidence == (
        "thread reader, which may fill the queue, is at b.py:9 in read, b.py:20 in run",
    )
    assert "If such a thread fills the queue" in one.action
    blocked = {**shown, "state": "blocked"}
    one, *_ = findings(time=ledger({"device": 0.05}, **blocked), transfers={})
    assert one.evidence == ()


@pytest.mark.parametrize(
    ("forked", "change", "stuck"),
    [
        (True, {}, True),
        (True, {"compiling": {"count": 1, "oldest_seconds": 20.0}}, True),
        (False, {}, False),
        (True, {"compiling": {"count": 1, "oldest_seconds": 14.0}}, False),
        # What has compiled something, has what it needs for that.
        (True, {"functions": function(compiles={"compiled": 1})}, False),
    ],
)
def test_a_child_that_lacks_the_threads_of_jax_is_stuck(forked, change, stuck):
    """Its first compile is no time that a cache would save."""
    facts = {
        "process": {"forked": forked, "observed_seconds": 600.0},
        "time": ledger({"compile": 0.9}, state="compile", place="a.py:3", seconds=2.0),
        "compiling": {"count": 1, "oldest_seconds": 540.0},
        "functions": function(calls=0, hits=0, misses=1, compiles={}),
        **change,
    }
    found = findings(**facts)
    assert [of.topic for of in found if of.topic == "stalled"] == ["stalled"] * stuck
    topics = {of.topic for of in found}
    assert forked or "compiling" in topics
    assert not (stuck and "compiling" in topics)
    for of in found[:stuck]:
        lasts = "20.0 s" if change else "9 min"
        assert of.verdict.endswith(f"has taken {lasts} so far, and may never end.")
        assert of.severity == TICKET  # unless the program stands there for longer
        assert "without --preload" in of.action
