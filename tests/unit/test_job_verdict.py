"""The verdict on the processes of a job, from what they report."""

import json
import random
import re
from typing import Any

import pytest

from jaxmon.facts import responses
from jaxmon.facts.host import JobHost, host
from jaxmon.host.http.fetch import FetchError
from jaxmon.job.model import JobState, SuspectKind, Verdict
from jaxmon.job.text import document, lines, worst
from jaxmon.job.verdict import judge
from jaxmon.limits import Limits
from tests.job.judged import judged, named, only, text
from tests.job.ranks import fetching, ranks, report, waiting
from tests.job.rows import rows, runner


def test_a_job_that_calls_is_progressing() -> None:
    """What ranks do at a moment, and which is ahead, accuses no rank."""
    job = judged(*ranks(4, age=0.4))
    assert (job.state, job.suspects, job.dispatched) == (JobState.PROGRESSING, (), ())
    assert text(job).startswith("PROGRESSING: 4 ranks of 10.0.0.1:1234, on 1 host")


def test_the_rank_that_does_something_else_is_named() -> None:
    """Where it is, since when, and which call it has not made is said in one line."""
    busy = report(3, calls=811, state="data_wait", place="data.py:41", age=95.0)
    busy["now"]["stack"] = ["queue.py:171 in get", "data.py:41 in load_batch"]
    job = judged(*waiting(3, calls=812), busy)
    found = only(job)
    assert job.state is JobState.HUNG
    assert (found.kind, found.numbers, found.place) == (
        SuspectKind.DATA,
        (3,),
        "data.py:41",
    )
    said = text(job)
    assert (
        "rank 3 (host-0, pid 1003) waits for data in load_batch, data.py:41, for "
        "1 min 35 s; has not dispatched call 812 of train_step"
    ) in said
    assert "ranks 0-2 wait in train_step, call 812 (train.py:58)" in said
    assert "queue.py" not in said


def test_the_first_call_that_a_rank_has_not_made_is_said() -> None:
    """Others may be several calls ahead, which is said, or a single one."""
    for calls, said in (
        (150, "has not dispatched call 151 of train_step; rank 0 is at call 161"),
        (160, "has not dispatched call 161 of train_step"),
        (0, "has not dispatched call 1 of train_step; rank 0 is at call 161"),
    ):
        stuck = report(1, count=2, calls=calls, state="data_wait", place="data.py:41")
        printed = text(judged(*waiting(1, count=2, calls=161), stuck))
        assert f"{said} data.py:41" in printed
        assert "call 161 (train.py:58)" in printed
    level = report(1, count=2, calls=161, state="data_wait", place="data.py:41")
    assert "has not" not in text(judged(*waiting(1, count=2, calls=161), level))


def test_a_helper_that_has_failed_is_named_where_a_rank_waits() -> None:
    """It is said of ranks that wait on the host: how it ended, and what to do."""
    gone = [
        {"kind": "thread", "name": "prefetch", "age_seconds": 31.0}
        | {"type": "ValueError", "message": "corrupt", "where": "data.py:9"},
        {"kind": "process", "name": "Process-2", "pid": 4711, "code": -9},
    ]
    stuck = report(3, calls=811, state="data_wait", place="data.py:41", age=95.0)
    stuck["now"]["gone"] = gone
    job = judged(*waiting(3, calls=812), stuck)
    said = text(job)
    assert (
        "its thread prefetch ended 31 s ago by ValueError: corrupt, data.py:9" in said
    )
    assert "its process Process-2 (pid 4711) was ended by SIGKILL" in said
    assert "What it waits for may be gone" in said
    [suspects] = document(Verdict((job,)))["jobs"][0]["suspects"]
    assert len(suspects["gone"]) == 2
    assert suspects["action"].startswith("What it waits for may be gone")
    # It does not wait for them if it runs.
    busy = report(3, calls=811, state="python", place="data.py:41", age=95.0)
    busy["now"]["gone"] = gone
    assert "prefetch" not in text(judged(*waiting(3, calls=812), busy))


def test_a_thread_that_may_fill_the_queue_is_named() -> None:
    """With its line; without one it is not claimed that a stack shows the cause."""
    stuck = report(3, calls=811, state="data_wait", place="data.py:41", age=95.0)
    said = text(judged(*waiting(3, calls=812), stuck))
    assert "Look at what the loader waits for: a file system" in said
    assert "stack shows" not in said
    assert "may fill the queue" not in said
    stack = ["~/socket.py:706 in readinto", "data.py:9 in read", "data.py:20 in work"]
    reader = {"name": "reader", "stack": stack, "place": "data.py:9"}
    stuck["now"]["fillers"] = [reader]
    job = judged(*waiting(3, calls=812), stuck)
    said = text(job)
    where = "thread reader, which may fill the queue, is at data.py:9 in read, "
    assert f"its {where}innermost: ~/socket.py:706 in readinto If such a thread" in said
    assert "stack shows" not in said
    [suspects] = document(Verdict((job,)))["jobs"][0]["suspects"]
    assert suspects["fillers"] == [f"{where}innermost: ~/socket.py:706 in readinto"]
    # It does not wait for it if it runs.
    busy = report(3, calls=811, state="python", place="data.py:41", age=95.0)
    busy["now"]["fillers"] = [reader]
    assert "may fill the queue" not in text(judged(*waiting(3, calls=812), busy))


def test_what_a_rank_is_in_is_told_apart() -> None:
    """A lock, a file, Python, an activity, a compile and an own function differ."""
    cases: dict[SuspectKind, dict[str, Any]] = {
        SuspectKind.LOCK: {"state": "blocked", "lock": True},
        SuspectKind.BLOCKED: {"state": "blocked"},
        SuspectKind.IDLE: {"state": "idle"},
        SuspectKind.CODE: {"state": "python"},
        SuspectKind.DATA: {"state": "data_wait"},
        SuspectKind.COMPILE: {"state": "compile"},
        SuspectKind.ACTIVITY: {"state": "blocked", "activity": "checkpoint"},
        SuspectKind.LOCAL: {"state": "device", "function": "__main__.preprocess"},
    }
    for kind, doing in cases.items():
        job = judged(*waiting(3), report(3, calls=811, place="a.py:1", **doing))
        assert only(job).kind is kind
        assert only(job).numbers == (3,)


def test_threads_that_wait_for_a_lock_too_are_named() -> None:
    """Two that hold what the other one waits for are a deadlock."""
    stuck = report(3, calls=811, state="blocked", lock=True)
    stuck["now"]["others"] = [{"name": "prefetch", "stack": ["data.py:46 in work"]}]
    said = text(judged(*waiting(3), stuck))
    assert "its thread prefetch waits for a lock too: data.py:46 in work" in said


def test_what_may_take_its_time_is_not_a_hang_at_once() -> None:
    """A compile or a checkpoint is waited for; the reason is said all the same."""
    found: list[dict[str, Any]] = [
        {"state": "compile"},
        {"state": "python", "activity": "checkpoint"},
    ]
    for doing in found:
        job = judged(*waiting(3), report(3, calls=811, **doing))
        assert job.state is JobState.WAITING
        assert "hung from 15 min" in text(job)
        late = report(3, calls=811, age=1000.0, **doing)
        assert judged(*waiting(3, age=1000.0), late).state is JobState.HUNG


def test_an_activity_of_all_ranks_is_not_of_one() -> None:
    """As if storage that all write to is full, or slow."""
    doing: dict[str, Any] = {"state": "blocked", "activity": "checkpoint", "age": 60.0}
    some = [report(n, **doing) for n in range(4)]
    said = text(judged(*some))
    assert "All ranks are in it: look at what it waits for" in said
    one = text(judged(*waiting(3), report(3, calls=811, **doing)))
    assert "What one process does alone" in one


def test_pauses_that_are_usual_are_no_hang() -> None:
    """Three times as long as usual is; a single rank cannot claim otherwise."""
    busy = report(3, calls=811, state="python", age=40.0, usual=60.0)
    calm = waiting(3, age=40.0, usual=60.0)
    assert judged(*calm, busy).state is JobState.WAITING
    assert (
        judged(*waiting(3, age=200.0, usual=60.0), busy | {}).state is not JobState.HUNG
    )
    late = report(3, calls=811, state="python", age=200.0, usual=60.0)
    assert judged(*waiting(3, age=200.0, usual=60.0), late).state is JobState.HUNG
    liar = report(3, calls=811, state="python", age=40.0, usual=1e12)
    assert judged(*waiting(3, age=40.0), liar).state is JobState.HUNG


def test_a_job_that_starts_has_time() -> None:
    """Before the tenth call nothing is usual yet, so five minutes are allowed."""
    starting = [*waiting(3, calls=2), report(3, calls=1, state="python")]
    assert judged(*starting).state is JobState.WAITING
    late = [
        *waiting(3, calls=2, age=400.0),
        report(3, calls=1, state="python", age=400.0),
    ]
    assert judged(*late).state is JobState.HUNG


def test_dispatching_ahead_is_no_fault() -> None:
    """Ranks that wait for results, some calls apart, all wait for the device."""
    some = [fetching(n, calls=812 + n % 3) for n in range(8)]
    job = judged(*some)
    assert (job.state, job.suspects) == (JobState.HUNG, ())
    said = text(job)
    assert "all ranks" in said
    assert "Look at the network" in said


def test_all_in_one_call_is_not_a_ranks_fault() -> None:
    """If all have dispatched the same call, the network or a device is suspect."""
    job = judged(*waiting(4))
    assert (job.state, job.suspects) == (JobState.HUNG, ())
    assert "No process holds the others up" in text(job)


def test_a_rank_that_is_busy_but_not_behind_is_not_blamed() -> None:
    """A rank that has made the call, too, and does something else, is mentioned."""
    job = judged(*waiting(3, calls=812), report(3, calls=812, state="python"))
    assert job.suspects == ()
    said = text(job)
    assert "rank 3 (host-0, pid 1003) dispatched that, too, and runs Python in" in said
    assert "No process holds the others up" in said


def test_a_callback_holds_up_the_program_that_calls_it() -> None:
    """The rank has dispatched the call in which the others wait, but it cannot run."""
    for state in ("blocked", "fetch"):
        busy = report(3, calls=812, state=state, place="lookup.py:9")
        busy["now"]["stack"] = [
            "lookup.py:9 in host_lookup",
            "train.py:58 in main",
        ]
        busy["now"]["callback"] = True
        job = judged(*waiting(3, calls=812), busy)
        assert (only(job).kind, only(job).numbers) == (SuspectKind.CALLBACK, (3,))
        said = text(job)
        assert "runs a callback of an XLA program in host_lookup, lookup.py:9" in said


def test_a_rank_that_waits_on_another_line_is_named() -> None:
    """Where it waits is said, and that it may only read a result of what all run."""
    rest = [fetching(n, calls=51) for n in range(7)]
    other = report(7, count=8, calls=41, state="fetch", place="train.py:40")
    job = judged(*rest, other)
    found = only(job)
    assert (found.kind, found.numbers) == (SuspectKind.ELSEWHERE, (7,))
    assert (found.place, job.waiting.numbers) == ("train.py:40", tuple(range(7)))
    said = text(job)
    assert "rank 7 (host-0, pid 1007) waits on another line, train.py:40, for" in said
    assert "has not dispatched call 42 of train_step; others are at call 51" in said
    assert "Or it reads a result of what all run: then look at the network" in said
    assert "ranks 0-6 wait for results of train_step, call 51 (train.py:60)" in said


def test_of_two_that_wait_on_two_lines_the_one_behind_is_named() -> None:
    """The rank that has made more calls waits for the other, whichever is first."""
    for behind in (0, 1):
        some = [report(n, count=2, state="fetch", calls=51) for n in range(2)]
        some[behind] |= report(
            behind, count=2, state="fetch", calls=50, place="train.py:40"
        )
        found = only(judged(*some))
        assert (found.kind, found.numbers, found.calls) == (
            SuspectKind.ELSEWHERE,
            (behind,),
            50,
        )


def test_ranks_that_are_missing_are_gone_or_unseen() -> None:
    """It depends on whether all hosts have answered."""
    assert only(judged(*waiting(3))).kind is SuspectKind.MISSING
    here = host("host-1:9467", {"ranks": waiting(3)})
    away = JobHost("host-2:9467", "connection refused")
    verdict = judge([here, away])
    [job] = verdict.jobs
    assert only(job).kind is SuspectKind.UNREACHABLE
    said = "\n".join(lines(verdict, 100))
    assert "1 of 2 hosts did not answer:\n  host-2:9467: connection refused" in said


def test_the_scheduler_names_the_job() -> None:
    """If all ranks say the same, that is more telling than an address."""
    named = ranks(4, age=0.1, job="llm-7", attempt="2")
    assert "4 ranks of llm-7, restarted twice, on 1 host" in text(judged(*named))
    for attempt in ("0", "", "-1", "9" * 50, "²", "x"):
        some = ranks(4, age=0.1, job="llm-7", attempt=attempt)
        assert "4 ranks of llm-7, on 1 host" in text(judged(*some))
    some = [*ranks(3, age=0.1, job="a"), report(3, age=0.1, job="b")]
    assert "4 ranks of 10.0.0.1:1234" in text(judged(*some))


def test_jobs_are_told_apart_by_their_coordinator() -> None:
    """Several may run on the same hosts; the one that hangs comes first."""
    fine = ranks(4, age=0.1, coordinator="10.0.0.9:1")
    hung = [*waiting(3), report(3, calls=811, state="python")]
    verdict = judge([host("a", {"ranks": [*fine, *hung]})])
    assert [one.state for one in verdict.jobs] == [JobState.HUNG, JobState.PROGRESSING]


def test_a_restarted_rank_replaces_the_one_before() -> None:
    """What is known of the process that ended is of an earlier attempt."""
    old = report(3, ended="killed", ended_seconds=100.0)
    job = judged(*ranks(3, age=0.1), old, report(3, age=0.1))
    assert job.suspects == ()
    assert job.state is JobState.PROGRESSING


def test_clocks_are_not_compared() -> None:
    """All that is compared are ages: those of an old record are older by its age."""
    silent = report(3, age=1.0, trouble="does not respond", since_seconds=50.0)
    job = judged(*waiting(3, age=51.0), silent)
    assert only(job).seconds == 50.0


def test_without_the_call_layer_steps_tell_it() -> None:
    """Steps that the program marks are as good for whether it gets on."""
    some = [report(n, calls=None, age=None, step_age=0.5) for n in range(4)]
    assert judged(*some).state is JobState.PROGRESSING
    late = [
        report(n, calls=None, age=None, step_age=60.0, state="fetch") for n in range(3)
    ]
    last = report(3, calls=None, age=None, step_age=60.0, state="python")
    job = judged(*late, last)
    assert (job.state, only(job).numbers) == (JobState.HUNG, (3,))


def test_without_any_measure_nothing_is_claimed() -> None:
    """A job of which it is unknown whether it gets on is not called hung."""
    some = [report(n, calls=None, age=None) for n in range(4)]
    job = judged(*some)
    assert job.state is JobState.UNKNOWN
    assert "The job starts, or its calls are not counted" in text(job)


def test_a_rank_that_has_no_processor_is_mentioned() -> None:
    """It gets on, only slowly."""
    job = judged(*ranks(3, age=0.1), report(3, age=0.1, starved=0.9))
    assert "rank 3: waiting for a processor most of the time" in text(job)


def test_limits_decide_who_is_slow_and_who_is_starved() -> None:
    """The others wait 45 % of the time for one, which lacks a processor for 60 %."""
    job = [*(runner(n) for n in range(3)), runner(3, rows(data_wait=0.95), starved=0.6)]
    for limits, accused in (
        (Limits(), [3]),
        (Limits(rank_slow_share=0.5, rank_starved_share=0.7), []),
    ):
        found = judged(*job, limits=limits)
        assert found.slowness is not None
        assert named(found.slowness) == accused
        assert list(found.starved) == accused


def test_what_is_no_rank_is_left_out() -> None:
    """Processes without a job, and records that cannot be, accuse no rank."""
    strange: list[Any] = [
        {},
        None,
        7,
        {"index": 5, "count": 4},
        {"index": -1, "count": 4},
        {"index": 0, "count": 10**12},
        {"index": 0, "count": 1},
        {"index": "0", "count": "4"},
    ]
    found = host("a", {"ranks": strange})
    assert (found.ranks, found.others) == ((), len(strange))
    verdict = judge([found])
    assert worst(verdict) is JobState.UNKNOWN
    assert lines(verdict, 100)[-3:] == [
        "No rank of a job on 1 host.",
        "8 observed processes there belong to no job, or have not joined theirs yet.",
        "On its host, `jaxmon explain --stacks` shows where a process is.",
    ]


@pytest.mark.parametrize("schema", [2, 10**30, "1", True, -1, 1.0])
def test_what_a_later_release_reports_is_refused(schema: Any) -> None:
    """By the schema of a host or a rank: nothing of it counts, and that is said."""
    advice = ": upgrade it" if type(schema) is int and schema > 1 else ""
    said = f"its schema is .*; this jaxmon reads up to 1{advice}$"
    ranks = waiting(4)
    with pytest.raises(ValueError, match=said):
        host("a", {"schema": schema, "ranks": ranks})
    ranks[2]["schema"] = schema
    verdict = judge([host("a", {"schema": 1, "ranks": ranks})])
    assert [one.index for one in verdict.jobs[0].ranks] == [0, 1, 3]
    [(target, doubt)] = verdict.doubts
    assert target == "a"
    assert re.search(said, doubt)
    assert f"a, {doubt}" in " ".join(" ".join(lines(verdict, 100)).split())
    assert document(verdict)["doubts"] == [{"target": "a", "doubt": doubt}]
    overview = json.dumps({"schema": schema, "functions": {}})
    with pytest.raises(FetchError, match=said) as caught:
        responses.overview(overview)
    assert responses.trouble(caught.value).startswith("cannot be read: its schema")


def test_implausible_values_are_dropped_and_said() -> None:
    """An age of 1e308 s is none: it makes no job hang, and no limit endless."""
    ranks = waiting(4)
    before = judge([host("a", {"ranks": waiting(4)})])
    ranks[1]["pace"]["age_seconds"] = 1e308
    ranks[1]["since_seconds"] = -1e308
    ranks[1]["worker"] = "1"
    verdict = judge([host("a", {"ranks": ranks})])
    assert verdict.jobs[0].seconds == before.jobs[0].seconds
    said = "worker 1: implausible values dropped: age_seconds, since_seconds"
    assert verdict.doubts == (("a", said),)


def test_hostile_records_are_bounded() -> None:
    """Whatever ranks report, the verdict is a page of clean text, and JSON."""
    shuffled = random.Random(7)  # noqa: S311 - the same in each run
    odd: list[Any] = [
        *(None, -1, 1e300, float("nan"), float("inf"), "", "\x1b[2J", "x" * 5000),
        *([], {}, [[]], True, {"a": {"b": []}}),
    ]

    def spoilt(value: Any) -> Any:
        if shuffled.random() < 0.1:
            return shuffled.choice(odd)
        if isinstance(value, dict):
            return {key: spoilt(one) for key, one in value.items()}
        return [spoilt(one) for one in value] if isinstance(value, list) else value

    for _ in range(300):
        some = [*waiting(3), report(3, calls=811, state="python"), *ranks(2)]
        spoiled = [spoilt(one) for one in some]
        verdict = judge([host("a", {"ranks": spoiled})])
        printed = lines(verdict, 100)
        assert len(printed) < 200
        assert all(line.isprintable() for line in printed)
        json.dumps(document(verdict), allow_nan=False)


def test_a_pause_that_cannot_be_usual_delays_no_verdict_for_ever() -> None:
    """Nor does it make the limit a number that is none."""
    job = judged(*waiting(3, usual=9e9), report(3, usual=9e9))
    assert job.limit <= 3 * 86_400
    assert "WAITING for 1 min, hung from 3 d" in text(job)
