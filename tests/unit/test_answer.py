"""Whether users are all right, and the likely cause if not."""

from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.facts.reading import Reading
from jaxmon.facts.status import (
    UNREAD,
    CallRate,
    FindingSummary,
    HostVerdict,
    ProcessVerdict,
)
from jaxmon.screens.status import summarise
from jaxmon.symptoms.answer import Onsets
from jaxmon.symptoms.findings import as_fact
from jaxmon.symptoms.symptom import Finding
from jaxmon_exporter.pages import Live
from tests.helpers.sidecars import ROUTE, START, Worker, reading, status


IN_PROGRESS = ("set", catalog.REQUESTS_IN_PROGRESS, 12, ROUTE)
OLDEST = "set", catalog.REQUEST_OLDEST_SECONDS
FULL = [
    ("requests", 100),
    ("set", catalog.DEVICE_INFO, 1, "0", "gpu", "H100", "0", "GPU-1", ""),
    ("set", catalog.DEVICE_MEMORY_BYTES, 93, "0", "in_use"),
    ("set", catalog.DEVICE_MEMORY_BYTES, 100, "0", "limit"),
]
HANGS_SINCE_LATELY = [("requests", 100), IN_PROGRESS, (*OLDEST, 25, ROUTE)]
IS_SLOW = [("requests", 100, "success", "warm", 0.9)]
WAITS = [("requests", 100), ("requests", 30, "success", "cold", 2.0)]
MOSTLY_WAITS = [("requests", 30), ("requests", 70, "success", "cold", 2.0)]
TRAINS = ("steps", 100, 0.2)
STANDS_STILL = ("set", catalog.STEP_AGE_SECONDS, 75, "train")
STEPS_ARE_SLOW = [("steps", 100, 0.4)]


def act(worker: Worker, *acts: tuple[Any, ...]) -> None:
    """Have *worker* do and have each of *acts*: a method, and its arguments."""
    for name, *arguments in acts:
        getattr(worker, name)(*arguments)


CASES: list[tuple[list[tuple[Any, ...]], str, str]] = [
    (
        [("requests", 160, "error")],
        *("failing", "No: 160 of 160 requests to POST /predict failed in the last"),
    ),
    (
        [("requests", 4, "error"), ("requests", 1000)],
        *("fine", "Yes: 16.7 requests a second, and hardly any fails; 1"),
    ),
    (
        [IN_PROGRESS, (*OLDEST, 130, ROUTE)],
        "degraded",
        "Not quite: no request to POST /predict has finished in the last minute: 12",
    ),
    (
        [IN_PROGRESS, (*OLDEST, 370, ROUTE)],
        "failing",
        "No: no request to POST /predict has finished in the last minute: 12 requests",
    ),
    (HANGS_SINCE_LATELY, "degraded", "Not quite: requests to POST /predict hang: 12"),
    (
        [("requests", 100), (*IN_PROGRESS[:2], 1, ROUTE), (*OLDEST, 2.5, ROUTE)],
        *("fine", "Yes: 1.67 requests a second, and none fails; 1 loop"),
    ),
    (IS_SLOW, "degraded", "Not quite: warm requests to POST /predict are slow: 95 %"),
    (WAITS, "degraded", "Not quite: 23 % of the requests to POST /predict"),
    (MOSTLY_WAITS, "degraded", "Not quite: 70 % of the requests to POST /predict"),
    ([TRAINS], "fine", "Yes: 1.67 steps a second in loop train."),
    (
        [STANDS_STILL],
        "degraded",
        "Not quite: loop train is stuck: its last step was 1 min 15 s ago; a page",
    ),
    (
        [("set", catalog.STEP_AGE_SECONDS, 730, "train")],
        *("failing", "No: loop train is stuck: its last step was 12 min 10 s ago."),
    ),
    (
        [STANDS_STILL, ("set", catalog.COMPILE_OLDEST_SECONDS, 70)],
        *("fine", "Yes: 1 loop at work."),
    ),
    (
        [STANDS_STILL, ("set", catalog.ACTIVITY_RUNNING_SECONDS, 70, "evaluate")],
        *("fine", "Yes: 1 loop at work."),
    ),
    (
        STEPS_ARE_SLOW,
        *("degraded", "Not quite: loop train is slow: a step takes 0.40 s"),
    ),
    (
        [TRAINS, ("set", catalog.VALUE_NONFINITE_RUN, 2, "loss")],
        *("failing", "No: the logged loss is NaN or infinite."),
    ),
    (
        [TRAINS, ("set", catalog.VALUE_NONFINITE_RUN, 2, "grad_norm")],
        *("fine", "Yes: 1.67 steps a second in loop train."),
    ),
    (
        [TRAINS, ("set", catalog.CHECKPOINT_FAILURES, 3, "save")],
        *("degraded", "Not quite: 3 checkpoint saves failed in the last minute"),
    ),
    (FULL, "degraded", "Not quite: device 0 is about to run out of memory"),
    (
        [("requests", 100), ("set", catalog.COMPILE_OLDEST_SECONDS, 1000)],
        *("degraded", "Not quite: a compile has been running for 16 min 40 s."),
    ),
]


@pytest.mark.parametrize(("acts", "state", "text"), CASES)
def test_answer_names_what_is_wrong_and_nothing_else(acts, state, text):
    """Each fault of the last minute is the answer, and what is healthy is none."""
    worker = Worker()
    act(worker, ("requests", 5000), ("steps", 1000, 0.2))
    before = reading(worker, at=START + 540)
    act(worker, *acts)
    found = status(worker, before=before).answer
    assert found.state == state, found
    assert found.text.startswith(text), found
    assert len(found.reasons) == (state != "fine"), found


def test_a_fault_that_is_over_is_none() -> None:
    """Errors before the last minute do not count while requests succeed now."""
    worker = Worker()
    worker.requests(160, "error")
    before = reading(worker, at=START + 540)
    worker.requests(60)
    assert status(worker, before=before).answer.state == "fine"


@pytest.mark.parametrize(
    ("number", "took", "text"),
    [
        (2, 0.01, "Not quite: 98 % of the requests to POST /predict in the last"),
        (60, 0.01, "Yes: 1 requests a second"),
        (60, 9.0, "Not quite: warm requests to POST /predict are slow"),
    ],
)
def test_compiles_that_are_over_hide_nothing(number: int, took: float, text: str):
    """Unless it is not certain that they are; what is slow now comes first."""
    worker = Worker()
    worker.requests(500)
    earlier = reading(worker, at=START + 10)
    worker.requests(100, "success", "cold", 2.0)
    before = reading(worker, at=START + 540)
    worker.requests(number, took=took)
    assert status(worker, before=before, earlier=earlier).answer.text.startswith(text)


@pytest.mark.parametrize(
    ("outcome", "start", "minutes", "state"),
    [
        ("error", "warm", (3,), "failing"),
        ("error", "warm", (1, 0), "failing"),
        ("success", "cold", (1, 2), "degraded"),
        ("success", "cold", (1, 0), "fine"),
    ],
)
def test_what_seldom_happens_does_not_flicker(outcome, start, minutes, state):
    """A sidecar counts ten minutes of them: the answer changes once at most."""
    worker, now = Worker(), START + 6000
    worker.requests(5000)
    live = Live(worker.page, version="", run_dir="", clock=lambda: now)

    def after_a_minute(succeed: int, others: int) -> str:
        nonlocal now
        worker.requests(succeed)
        worker.requests(others, outcome, start)
        for _ in range(6):
            now += 10
            live.sample()
        summary = live.summary((), UNREAD)
        assert summary is not None
        return summary.answer.state

    numbers = [minutes[minute % len(minutes)] for minute in range(24)]
    found = [after_a_minute(20, number) for number in numbers]
    assert set(found[10:]) == {state}, found
    assert [*dict.fromkeys(found)] == [*dict.fromkeys(("fine", state))], found
    # Once it is over, and enough succeed, the ten minutes do not matter.
    assert after_a_minute(500, 0) == "fine"


def test_failures_after_which_no_one_comes_are_not_forgotten() -> None:
    """Requests that failed are said as long as none has come since."""
    worker = Worker()
    worker.requests(160, "error")
    before = reading(worker, at=START + 540)
    found = status(worker, before=before).answer
    assert found.state == "degraded"
    assert "160 of 160 requests to POST /predict failed; none has fin" in found.text
    # Those that wait have come since.
    act(worker, IN_PROGRESS, (*OLDEST, 3, ROUTE))
    assert status(worker, before=before).answer.state == "fine"


def test_failures_are_known_before_the_first_minute_is() -> None:
    """A sidecar that has just started judges by the totals."""
    worker = Worker()
    worker.requests(160, "error")
    found = status(worker).answer
    assert found.state == "failing"
    assert found.text.endswith("requests to POST /predict failed since the start.")


def test_a_new_sidecar_vouches_for_no_process_that_it_has_read_once() -> None:
    """Of a young one, it knows all; what an old one did lately, a minute later."""
    young, old = Worker(1, started=START + 540), Worker()
    for worker in (young, old):
        worker.requests(100)
    assert status(young, old).answer.text.startswith("Yes, as far as known: ")
    assert status(young).answer.text.startswith("Yes: ")


def test_without_marks_the_answer_says_what_to_mark() -> None:
    """Nothing is known of users without marks; that is not the same as fine."""
    found = status(Worker()).answer
    assert found.state == "unknown"
    assert "no program here marks its requests or steps" in found.text
    assert "@jaxmon.request" in found.advice
    empty = status().answer
    assert (empty.state, empty.advice) == ("unknown", "")
    assert empty.text == "Not known: no instrumented process runs here."


def test_the_question_is_the_one_that_is_answered() -> None:
    """A training has no users, and of a script it is not known what it is for."""
    script, trainer, service = Worker(), Worker(1), Worker(2)
    neutral = "Is everything all right?"
    assert status().answer.question == status(script).answer.question == neutral
    trainer.steps(60, 1.0)
    training = "Is the training making progress?"
    assert status(script, trainer).answer.question == training
    service.requests(60)
    users = "Are users all right?"
    assert status(script, service).answer.question == users
    assert status(trainer, service).answer.question == users


DOING_LATELY = "Lately, 88 % of the time goes to train.py:31 (compiling m.step)."
SAID = f"m.step: 3 calls a second. {DOING_LATELY}"
LOOP = f", in a repeating loop at train.py:9 (recognised, not marked). {DOING_LATELY}"


@pytest.mark.parametrize("loop", ["", "train.py:9"])
def test_what_is_known_without_marks_is_said(loop: str) -> None:
    """Calls, a loop that was recognised, and where the time goes; never a step."""
    calling = CallRate(function="m.step", rate=3.0, loop=loop)
    process = ProcessVerdict(doing=DOING_LATELY, calling=calling)
    found = status(Worker(), verdict=HostVerdict({"0": process})).answer
    head = "Not known: no program here marks its requests or steps. "
    assert found.state == "unknown"
    assert found.text == head + (
        SAID.replace(f". {DOING_LATELY}", LOOP) if loop else SAID
    )
    assert ("jaxmon.steps(loader)." in found.advice) == bool(loop)
    assert ("@jaxmon.request" in found.advice) != bool(loop)

    workers = [Worker(slot) for slot in range(3)]
    verdicts = {"1": process, "2": process.replace(calling=CallRate("m.other", 9.0))}
    several = status(*workers, verdict=HostVerdict(verdicts)).answer
    assert several.text.startswith(f"{head}Worker 2: m.other: 9 calls a second.")
    assert "Worker 1: m.step: 3 calls a second" in several.text
    assert "@jaxmon.request" in several.advice
    marked = Worker(3)
    marked.steps(60, 1.0)
    with_marks = status(*workers, marked, verdict=HostVerdict(verdicts)).answer
    assert "m.step" not in with_marks.text


@pytest.mark.parametrize(
    ("topic", "seconds", "degraded"),
    [
        *(("recompile", 28.8, True), ("unrolled", 20.0, True)),
        *(("recompile", 17.0, False), ("unrolled", 0.0, False)),
        # Where the time goes is no fault, and a hint has no known gain.
        *(("host", 34.0, False), ("device", 34.0, False), ("whole", 34.0, False)),
    ],
)
def test_a_fault_that_takes_most_of_the_time_is_known(topic, seconds, degraded):
    """Whichever fault it is; what is marked is judged by its own numbers."""
    finding = as_fact(
        Finding(topic, "f", "It takes time.", ("a.py:3",), "", "", seconds)
    )
    process = ProcessVerdict(findings=(finding,), observed_seconds=36.0)
    verdict = HostVerdict({"0": process})
    found = status(Worker(), verdict=verdict).answer
    assert found.state == ("degraded" if degraded else "unknown")
    assert found.text.startswith("Not quite: It" if degraded else "Not known: no")
    assert [one.because for one in found.reasons] == ["a.py:3"] * degraded
    # How much of the time it was is not known.
    unseen = HostVerdict({"0": process.replace(observed_seconds=None)})
    assert status(Worker(), verdict=unseen).answer.state == "unknown"
    trains = Worker()
    trains.steps(60, 1.0)
    assert status(trains, verdict=verdict).answer.state == "fine"


@pytest.mark.parametrize("fails", [True, False])
def test_what_keeps_callers_waiting_is_why_they_leave(*, fails: bool) -> None:
    """Not what requests failed with before; unless they do now."""
    failed = Finding("requests", ROUTE, "It failed.", ("ValueError, 3 min ago",), "")
    held = Finding("event_loop", "a.py:3", "A line kept the loop.", (), "")
    process = ProcessVerdict(findings=(as_fact(failed), as_fact(held)))
    worker = Worker()
    worker.requests(100)
    worker.requests(90, "client_error", took=20.0)
    worker.requests(90 * fails, "error")
    before = reading(Worker(), at=START + 540)
    found = status(worker, before=before, verdict=HostVerdict({"0": process})).answer
    assert found.state == "failing"
    why = "ValueError, 3 min ago." if fails else "A line kept the loop."
    assert found.reasons[0].because == why


def finding_on(
    topic: str, subject: str, verdict: str, *evidence: str, where: str = ""
) -> FindingSummary:
    return as_fact(Finding(topic, subject, verdict, evidence, "", where))


def because(worker: Worker, before: Reading, process: ProcessVerdict) -> list[str]:
    """Return the causes of what is wrong with *worker*."""
    verdict = HostVerdict({"0": process})
    found = status(worker, before=before, verdict=verdict).answer
    return [one.because for one in found.reasons]


FAILS = finding_on(
    "requests", ROUTE, "40 requests failed.", "StoreDown at store.py:8: 40 times"
)
OTHER_ROUTE = finding_on("requests", "/other", "9 requests failed.", "Typo at a.py:1")
RECOMPILES = finding_on("recompile", "f", "f was recompiled.", where="serve.py:8")
LATE = finding_on(
    "hanging", ROUTE, "A request hangs at serve.py:9.", where="serve.py:9"
)
STALLED = finding_on("stalled", "", "The program waits for data at load.py:3.")
DOING = "Lately, 80 % of the time goes to store.py:5 (blocked outside of JAX)."


@pytest.mark.parametrize(
    ("acts", "findings", "cause"),
    [
        (CASES[0][0], [OTHER_ROUTE, FAILS], "StoreDown at store.py:8: 40 times."),
        (WAITS, [RECOMPILES], "f was recompiled. At serve.py:8."),
        (HANGS_SINCE_LATELY, [FAILS, LATE], "A request hangs at serve.py:9."),
        (IS_SLOW, [RECOMPILES], DOING),
        (STEPS_ARE_SLOW, [], DOING),
        ([STANDS_STILL], [STALLED], "The program waits for data at load.py:3."),
    ],
)
def test_the_answer_names_the_likely_cause(acts, findings, cause):
    """The finding that explains the reason is its cause, or where the time goes."""
    worker = Worker()
    act(worker, ("requests", 5000), ("steps", 1000, 0.2))
    before = reading(worker, at=START + 540)
    act(worker, *acts)
    process = ProcessVerdict(findings=tuple(findings), doing=DOING)
    assert because(worker, before, process) == [cause]
    # Who may not see findings gets none.
    assert because(worker, before, ProcessVerdict()) == [""]


def test_requests_that_hang_from_the_first_minute_on_are_not_all_right() -> None:
    """A young process has no past: what its requests took until then is usual."""
    worker = Worker(started=START + 560)
    worker.requests(100)
    act(worker, *HANGS_SINCE_LATELY)
    found = status(worker).answer
    assert found.state == "degraded"
    assert "requests to POST /predict hang: 12 requests in progress" in found.text


def test_memory_that_ran_out_on_the_line_that_fails_is_the_cause() -> None:
    """JAX's class of exception does not say so; elsewhere, it is not the cause."""
    worker = Worker()
    worker.requests(160, "error")
    failed = "JaxRuntimeError at serve.py:8: 160 times"
    requests = finding_on("requests", ROUTE, "160 requests failed.", failed)
    oom = finding_on("oom", "", "The device ran out of memory.", where="serve.py:8")
    other = oom.replace(where="warm.py:3")
    for findings, cause in (
        ([oom, requests], "The device ran out of memory. At serve.py:8."),
        ([other, requests], f"{failed}."),
    ):
        verdict = HostVerdict({"0": ProcessVerdict(findings=tuple(findings))})
        reasons = status(worker, verdict=verdict).answer.reasons
        assert reasons[0].because == cause


def test_without_findings_the_numbers_say_what_is_recompiled() -> None:
    """That needs no lines, so that whoever may read metrics may see it."""
    worker = Worker(started=START + 560)
    act(worker, *MOSTLY_WAITS)
    worker.set(catalog.RECOMPILES, 3, "serve.embed", "dtype")
    worker.set(catalog.RECOMPILES, 70, "serve.score", "shape")
    (reason,) = status(worker).answer.reasons
    assert reason.because == (
        "serve.score was recompiled 70 times because an argument's shape changed."
    )


def test_what_has_been_slow_for_long_is_still_slow() -> None:
    """When slow requests are a part of the usual p95, their median still tells."""
    worker = Worker()
    worker.requests(1000, took=0.02)
    worker.requests(100, took=0.9)
    before = reading(worker, at=START + 540)
    worker.requests(100, took=0.9)
    found = status(worker, before=before).answer
    assert found.state == "degraded"
    assert "half of them take up to" in found.text


def test_findings_are_reasons_unless_the_numbers_say_so() -> None:
    """A finding that costs users something is a reason, once for all processes."""
    worker = Worker()
    worker.requests(160, "error")
    worker.set(catalog.VALUE_NONFINITE_RUN, 9, "loss")
    of = [
        finding_on("requests", ROUTE, "160 requests failed."),
        finding_on("nonfinite_value", "loss", "The logged loss is NaN."),
        finding_on("leak", "0", "Memory of device 0 grew steadily."),
        finding_on("recompile", "f", "f was recompiled."),
        finding_on("hanging", "GET /other", "A request to GET /other hangs."),
    ]
    verdict = HostVerdict(
        {
            "0": ProcessVerdict(findings=tuple(of)),
            "1": ProcessVerdict(findings=tuple(of[2:4])),
        }
    )
    reasons = status(worker, verdict=verdict).answer.reasons
    assert [(one.state, one.text) for one in reasons] == [
        ("failing", "160 of 160 requests to POST /predict failed since the start."),
        ("failing", "the logged loss is NaN or infinite."),
        ("degraded", "A request to GET /other hangs."),
        ("degraded", "Memory of device 0 grew steadily."),
    ]
    assert reasons[3].workers == ("0", "1")


def test_a_reason_says_when_its_alert_follows() -> None:
    """To one who saw it begin; what is there at the first look has no such time."""
    onsets = Onsets()
    worker = Worker()
    worker.requests(1000)

    def said(at: float) -> str:
        found = summarise(reading(worker, at=START + at), onsets=onsets)
        return found.answer.text

    assert "memory" not in said(600)
    act(worker, *FULL)
    full = "Not quite: device 0 is about to run out of memory: 93 % of 100 B in use"
    follows = [f"since {one}, a ticket follows at 10 min." for one in ("0 s", "20.0 s")]
    assert [said(620), said(640)] == [f"{full}; {one}" for one in follows]
    for at in range(660, 1220, 20):
        assert "; since" in said(at)
    # The ticket is there; and after a pause, since when is not known.
    assert [said(1220), said(1300), said(1320)] == [f"{full}."] * 3


def test_an_accelerator_that_no_program_uses_is_not_failing() -> None:
    """
    Its alert is a ticket, as a device may be drained, or its service goes on without
    it; one that a run uses pages.
    """
    info = series(catalog.ACCELERATOR_INFO, "GPU-1", "0", "nvidia", "H100", "", "")
    lost = [
        Family(catalog.ACCELERATOR_INFO, [(info, 1.0)]),
        gauge(catalog.ACCELERATOR_UP, 0, "GPU-1"),
    ]
    idle, serves, loops = Worker(), Worker(), Worker()
    act(serves, *FULL)
    act(loops, *FULL, TRAINS)
    states = (idle, "degraded"), (serves, "degraded"), (loops, "failing")
    for worker, state in states:
        reasons = status(worker, extra=lost).answer.reasons
        (found,) = [one for one in reasons if one.kind == "accelerator"]
        assert found.text == "accelerator 0 does not respond to the driver."
        assert found.state == state
