"""Whether users of a service are all right, of which little is known yet."""

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.facts.status import UNREAD, CallRate, HostVerdict, ProcessVerdict
from jaxmon.symptoms.findings import as_fact
from jaxmon.symptoms.symptom import Finding
from jaxmon_exporter.pages import Live
from tests.helpers.sidecars import ROUTE, START, Worker, reading, status


def in_progress(worker: Worker, age: float) -> Worker:
    worker.set(catalog.REQUESTS_IN_PROGRESS, 4, ROUTE)
    worker.set(catalog.REQUEST_OLDEST_SECONDS, age, ROUTE)
    return worker


def test_a_service_that_has_answered_none_is_not_all_right() -> None:
    """As after a bad deploy. What it refused is the client's fault, and no answer."""
    worker = in_progress(Worker(started=START + 520), 76)
    nothing = "Not quite: no request to POST /predict has finished in the last minute"
    oldest = ": 4 requests in progress, the oldest for 1 min 16 s; a page follows at"
    assert status(worker).answer.text.startswith(f"{nothing}{oldest}")
    worker.requests(2, "client_error")
    nothing = nothing.replace("minute", "1 min 20 s")
    refused = f"{nothing}, but for 2 client errors{oldest}"
    assert status(worker).answer.text.startswith(refused)


@pytest.mark.parametrize("outcome", ["success", "client_error"])
def test_what_it_answered_before_makes_no_difference(outcome: str) -> None:
    """If it was more than a minute ago."""
    worker = in_progress(Worker(), 76)
    worker.requests(10, outcome)
    before = reading(worker, at=START + 540)
    worker.requests(2, "client_error")
    assert status(worker, before=before).answer.state == "degraded"


def test_a_service_that_answers_may_have_long_requests() -> None:
    """Before a minute, and beside others that are answered."""
    worker = in_progress(Worker(started=START + 520), 59)
    worker.requests(2, "client_error")
    assert status(worker).answer.state == "fine"
    in_progress(worker, 76).requests(1)
    assert status(worker).answer.state == "fine"


@pytest.mark.parametrize("took", [0.9, 0.02])
def test_a_release_is_not_judged_by_what_an_earlier_one_took(took: float) -> None:
    """Its slot counts on for both. What it becomes slower than is itself."""
    worker, now = Worker(started=START + 5000), START + 5100.0
    worker.requests(5000, took=0.02)
    worker.set(catalog.COUNTING_SECONDS, 5100)
    worker.set(catalog.UPTIME_SECONDS, 100)
    live = Live(worker.page, version="", run_dir="", clock=lambda: now)

    def answered(took: float) -> str:
        nonlocal now
        for _ in range(12):
            live.sample()
            now += 10
            worker.requests(30, took=took)
        summary = live.summary((), UNREAD)
        assert summary is not None
        assert summary.requests[0].total >= 5000
        return summary.answer.text

    assert answered(took).startswith("Yes: 3 requests a second, and none fails")
    in_progress(worker, 20)
    hang = "Not quite: requests to POST /predict hang: 4 requests in progress"
    assert answered(took).startswith("Yes:" if took > 0.5 else hang)
    in_progress(worker, 1)
    assert answered(took).startswith("Yes:")
    assert "POST /predict are slow: half of them take up to" in answered(10 * took)


def test_a_successor_is_known_before_the_minute_is_over() -> None:
    """What it is compared with is its first reading, as long as older ones are kept."""
    worker, now = Worker(), START + 600.0
    live = Live(worker.page, version="", run_dir="", clock=lambda: now)

    def after(seconds: float) -> str:
        nonlocal now
        now += seconds
        worker.set(catalog.COUNTING_SECONDS, now - START)
        worker.set(catalog.UPTIME_SECONDS, now - begun)
        live.sample()
        summary = live.summary((), UNREAD)
        assert summary is not None
        return summary.answer.text

    begun = START
    for _ in range(8):
        worker.requests(100)
        after(10)
    begun = now
    worker.set(catalog.PROCESS_START_TIME_SECONDS, begun)
    after(2)
    worker.requests(50, "error")
    assert after(5).startswith("Yes")
    failed = "No: 50 of 50 requests to POST /predict failed in the last 20 s."
    assert after(15) == failed


def ended(worker: Worker) -> list[Family]:
    """Return what a sidecar serves of a process that has ended, from what it left."""
    worker.unset(catalog.PROCESS_START_TIME_SECONDS)
    return [of for of in worker.page() if of.metric is not catalog.AGENT_UP]


@pytest.mark.parametrize("failed", [0, 20])
def test_of_what_has_ended_it_is_not_known(failed: int) -> None:
    """No program runs: no user is served, whatever was counted before."""
    worker = Worker(1)
    worker.requests(180)
    worker.requests(failed, "error")
    answer = status(extra=ended(worker)).answer
    text = "Not known: no instrumented process runs here."
    assert (answer.state, answer.text, answer.reasons) == ("unknown", text, ())


def test_what_is_usual_is_not_what_ended_processes_took() -> None:
    """In another slot, say, from which a deployment has moved on."""
    past, worker = Worker(1), Worker()
    past.requests(100, took=0.02)
    worker.requests(5)
    left = ended(past)
    before = reading(worker, at=START + 540, extra=left)
    found = status(in_progress(worker, 20), before=before, extra=left)
    assert found.answer.state == "fine"
    assert found.requests[0].usual_count == 5


def test_what_ended_processes_counted_is_not_about_another_one() -> None:
    """While one runs, its own failures count, and no others."""
    past, runs = Worker(1), Worker()
    past.requests(180)
    past.requests(20, "error")
    runs.steps(10, 0.1)
    extra = ended(past)
    assert status(runs, extra=extra).answer.state == "fine"
    runs.requests(180)
    runs.requests(20, "error")
    assert status(runs).answer.state == "failing"


ENDED = "pid 7 (train.py) raised OSError: full, at train.py:6 in save."


def test_an_end_before_all_that_runs_began_is_past() -> None:
    """Unless a loop that it was in is run by none of them."""

    def found(loop: str, seconds: float, steps: int = 0) -> list[str]:
        worker = Worker()
        if steps:
            worker.steps(steps, 0.1)
        died = gauge(catalog.AGENT_DIED, 1, "3", loop)
        ended = ProcessVerdict(
            verdict=ENDED, crashed_seconds=seconds, ended_seconds=seconds
        )
        verdict = HostVerdict({"3": ended})
        now = status(worker, at=START + 100.0, extra=[died], verdict=verdict)
        return [reason.text for reason in now.answer.reasons]

    assert found("", 99.0) == found("train", 99.0, 10) == [ENDED]
    assert found("", 101.0) == found("train", 101.0, 10) == []
    assert found("train", 101.0) == [ENDED]


FAILED = as_fact(
    Finding(
        "thread_failed", "batcher", "Thread batcher ended at a.py:9.", (), "", "a.py:9"
    )
)
HANGS = as_fact(
    Finding("hanging", ROUTE, f"A request to {ROUTE} is in progress.", (), "", "")
)


@pytest.mark.parametrize(
    ("age", "texts"),
    [
        (20, [(FAILED.verdict, ""), ("requests to POST /predict hang", "")]),
        (400, [("no request to POST /predict has finished", FAILED.verdict)]),
    ],
)
def test_a_thread_that_failed_is_the_cause_of_what_hangs(
    age: float, texts: list[tuple[str, str]]
) -> None:
    """It stands above that or, if that pages, below; and what hangs is said once."""
    worker = Worker()
    worker.requests(100, took=0.02)
    before = reading(worker, at=START + 540)
    process = ProcessVerdict(findings=(HANGS, FAILED))
    found = status(
        in_progress(worker, age), before=before, verdict=HostVerdict({"0": process})
    )
    reasons = [(of.text, of.because) for of in found.answer.reasons]
    assert len(reasons) == len(texts)
    for (text, because), (start, cause) in zip(reasons, texts, strict=True):
        assert text.startswith(start)
        assert because == cause


def test_what_is_in_progress_is_not_hidden() -> None:
    """Before it hangs, as far as is known; and what clients ended without success."""
    worker = in_progress(Worker(started=START + 580), 13)
    assert status(worker).answer.text == (
        "Yes, as far as known: no finished request and no step in the last 20 s; "
        "4 requests to POST /predict in progress, the oldest for 13.0 s."
    )
    worker = in_progress(Worker(started=START + 520), 24)
    worker.requests(90, took=10.7)
    rate = "Yes: 1.12 requests a second, and none fails"
    oldest = "4 requests to POST /predict in progress, the oldest for 24.0 s."
    assert status(worker).answer.text == f"{rate}; {oldest}"
    in_progress(worker, 4).requests(6, "client_error")
    rate = "Yes: 1.2 requests a second, and none fails"
    assert status(worker).answer.text == f"{rate}, but for 6 client errors."


def test_of_a_few_requests_it_is_not_known_what_they_usually_take() -> None:
    """Neither on this screen nor among the findings."""
    for count, state in ((19, "fine"), (20, "degraded")):
        worker = Worker()
        worker.requests(count, took=0.02)
        before = reading(worker, at=START + 540)
        found = status(in_progress(worker, 20), before=before).answer
        assert found.state == state


@pytest.mark.parametrize(
    ("programs", "ends", "says"),
    [
        # Older than the end are 0 and 1, and 2 was started since.
        (("serve.py", "serve.py", "serve.py"), 1, False),
        (("serve.py", "serve.py", "serve.py"), 2, True),
        (("serve.py", "serve.py", "train.py"), 1, True),
        (("other.py", "other.py", "serve.py"), 1, False),
    ],
)
def test_an_end_whose_place_another_process_took_is_past(
    programs: tuple[str, ...], ends: int, *, says: bool
) -> None:
    """Beside healthy ones of the same program, which are older than the end."""
    workers = [Worker(0), Worker(1), Worker(2, started=START + 50)]
    up = {str(n): ProcessVerdict(program=of) for n, of in enumerate(programs)}
    slots = [str(n) for n in range(3, 3 + ends)]
    end = ProcessVerdict(program="serve.py", verdict=ENDED, crashed_seconds=60.0)
    end = end.replace(ended_seconds=60.0)
    verdict = HostVerdict({**up, **dict.fromkeys(slots, end)})
    rows = [(series(catalog.AGENT_DIED, slot, ""), 1.0) for slot in slots]
    died = Family(catalog.AGENT_DIED, rows)
    now = status(*workers, at=START + 100.0, extra=[died], verdict=verdict)
    assert [ENDED in reason.text for reason in now.answer.reasons] == [True] * says


AGAIN = f"ended 3 times in a row; the last time, {ENDED}"


@pytest.mark.parametrize("repeated", [AGAIN, ""])
def test_ends_that_repeat_are_said_while_requests_succeed(repeated: str) -> None:
    """Those that run have replaced them, and end next; a first end says nothing."""
    worker = Worker(started=START + 590)
    worker.requests(20)
    verdict = HostVerdict({"0": ProcessVerdict(repeated=repeated)})
    found = [of.text for of in status(worker, verdict=verdict).answer.reasons]
    assert found == [f"worker 0 {AGAIN}"] * bool(repeated)


@pytest.mark.parametrize(("seconds", "says"), [(60.0, True), (40.0, False)])
def test_steps_between_recompiles_are_no_bare_yes(
    seconds: float, *, says: bool
) -> None:
    """It is no ticket yet, as no alert is due; a few recompiles are none either."""
    worker = Worker()
    worker.steps(6, 0.1)
    text = "train.step was recompiled 5 times because a shape changed."
    verdict = f"{text} This took 60 s."
    found = as_fact(Finding("recompile", "train.step", verdict, (), "", "", seconds))
    process = ProcessVerdict(findings=(found,), observed_seconds=100.0)
    answer = status(worker, verdict=HostVerdict({"0": process})).answer
    assert answer.state == "fine"
    but = f"But recompiles take 60 % of the time: {text}"
    assert answer.text.endswith(but) == says


@pytest.mark.parametrize(
    ("users", "text"),
    [
        (60, "Yes: 1 requests a second, and none fails."),
        (0, "Yes, as far as known: no request but probes and no step in the last"),
        (None, "Yes: 0.5 requests a second, and none fails."),
    ],
)
def test_probes_are_no_requests_of_users(users: int | None, text: str) -> None:
    """They count as such only where there are no others."""
    ready = ("/ready", "success", "warm")
    worker = Worker()
    worker.observe(catalog.REQUEST_SECONDS, 0.1, *ready)
    worker.requests(10 * (users is not None))
    before = reading(worker, at=START + 540)
    worker.requests(users or 0)
    for _ in range(30):
        worker.observe(catalog.REQUEST_SECONDS, 0.1, *ready)
    found = status(worker, before=before).answer
    assert found.text.startswith(text), found


FORKED = "a.py:5 forked this process after JAX had started. Its children are unseen."


@pytest.mark.parametrize(
    ("notes", "rate", "forked"),
    [((FORKED,), 0.0, True), ((FORKED,), 3.0, False), ((), 0.0, False)],
)
def test_marks_are_no_advice_where_children_do_the_work(
    notes: tuple[str, ...], rate: float, *, forked: bool
) -> None:
    """They have no agent; a program that calls JAX itself may mark what it does."""
    process = ProcessVerdict(notes=notes, calling=CallRate("m.f", rate))
    answer = status(Worker(), verdict=HostVerdict({"0": process})).answer
    unseen = "Not known: what worker 0 forked after JAX had started is not observed"
    assert (answer.state, answer.text.startswith(unseen)) == ("unknown", forked)
    assert ("without --preload" in answer.advice) == forked
    assert ("jaxmon.steps" in answer.advice) != forked
    marked = Worker()
    marked.requests(60)
    assert status(marked, verdict=HostVerdict({"0": process})).answer.state == "fine"
