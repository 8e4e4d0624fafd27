"""The status of a host: last minute, by route and loop, and whether users are fine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, Histogram, series
from jaxmon.report.status.distributions import distributions
from jaxmon.report.status.model import Summary
from jaxmon.report.status.reading import Reading, read
from jaxmon.report.status.summary import summarise
from jaxmon.report.status.verdicts import UNREAD, HostVerdict, ProcessVerdict
from jaxmon.report.status.window import Window
from jaxmon_exporter.collectors.agents.page import families


START = 1000.0
ROUTE = "POST /predict"


class Worker:
    """A process whose metrics a test sets, served and read as an agent's."""

    def __init__(self, slot: int = 0, *, started: float = START) -> None:
        self.slot = slot
        self._histograms: dict[tuple[Any, ...], Histogram] = {}
        self._values: dict[str, tuple[Metric, float]] = {}
        self.set(catalog.PROCESS_START_TIME_SECONDS, started)

    def set(self, metric: Metric, value: float, *labels: object) -> None:
        self._values[series(metric, *labels)] = metric, value

    def observe(self, metric: Metric, value: float, *labels: object) -> None:
        key = (metric, *labels)
        self._histograms.setdefault(key, Histogram(metric, *labels)).observe(value)

    def requests(
        self,
        count: int,
        outcome: str = "success",
        start: str = "warm",
        took: float = 0.1,
    ) -> None:
        for _ in range(count):
            self.observe(catalog.REQUEST_SECONDS, took, ROUTE, outcome, start)

    def steps(self, count: int, took: float, loop: str = "train") -> None:
        for _ in range(count):
            self.observe(catalog.STEP_SECONDS, took, loop)
        self.set(catalog.STEP_AGE_SECONDS, took, loop)

    def page(self) -> list[Family]:
        """Return the families that a sidecar reads from it."""
        every: dict[str, Family] = {}
        found: list[tuple[Metric, list[tuple[str, float]]]] = [
            (metric, [(name, value)]) for name, (metric, value) in self._values.items()
        ]
        found += [(key[0], one.samples()) for key, one in self._histograms.items()]
        for metric, samples in found:
            every.setdefault(metric.name, Family(metric, [])).samples.extend(samples)
        up = Family(catalog.AGENT_UP, [(series(catalog.AGENT_UP, self.slot), 1.0)])
        return [up, *families(str(self.slot), encode(every.values()).decode())]


def reading(*workers: Worker, at: float, extra: Iterable[Family] = ()) -> Reading:
    return read([one for w in workers for one in w.page()] + [*extra], time=at)


def status(
    *workers: Worker,
    at: float = START + 600,
    before: Reading | None = None,
    verdict: HostVerdict = UNREAD,
    extra: Iterable[Family] = (),
) -> Summary:
    return summarise(reading(*workers, at=at, extra=extra), before, verdict=verdict)


def test_requests_of_the_last_minute_are_differences() -> None:
    """Rate, errors, cold share and latency are of the minute; totals of all time."""
    one, two = Worker(0), Worker(1)
    one.requests(1000, took=0.02)
    two.requests(500, "error")
    before = reading(one, two, at=START + 540)
    one.requests(90, took=0.3)
    one.requests(20, start="cold", took=4.0)
    one.requests(10, start="delayed", took=4.0)
    two.requests(40, "error")
    two.requests(20, "client_error")
    two.set(catalog.REQUESTS_IN_PROGRESS, 3, ROUTE)
    two.set(catalog.REQUEST_OLDEST_SECONDS, 7.5, ROUTE)
    (route,) = status(one, two, before=before)["requests"]

    assert route["route"] == ROUTE
    assert route["workers"] == ["0", "1"]
    assert (route["total"], route["failed"]) == (1680, 540)
    assert route["client_errors"] == 20
    assert (route["recent"], route["recent_failed"]) == (180, 40)
    assert route["recent_seconds"] == 60
    assert route["rate"] == pytest.approx(3.0)
    assert route["error_ratio"] == pytest.approx(40 / 180)
    assert route["cold_ratio"] == pytest.approx(30 / 180)
    assert route["warm"] is not None
    assert route["warm"]["count"] == 90
    assert 0.2 < (route["warm"]["p50"] or 0) <= 0.5
    assert route["cold"] is not None
    assert route["cold"]["count"] == 30
    assert 2.5 < (route["cold"]["p95"] or 0) <= 5.0
    assert 0.01 < (route["usual_p95"] or 0) <= 0.025
    assert (route["in_progress"], route["oldest"]) == (3, 7.5)
    assert route["oldest_worker"] == "1"


def test_what_is_not_known_is_absent() -> None:
    """Of a process that is old and was not read before, only totals are known."""
    one = Worker()
    one.requests(5)
    one.steps(3, 0.5)
    found = status(one)
    (route,), (loop,) = found["requests"], found["loops"]
    assert route["total"] == 5
    for name in ("recent", "rate", "error_ratio", "warm", "cold", "usual_p95"):
        assert route[name] is None
    assert (loop["steps"], loop["rate"], loop["p50"], loop["usual"]) == (3, *[None] * 3)
    assert (found["queues"], found["batches"]) == ([], [])


def test_a_restarted_process_does_not_inherit_the_minute_before() -> None:
    """In a slot with a new process, what counts since its start is recent."""
    old, new = Worker(), Worker(started=START + 590)
    old.requests(1000)
    before = reading(old, at=START + 540)
    new.requests(20)
    (route,) = status(new, before=before)["requests"]
    assert (route["recent"], route["recent_seconds"]) == (20, 10)
    assert route["rate"] == pytest.approx(2.0)
    assert route["usual_p95"] is None


def test_steps_of_the_last_minute() -> None:
    """The slowest process is the rate of a loop, and the oldest step its age."""
    one, two = Worker(0), Worker(1)
    for worker in (one, two):
        worker.steps(100, 0.2)
        worker.set(catalog.DATA_WAIT_SECONDS, 5, "train")
        worker.set(catalog.TIME_SECONDS, 20, "step")
        worker.set(catalog.TIME_SECONDS, 10, "other")
    before = reading(one, two, at=START + 540)
    one.steps(120, 0.2)
    two.steps(60, 0.2)
    for worker in (one, two):
        worker.set(catalog.DATA_WAIT_SECONDS, 5 + 9, "train")
        worker.set(catalog.TIME_SECONDS, 20 + 45, "step")
        worker.set(catalog.TIME_SECONDS, 10 + 15, "other")
    two.set(catalog.STEP_AGE_SECONDS, 8.0, "train")
    found = status(one, two, before=before)
    (loop,) = found["loops"]
    assert (loop["loop"], loop["workers"], loop["steps"]) == ("train", ["0", "1"], 380)
    assert loop["rate"] == pytest.approx(1.0)
    assert loop["mean"] == pytest.approx(0.2)
    assert loop["data_wait_ratio"] == pytest.approx(18 / 36)
    assert loop["goodput"] == pytest.approx(0.75)
    assert (loop["age"], loop["age_worker"]) == (8.0, "1")
    assert found["answer"]["state"] == "fine"
    assert found["answer"]["text"] == "Yes: 1 step a second in loop train."


def test_queues_and_batches_add_up() -> None:
    """Depths of one queue in several processes are one, and so are batches."""
    one, two = Worker(0), Worker(1)
    for worker in (one, two):
        worker.set(catalog.QUEUE_DEPTH, 4 + worker.slot, "predict")
        worker.observe(catalog.BATCH_FILL_RATIO, 0.9, ROUTE)
    before = reading(one, two, at=START + 540)
    for _ in range(30):
        one.observe(catalog.BATCH_FILL_RATIO, 0.25, ROUTE)
        two.observe(catalog.BATCH_FILL_RATIO, 0.75, ROUTE)
    found = status(one, two, before=before)
    (queue,), (batch,) = found["queues"], found["batches"]
    assert queue == {"queue": "predict", "workers": ["0", "1"], "depth": 9}
    assert batch["total"] == 62
    assert batch["rate"] == pytest.approx(1.0)
    assert batch["fill"] == pytest.approx(0.5)


def fails(worker: Worker) -> None:
    worker.requests(160, "error")


def fails_rarely(worker: Worker) -> None:
    worker.requests(4, "error")
    worker.requests(1000)


def hangs(worker: Worker) -> None:
    worker.set(catalog.REQUESTS_IN_PROGRESS, 12, ROUTE)
    worker.set(catalog.REQUEST_OLDEST_SECONDS, 130, ROUTE)


def hangs_since_lately(worker: Worker) -> None:
    worker.requests(100)
    worker.set(catalog.REQUESTS_IN_PROGRESS, 12, ROUTE)
    worker.set(catalog.REQUEST_OLDEST_SECONDS, 25, ROUTE)


def takes_long(worker: Worker) -> None:
    worker.requests(100)
    worker.set(catalog.REQUESTS_IN_PROGRESS, 1, ROUTE)
    worker.set(catalog.REQUEST_OLDEST_SECONDS, 2.5, ROUTE)


def is_slow(worker: Worker) -> None:
    worker.requests(100, took=0.9)


def waits_for_compiles(worker: Worker) -> None:
    worker.requests(100)
    worker.requests(30, start="cold", took=2.0)


def mostly_waits_for_compiles(worker: Worker) -> None:
    worker.requests(30)
    worker.requests(70, start="cold", took=2.0)


def trains(worker: Worker) -> None:
    worker.steps(100, 0.2)


def stands_still(worker: Worker) -> None:
    worker.set(catalog.STEP_AGE_SECONDS, 75, "train")


def stands_still_and_compiles(worker: Worker) -> None:
    stands_still(worker)
    worker.set(catalog.COMPILES_IN_PROGRESS, 1)


def evaluates(worker: Worker) -> None:
    stands_still(worker)
    worker.set(catalog.ACTIVITY_RUNNING_SECONDS, 70, "evaluate")


def steps_are_slow(worker: Worker) -> None:
    worker.steps(100, 0.4)


def loss_is_nan(worker: Worker) -> None:
    worker.steps(100, 0.2)
    worker.set(catalog.VALUE_NONFINITE_RUN, 2, "loss")


def norm_was_nan(worker: Worker) -> None:
    worker.steps(100, 0.2)
    worker.set(catalog.VALUE_NONFINITE_RUN, 2, "grad_norm")


def saves_fail(worker: Worker) -> None:
    worker.steps(100, 0.2)
    worker.set(catalog.CHECKPOINT_FAILURES, 3, "save")


def device_is_full(worker: Worker) -> None:
    worker.requests(100)
    worker.set(catalog.DEVICE_INFO, 1, "0", "gpu", "H100", "0", "GPU-1", "")
    worker.set(catalog.DEVICE_MEMORY_BYTES, 93, "0", "in_use")
    worker.set(catalog.DEVICE_MEMORY_BYTES, 100, "0", "limit")


def compile_is_stuck(worker: Worker) -> None:
    worker.requests(100)
    worker.set(catalog.COMPILE_OLDEST_SECONDS, 400)


CASES = {
    fails: ("failing", "No: 160 of 160 requests to POST /predict failed in the last"),
    fails_rarely: ("fine", "Yes: 16.7 requests a second, and hardly any fails; 1"),
    hangs: ("failing", "No: no request to POST /predict finishes: 12 requests in"),
    hangs_since_lately: ("degraded", "Not quite: requests to POST /predict hang: 12"),
    takes_long: ("fine", "Yes: 1.67 requests a second, and none fails; 1 loop"),
    is_slow: ("degraded", "Not quite: requests to POST /predict are slow: 95 % take"),
    waits_for_compiles: (
        "degraded",
        "Not quite: 23 % of the requests to POST /predict",
    ),
    mostly_waits_for_compiles: (
        "failing",
        "No: 70 % of the requests to POST /predict",
    ),
    trains: ("fine", "Yes: 1.67 steps a second in loop train."),
    stands_still: ("failing", "No: loop train is stuck: its last step was 1 min 15 s"),
    stands_still_and_compiles: ("fine", "Yes: 1 loop at work."),
    evaluates: ("fine", "Yes: 1 loop at work."),
    steps_are_slow: ("degraded", "Not quite: loop train is slow: a step takes 0.40 s"),
    loss_is_nan: ("failing", "No: the logged loss is NaN or infinite."),
    norm_was_nan: ("fine", "Yes: 1.67 steps a second in loop train."),
    saves_fail: ("degraded", "Not quite: 3 checkpoint saves failed in the last minute"),
    device_is_full: ("degraded", "Not quite: device 0 is about to run out of memory"),
    compile_is_stuck: ("failing", "No: a compile has been running for 6 min 40 s."),
}


@pytest.mark.parametrize("happens", CASES, ids=lambda one: one.__name__)
def test_answer_names_what_is_wrong_and_nothing_else(happens: Any) -> None:
    """Each fault of the last minute is the answer, and what is healthy is none."""
    worker = Worker()
    worker.requests(5000)
    worker.steps(1000, 0.2)
    before = reading(worker, at=START + 540)
    happens(worker)
    found = status(worker, before=before)["answer"]
    state, text = CASES[happens]
    assert found["state"] == state, found
    assert found["text"].startswith(text), found
    assert len(found["reasons"]) == (state != "fine"), found


def test_a_fault_that_is_over_is_none() -> None:
    """Errors before the last minute do not count while requests succeed now."""
    worker = Worker()
    worker.requests(160, "error")
    before = reading(worker, at=START + 540)
    worker.requests(60)
    assert status(worker, before=before)["answer"]["state"] == "fine"


def test_failures_after_which_no_one_comes_are_not_forgotten() -> None:
    """Requests that failed are said as long as none has come since."""
    worker = Worker()
    worker.requests(160, "error")
    before = reading(worker, at=START + 540)
    found = status(worker, before=before)["answer"]
    assert found["state"] == "degraded"
    assert "160 of 160 requests to POST /predict failed; none has come" in found["text"]


def test_failures_are_known_before_the_first_minute_is() -> None:
    """A sidecar that has just started judges by the totals."""
    worker = Worker()
    worker.requests(160, "error")
    found = status(worker)["answer"]
    assert found["state"] == "failing"
    assert found["text"].endswith("requests to POST /predict failed since the start.")


def test_without_marks_the_answer_says_what_to_mark() -> None:
    """Nothing is known of users without marks; that is not the same as fine."""
    found = status(Worker())["answer"]
    assert found["state"] == "unknown"
    assert "no program here marks its requests or steps" in found["text"]
    assert "@jaxmon.request" in found["advice"]
    empty = status()["answer"]
    assert (empty["state"], empty["advice"]) == ("unknown", "")
    assert empty["text"] == "Not known: no instrumented process runs here."


def test_processes_that_crashed_or_hang_are_reasons() -> None:
    """A slot whose training crashed is one; a server's that is gone is not."""
    died = Family(
        catalog.AGENT_DIED,
        [
            (series(catalog.AGENT_DIED, "3", "train"), 1.0),
            (series(catalog.AGENT_DIED, "4", ""), 1.0),
        ],
    )
    up = Family(catalog.AGENT_UP, [(series(catalog.AGENT_UP, "7"), 0.0)])
    found = status(Worker(), extra=[died, up])
    assert [one["worker"] for one in found["agents"]] == ["0", "3", "7"]
    assert [one["text"] for one in found["answer"]["reasons"]] == [
        "worker 3 crashed.",
        "worker 7 does not respond.",
    ]
    assert found["answer"]["text"] == "No: worker 3 crashed. And 1 more reason."


def finding_on(
    topic: str, subject: str, verdict: str, *evidence: str, where: str = ""
) -> dict[str, Any]:
    return {
        "topic": topic,
        "subject": subject,
        "verdict": verdict,
        "evidence": list(evidence),
        "where": where,
        "seconds": 0.0,
    }


def because(worker: Worker, before: Reading, process: ProcessVerdict) -> list[str]:
    """Return the causes of what is wrong with *worker*."""
    verdict = HostVerdict({"0": process})
    found = status(worker, before=before, verdict=verdict)["answer"]
    return [one["because"] for one in found["reasons"]]


FAILS = finding_on(
    "requests", ROUTE, "40 requests failed.", "StoreDown at store.py:8: 40 times"
)
OTHER_ROUTE = finding_on("requests", "/other", "9 requests failed.", "Typo at a.py:1")
RECOMPILES = finding_on("recompile", "f", "f was recompiled.", where="serve.py:8")
LATE = finding_on("hanging", ROUTE, "A request hangs at serve.py:9.")
STALLED = finding_on("stalled", "", "The program waits for data at load.py:3.")
DOING = "Lately, 80 % of the time goes to store.py:5 (blocked outside of JAX)."
CAUSES: dict[Any, tuple[list[dict[str, Any]], str]] = {
    fails: ([OTHER_ROUTE, FAILS], "StoreDown at store.py:8: 40 times."),
    waits_for_compiles: ([RECOMPILES], "f was recompiled. At serve.py:8."),
    hangs_since_lately: ([FAILS, LATE], "A request hangs at serve.py:9."),
    is_slow: ([RECOMPILES], DOING),
    steps_are_slow: ([], DOING),
    stands_still: ([STALLED], "The program waits for data at load.py:3."),
}


@pytest.mark.parametrize("happens", CAUSES, ids=lambda one: one.__name__)
def test_the_answer_names_the_likely_cause(happens: Any) -> None:
    """The finding that explains the reason is its cause, or where the time goes."""
    worker = Worker()
    worker.requests(5000)
    worker.steps(1000, 0.2)
    before = reading(worker, at=START + 540)
    happens(worker)
    findings, cause = CAUSES[happens]
    process = ProcessVerdict(findings=findings, doing=DOING)
    assert because(worker, before, process) == [cause]
    # Who may not see findings gets none.
    assert because(worker, before, ProcessVerdict()) == [""]


def test_what_has_been_slow_for_long_is_still_slow() -> None:
    """When slow requests are a part of the usual p95, their median still tells."""
    worker = Worker()
    worker.requests(1000, took=0.02)
    worker.requests(100, took=0.9)
    before = reading(worker, at=START + 540)
    worker.requests(100, took=0.9)
    found = status(worker, before=before)["answer"]
    assert found["state"] == "degraded"
    assert "half of them take up to" in found["text"]


def test_findings_are_reasons_unless_the_numbers_say_so() -> None:
    """A finding that costs users something is a reason, once for all processes."""

    def finding(topic: str, subject: str, verdict: str) -> dict[str, Any]:
        return finding_on(topic, subject, verdict)

    worker = Worker()
    worker.requests(160, "error")
    worker.set(catalog.VALUE_NONFINITE_RUN, 9, "loss")
    of = [
        finding("requests", ROUTE, "160 requests failed."),
        finding("nonfinite_value", "loss", "The logged loss is NaN."),
        finding("leak", "0", "Memory of device 0 grew steadily."),
        finding("recompile", "f", "f was recompiled."),
    ]
    verdict = HostVerdict(
        {"0": ProcessVerdict(findings=of), "1": ProcessVerdict(findings=of[2:])}
    )
    reasons = status(worker, verdict=verdict)["answer"]["reasons"]
    assert [(one["state"], one["text"]) for one in reasons] == [
        ("failing", "160 of 160 requests to POST /predict failed since the start."),
        ("failing", "the logged loss is NaN or infinite."),
        ("degraded", "Memory of device 0 grew steadily."),
    ]
    assert reasons[2]["workers"] == ["0", "1"]


@pytest.mark.parametrize(
    ("name", "internal"),
    [
        ("jax._src.numpy.ufuncs.add", True),
        ("jax", True),
        ("jaxlib.x", True),
        ("jaxopt.solve", False),
        ("__main__.jax", False),
    ],
)
def test_functions_of_jax_are_known_by_name(name: str, internal: bool) -> None:  # noqa: FBT001
    """What agents label as JAX's own is told from the user's."""
    worker = Worker()
    worker.set(catalog.COMPILES, 3, name, "compiled")
    (function,) = status(worker)["functions"]
    assert function["internal"] is internal


def test_window_keeps_a_reading_of_a_minute_ago() -> None:
    """However often is sampled, few are kept, and one is about a minute old."""
    window = Window()
    worker = Worker()
    assert window.before(START) is None
    for second in range(0, 301, 5):
        worker.requests(1)
        window.add(reading(worker, at=START + second))
        assert len(window._kept) <= 8
    before = window.before(START + 302)
    assert before is not None
    assert 60 <= START + 302 - before.time < 75
    # A clock that is set back begins anew.
    window.add(reading(worker, at=START - 100))
    assert window.before(START - 50) is not None


def test_histograms_survive_any_order_of_labels_and_series() -> None:
    """Series of other exporters, in which the bound comes first, are read as well."""
    metric = catalog.STEP_SECONDS
    names = [
        ('jaxmon_step_seconds_bucket{le="+Inf",loop="a",worker="0"}', 3.0),
        ('jaxmon_step_seconds_bucket{worker="0",loop="b",le="+Inf"}', 2.0),
        ('jaxmon_step_seconds_bucket{le="0.1",loop="a",worker="0"}', 1.0),
        ('jaxmon_step_seconds_bucket{worker="0",loop="b",le="0.1"}', 2.0),
        ('jaxmon_step_seconds_sum{worker="0",loop="a"}', 1.5),
        ('jaxmon_step_seconds_bucket{worker="0",loop="x,le=\\"1",le="0.1"}', 2.0),
    ]
    found = distributions(Family(metric, names), {})
    assert {key: list(one.counts) for key, one in found.items()} == {
        ("0", "a"): [1.0, 3.0],
        ("0", "b"): [2.0, 2.0],
    }
    assert found["0", "a"].mean == 0.5


def test_quantiles_are_those_of_the_histogram() -> None:
    """Read from the text of a response, quantiles are what the program's are."""
    one = Histogram(catalog.REQUEST_SECONDS, ROUTE, "success", "warm")
    for number in range(1, 400):
        one.observe(number / 137)
    family = Family(catalog.REQUEST_SECONDS, one.samples())
    (found,) = distributions(family, {"worker": "5"}).values()
    for fraction in (0.01, 0.5, 0.95, 0.99, 1.0):
        assert found.quantile(fraction) == pytest.approx(one.quantile(fraction))
