"""Which failure of a job was the first, from documents of its hosts."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.host import JobHost, host
from jaxmon.job.post_mortem import PostMortem, PostMortems, examine
from jaxmon.job.post_mortem_text import document, lines
from jaxmon.job.verdict import is_of_peers
from tests.job.ranks import report, waiting


NOW = 1_800_000_000.0
PEER = (
    "UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] "
    "Connection closed by peer [127.0.0.1]:37559"
)


def raised(
    age: float, kind: str = "ValueError", message: str = "loss is not finite", **of: Any
) -> dict[str, Any]:
    """Return what a sidecar adds for an uncaught exception *age* seconds ago."""
    said = {"type": kind, "message": message, "where": "train.py:9", "function": "f"}
    words = {"kind": "exception", **said, "age_seconds": age, **of}
    return {"ended": "crashed", "ended_seconds": age, "words": words}


def killed(age: float | None, *, noticed: float = 0.0, heard: float = 0.0) -> Any:
    """Return what a sidecar adds for a process that was killed."""
    ends = {"ended": "killed", "ended_seconds": noticed, "since_seconds": heard}
    return {**ends, "closed_seconds": age}


def a_host(
    *reports: dict[str, Any],
    within: float = 0.001,
    later: float = 0.0,
    ahead: float = 0.0,
    **more: Any,
) -> JobHost:
    """Return a sidecar's response, *later* than the first, with a clock *ahead*."""
    asked = NOW + later
    found = host("h:1", {"ranks": list(reports), "time": asked + ahead, **more})
    return found.replace(asked=asked, within=within)


def job_of(*hosts: JobHost) -> PostMortem:
    [found] = examine(hosts).jobs
    return found


def first_of(*hosts: JobHost) -> int | None:
    """Return the rank that failed first."""
    found = job_of(*hosts).first
    return None if found is None else found.rank.index


def text_of(found: PostMortems) -> str:
    return " ".join("\n".join(lines(found, 78)).split())


@pytest.mark.parametrize("age", [-1e308, 1e308])
def test_ages_that_cannot_be_are_no_failure_of_ours(age: float) -> None:
    """One that is said to be in the future is of now; none is older than computers."""
    found = examine([a_host(report(0, **raised(age)), report(1, **raised(-age)))])
    assert "ValueError" in text_of(found)
    json.dumps(document(found), allow_nan=False)
    [job] = found.jobs
    assert job.first is not None
    assert abs(NOW - job.first.time) < 1e10


def test_a_process_that_would_begin_in_the_future_hides_no_failure() -> None:
    """Failures of earlier attempts are left out, by what each of its ranks says."""
    strange = report(0, **raised(5.0, message=PEER)) | {"observed_seconds": -1e9}
    assert first_of(a_host(strange, report(1, **raised(6.0)))) == 1


def test_ranks_that_have_been_started_again_are_known() -> None:
    """By their number, or, as in containers, by how long they have been observed."""
    before = report(1, **raised(60.0))
    for pid, observed, expected in (
        (2_000, 30.0, (1,)),
        (2_000, 0.0, (1,)),
        (1_001, 30.0, (1,)),
        # The same process, which two sidecars report.
        (1_001, 500.0, ()),
        (1_001, 0.0, ()),
    ):
        now = report(1, age=0.1) | {"pid": pid, "observed_seconds": observed}
        assert job_of(a_host(before, now, report(0))).restarted == expected
    # One that has not ended yet, and one that has ended again.
    raising = {**raised(3.0), "ended": "", "ended_seconds": 0.0}
    assert job_of(a_host(report(1, **raising), report(0))).restarted == ()
    again = report(1, **raised(5.0)) | {"pid": 2_000, "observed_seconds": 20.0}
    assert job_of(a_host(before, again, report(0))).restarted == ()


def test_processes_of_unknown_rank_are_listed_if_any_job_lacks_one() -> None:
    """They may have been that rank; if none is missing, they belong to no job."""
    alone = {"index": None, "count": None, **raised(9.0)}
    whole = [report(n) for n in range(4)]
    other = [report(n, coordinator="10.0.0.2:1") for n in range(3)]
    assert len(examine([a_host(*whole, *other, alone)]).unknown) == 1
    assert examine([a_host(*whole, alone)]).unknown == ()


def test_a_consequence_is_no_cause_even_if_it_seems_earlier() -> None:
    """An error about a peer comes after that peer's own, within the uncertainty."""
    cause = report(3, **raised(10.0))
    peer = report(0, **raised(10.02, message=PEER))
    hosts = [a_host(peer, within=0.05), a_host(cause, within=0.05)]
    assert first_of(*hosts) == 3
    text = text_of(examine(hosts))
    assert "first: rank 3 (host-0, pid 1003) raised ValueError: loss is not" in text
    assert "train.py:9 in f" in text
    assert "consequence, within 0.12 s: rank 0 (host-0, pid 1000) raised" in text
    assert "what rank 0 printed is a consequence of the failure of rank 3" in text


@pytest.mark.parametrize("ahead", [-300.0, 0.0, 300.0])
def test_clocks_of_hosts_that_differ_do_no_harm(ahead: float) -> None:
    """Shifted by minutes, the wall clock of a host only changes what its logs say."""
    hosts = [
        a_host(report(0, **raised(9.0))),
        a_host(report(1, **raised(10.0)), ahead=ahead),
        a_host(report(2, **raised(9.5))),
    ]
    assert first_of(*hosts) == 1
    [job] = document(examine(hosts))["jobs"]
    assert job["first"]["time"] == pytest.approx(NOW - 10.0)
    assert [one["rank"] for one in job["later"]] == [2, 0]
    text = text_of(examine(hosts))
    assert ("its clock is 5 min" in text) == bool(ahead)


def test_hosts_that_answered_at_different_times_are_compared() -> None:
    """An age counts from when its response was made."""
    early, late = report(0, **raised(1.0)), report(1, **raised(4.0))
    assert first_of(a_host(early), a_host(late, later=5.0)) == 0
    assert first_of(a_host(early), a_host(late, later=2.0)) == 1


def test_what_the_clocks_cannot_order_is_said_to_be_at_the_same_time() -> None:
    """Two causes closer than the uncertainty are both named, with it."""
    hosts = [
        a_host(report(0, **raised(5.0)), within=0.2),
        a_host(report(1, **raised(5.1)), within=0.1),
    ]
    assert first_of(*hosts) == 1
    assert len(job_of(*hosts).together) == 1
    assert "at the same time, within 0.40 s: rank 0" in text_of(examine(hosts))


def test_a_killed_rank_comes_before_those_that_lost_it() -> None:
    """Its end is noticed a little after theirs, or only within seconds."""
    peer = report(0, **raised(10.0, message=PEER))
    for end in (killed(9.9), killed(None, noticed=7.0, heard=12.0)):
        assert first_of(a_host(peer, report(1, **end))) == 1


def test_ranks_that_jax_ends_after_a_failure_are_no_cause() -> None:
    """They leave no word; nor do they if they lose the coordinator."""
    cause, silent = report(2, **raised(10.0)), report(1, **killed(9.5))
    assert first_of(a_host(silent, cause)) == 2
    assert job_of(a_host(silent, cause)).consequences[0].rank.index == 1
    window = killed(None, noticed=7.0, heard=12.0)
    assert first_of(a_host(*(report(n, **window) for n in (2, 0, 1)))) == 0
    assert first_of(a_host(report(1, **killed(20.0)), cause)) == 1


def test_errors_of_peers_alone_leave_the_cause_open() -> None:
    """Then it is on a host that did not answer, or in the network."""
    peers = [report(n, count=3, **raised(9.0, message=PEER)) for n in (0, 1)]
    found = examine([a_host(*peers), JobHost("far:1", "no response")])
    [job] = found.jobs
    assert job.first is None
    assert job.failed
    text = text_of(found)
    assert "rank 2 left nothing here" in text
    assert "1 of 2 hosts did not answer: far:1: no response" in text


def test_who_has_not_failed_is_where_to_look() -> None:
    """If all errors are about others, a rank that lives may have kept them waiting."""
    peers = [report(n, count=3, **raised(9.0, message=PEER)) for n in (0, 2)]
    busy = report(1, count=3, state="blocked", place="load.py:9", age=40.0)
    text = text_of(examine([a_host(*peers, busy)]))
    assert "look at what rank 1 did instead, and at the network" in text
    assert (
        "rank 1 has not failed, and is blocked outside of JAX in main, load.py:9"
        in text
    )


def test_what_is_known_of_a_killed_rank_is_older_than_its_end() -> None:
    """How far it had come is from its last response, whose age is said with it."""
    text = text_of(examine([a_host(report(1, **killed(10.0, heard=14.0)))]))
    assert "was seen last 4.0 s before, in train.py:58, call 812 of train_step" in text
    text = text_of(examine([a_host(report(1, **killed(10.0, heard=10.2)))]))
    assert "was seen last in train.py:58, call 812 of train_step" in text
    saving = report(1, activity="checkpoint", **killed(10.0, heard=10.2))
    text = text_of(examine([a_host(saving)]))
    assert "was seen last in the activity checkpoint, train.py:58, call 812" in text


def test_an_error_long_after_those_of_peers_is_not_their_cause() -> None:
    """What fails while a program cleans up is no explanation."""
    hosts = a_host(
        report(0, count=2, **raised(60.0, message=PEER)),
        report(1, count=2, **raised(10.0, "OSError", "disk quota exceeded")),
    )
    assert first_of(hosts) is None


@pytest.mark.parametrize(
    ("kind", "message", "of_peers"),
    [
        ("ValueError", PEER, True),
        ("JaxRuntimeError", "UNAVAILABLE: Socket closed", True),
        ("JaxRuntimeError", "ABORTED: /job:a/task:1 heartbeat timeout", True),
        ("JaxRuntimeError", "DEADLINE_EXCEEDED: Barrier timed out. Id: x", True),
        ("JaxRuntimeError", "INTERNAL: NCCL operation failed: remote error", True),
        ("JaxRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating", False),
        ("JaxRuntimeError", "INTERNAL: CUDA error: illegal address", False),
        ("ConnectionResetError", "Connection reset by peer", False),
        ("ValueError", "barrier layer has the wrong shape", False),
    ],
)
def test_errors_about_peers_are_recognised(kind, message, of_peers):
    """By what the runtime says; a connection of the program's own is its own."""
    assert is_of_peers(ProcessEnd(type=kind, message=message)) == of_peers


def test_an_error_raised_while_handling_one_of_peers_is_of_peers() -> None:
    """The chain is looked at, and shown."""
    chain = {"causes": [{"type": "ValueError", "message": PEER}]}
    peer = report(0, **raised(10.1, "OSError", "cannot save", **chain))
    cause = report(1, **raised(10.0))
    found = examine([a_host(peer, cause, within=0.2)])
    assert first_of(a_host(peer, cause, within=0.2)) == 1
    assert "OSError: cannot save (after ValueError: UNKNOWN: Gloo" in text_of(found)


def exited(age: float, *causes: dict[str, str], **words: Any) -> dict[str, Any]:
    """Return what is reported of a rank that exited with code 1."""
    said = {"kind": "exit", "code": 1, "age_seconds": age, "causes": list(causes)}
    return {"ended": "crashed", "words": {**said, **words}}


def test_an_exit_after_an_error_is_judged_by_the_error() -> None:
    """Of others, it is a consequence; of memory, its advice is about that."""
    peer = exited(10.1, {"type": "ValueError", "message": PEER})
    own = {"type": "LossError", "message": "loss is not finite"}
    cause = exited(10.0, own, message="giving up", where="train.py:7", function="fit")
    host = a_host(report(0, **peer), report(1, **cause), within=0.2)
    assert first_of(host) == 1
    text = text_of(examine([host]))
    assert (
        "rank 1 (host-0, pid 1001) exited with code 1: giving up (after LossError: "
        "loss is not finite)"
    ) in text
    assert "train.py:7 in fit" in text
    assert "what rank 0 printed is a consequence of the failure of rank 1" in text

    full = {"type": "JaxRuntimeError", "message": "RESOURCE_EXHAUSTED: 4 GiB"}
    host = a_host(report(0, **exited(9.0, full, oom=True)))
    text = text_of(examine([host]))
    assert "exited with code 1 (after JaxRuntimeError: RESOURCE_EXHAUSTED" in text
    assert "JaxmonOutOfMemory" in text


def test_exits_and_kills_for_memory_are_told() -> None:
    """A code of 128 and more names the signal; the kernel's counter the reason."""
    code = {"kind": "exit", "code": 137, "age_seconds": 3.0}
    found = examine([a_host(report(0, words=code, ended="finished"))])
    assert "rank 0 (host-0, pid 1000) exited with code 137 (SIGKILL)" in text_of(found)
    assert document(found)["failed"]
    stop = {**code, "code": 143}
    found = examine([a_host(report(0, words=stop, ended="stopped"))])
    assert "rank 0 (host-0, pid 1000) was stopped by SIGTERM" in text_of(found)
    assert text_of(found).startswith("STOPPED: 4 ranks")
    assert not document(found)["failed"]
    found = examine([a_host(report(0, **killed(3.0), oom_kills=1))])
    assert "was killed by the kernel for memory" in text_of(found)
    xid = [{"uuid": "GPU-7", "xid": "79", "age_seconds": 4.0}]
    found = examine([a_host(report(0, **killed(3.0), host_oom_kills=2), xids=xid)])
    assert "the kernel killed 2 on that host for memory then" in text_of(found)
    assert "Xid 79 of GPU-7, 1.0 s before" in text_of(found)


def test_nothing_is_said_of_a_job_that_ended_in_order() -> None:
    """Nor of one that runs."""
    over: dict[str, Any] = {
        "ended": "finished",
        "words": {"kind": "finished", "age_seconds": 1.0},
    }
    for of in (over, {}):
        found = examine([a_host(*(report(n, **of) for n in range(4)))])
        assert not document(found)["failed"]
        assert text_of(found).startswith("NO FAILURE: 4 ranks of 10.0.0.1:1234")


def test_ranks_that_never_joined_are_said_to_be_missing() -> None:
    """They may have failed before, as by an argument that is wrong on one host."""
    found = examine([a_host(*(report(n) for n in range(3)))])
    assert text_of(found).startswith("NO FAILURE KNOWN: 4 ranks")
    assert "rank 3 is reported by none of these hosts, and may have" in text_of(found)
    early = {"host": "far", **raised(9.0), "index": None}
    found = examine([a_host(*(report(n) for n in range(3)), early)])
    said = text_of(found)
    assert "A process of unknown rank (far) raised ValueError: loss is not" in said
    assert "train.py:9 in f" in said
    [unknown] = document(found)["unknown_rank"]
    assert (unknown["rank"], unknown["host"]) == (None, "far")
    whole = examine([a_host(*(report(n) for n in range(4)), early)])
    assert "unknown" not in text_of(whole)
    assert "A process of unknown rank" in text_of(examine([a_host(early)]))


def test_a_process_that_was_killed_before_it_joined_may_be_the_rank() -> None:
    """Or within seconds after: the sidecar has not read which rank it was."""
    early = {"host": "far", "pid": 7, "index": None, **killed(9.0)}
    some = [report(n) for n in range(3)]
    assert "A process of unknown rank (far) ended without a record" in text_of(
        examine([a_host(*some, early)])
    )
    lives = {"host": "far", "pid": 7, "index": None}
    assert "unknown rank" not in text_of(examine([a_host(*some, lives)]))
    whole = examine([a_host(*some, report(3), early)])
    assert "unknown rank" not in text_of(whole)


def test_a_job_that_hangs_without_a_failure_is_said_to() -> None:
    """The post-mortem is of those that have failed."""
    stuck = report(3, calls=811, state="data_wait")
    found = examine([a_host(*waiting(3), stuck)])
    assert [job.hangs for job in found.jobs] == [True]
    assert "`jaxmon job why` says which" in text_of(found)
    fine = examine([a_host(*(report(n, age=0.1) for n in range(4)))])
    assert "job why" not in text_of(fine)


def test_a_hook_called_by_hand_is_no_failure() -> None:
    """A rank that gets on after its uncaught exception has not ended by it."""
    words = raised(30.0)["words"]
    assert not job_of(a_host(report(0, age=1.0, words=words))).failed
    assert job_of(a_host(report(0, age=31.0, words=words))).failed


def test_an_attempt_before_is_left_out() -> None:
    """A rank that failed before the others of this attempt began is not the first."""
    old = report(0, **raised(900.0), since_seconds=900.0, observed_seconds=100.0)
    new = report(1, **raised(10.0), since_seconds=10.0, observed_seconds=300.0)
    assert first_of(a_host(old, new)) == 1
    again = report(0, age=0.1, observed_seconds=5.0)
    assert first_of(a_host(new, again)) == 1


def test_a_job_that_runs_again_is_said_to() -> None:
    """Its failure is still shown, as it is what the restart was for."""
    dead = [report(n, count=2, **killed(60.0, heard=60.0 + n)) for n in range(2)]
    new = [
        report(n, count=2, age=0.1, observed_seconds=20.0) | {"pid": 7} for n in (0, 1)
    ]
    text = text_of(examine([a_host(*dead, *new)]))
    assert text.startswith("FAILED: 2 ranks")
    assert "ranks 0-1 have been started again since" in text
    assert "again" not in text_of(examine([a_host(*dead)]))


def test_documents_may_have_anything() -> None:
    """Hostile or malformed ends neither raise nor show control characters."""
    odd: Sequence[Any] = (None, [], "x", -1, 1e308, {"kind": ["exception"]})
    for one in odd:
        reports = [
            report(0, words=one, ended="killed", closed_seconds=one),
            report(1, words={"kind": "exception", "age_seconds": one, "causes": one}),
            report(2, words={"kind": "exit", "code": one, "message": "\x1b[2J"}),
        ]
        found = examine([a_host(*reports, xids=one)])
        assert "\x1b" not in text_of(found)
        document(found)
