"""The status of a host: the last minute, by route and loop."""

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, Histogram
from jaxmon.facts.reading import distributions
from jaxmon.facts.recent import Window
from jaxmon.facts.status import HostVerdict, ProcessVerdict, QueueSummary, SharedFinding
from jaxmon.symptoms.findings import as_fact
from jaxmon.symptoms.symptom import Finding
from tests.helpers.sidecars import ROUTE, START, Worker, reading, status


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
    (route,) = status(one, two, before=before).requests

    assert route.route == ROUTE
    assert route.workers == ("0", "1")
    assert (route.total, route.failed) == (1680, 540)
    assert route.client_errors == 20
    assert (route.recent, route.recent_failed) == (180, 40)
    assert route.recent_seconds == 60
    assert route.rate == pytest.approx(3.0)
    assert route.error_ratio == pytest.approx(40 / 180)
    assert route.cold_ratio == pytest.approx(30 / 180)
    assert route.warm is not None
    assert route.warm.count == 90
    assert 0.2 < (route.warm.p50 or 0) <= 0.5
    assert route.cold is not None
    assert route.cold.count == 30
    assert 2.5 < (route.cold.p95 or 0) <= 5.0
    # Of all that succeeded, a quarter waited.
    assert route.latency is not None
    assert route.latency.count == 120
    assert 2.5 < (route.latency.p95 or 0) <= 5.0
    assert 0.01 < (route.usual_p95 or 0) <= 0.025
    assert (route.in_progress, route.oldest) == (3, 7.5)
    assert route.oldest_worker == "1"


@pytest.mark.parametrize(("again", "rate", "seconds"), [(50, 50.0, 1), (9, 0.36, 25)])
def test_rates_of_a_young_process_are_those_of_the_window(again, rate, seconds):
    """It compiled for long before. Few between two readings are no rate."""
    one = Worker(started=START + 575)
    before = reading(one, at=START + 599)
    one.steps(again, 0.02)
    one.requests(again)
    found = status(one, before=before)
    (route,), (loop,) = found.requests, found.loops
    assert route.rate == loop.rate == pytest.approx(rate)
    assert route.rate_seconds == loop.rate_seconds == seconds
    assert route.recent == again
    said = f"Yes, in the last {seconds} s: {rate:g} requests a second"
    assert found.answer.text.startswith(said)


def test_what_is_not_known_is_absent() -> None:
    """Of a process that is old and was not read before, only totals are known."""
    one = Worker()
    one.requests(5)
    one.steps(3, 0.5)
    found = status(one)
    (route,), (loop,) = found.requests, found.loops
    assert route.total == 5
    for name in ("recent", "rate", "error_ratio", "warm", "cold", "usual_p95"):
        assert getattr(route, name) is None
    assert (loop.steps, loop.rate, loop.p50, loop.usual) == (3, *[None] * 3)
    assert (found.queues, found.batches) == ((), ())


def test_a_restarted_process_does_not_inherit_the_minute_before() -> None:
    """In a slot with a new process, what counts since its start is recent."""
    old, new = Worker(), Worker(started=START + 590)
    old.requests(1000)
    before = reading(old, at=START + 540)
    new.requests(20)
    (route,) = status(new, before=before).requests
    assert (route.recent, route.recent_seconds) == (20, 10)
    assert route.rate == pytest.approx(2.0)
    assert route.usual_p95 is None


def test_a_successor_is_not_judged_by_what_it_continues() -> None:
    """
    The counts of a slot go on from one process to the next: of a new one, nothing is
    known until it was read twice, and then only what it did.
    """
    old, new = Worker(), Worker(started=START + 590)
    for worker in (old, new):
        worker.requests(500, "error")
    new.requests(10)
    for worker, counting, uptime in ((old, 590, 590), (new, 600, 10)):
        worker.set(catalog.COUNTING_SECONDS, counting)
        worker.set(catalog.UPTIME_SECONDS, uptime)
    before = reading(old, at=START + 585)
    found = status(new, before=before)
    (route,) = found.requests
    assert (route.recent, route.rate, route.usual_p95) == (None, None, None)
    assert found.answer.state == "fine"
    first = reading(new, at=START + 600)
    new.requests(20)
    (route,) = status(new, at=START + 620, before=first).requests
    assert (route.recent, route.recent_failed) == (20, 0)
    assert route.rate == pytest.approx(1.0)


def test_what_a_process_left_is_not_about_now() -> None:
    """
    Its requests were slow, and it has ended: no request waits, of it or of its
    successor, which has no such route.
    """
    old, new = Worker(), Worker(started=START + 630)
    before = reading(old, at=START + 540)
    old.requests(100, start="cold", took=5.0)
    (route,) = status(old, before=before).requests
    assert (route.recent, route.cold_ratio) == (100, 1.0)
    old.unset(catalog.PROCESS_START_TIME_SECONDS)
    found = status(old, at=START + 610, before=before)
    (route,) = found.requests
    assert (route.total, route.recent, route.cold_ratio) == (100, None, None)
    assert found.answer.state == "fine"
    left = reading(old, at=START + 610)
    new.requests(100, start="cold", took=5.0)
    (route,) = status(new, at=START + 640, before=left).requests
    assert (route.total, route.recent) == (100, 0)


def test_a_successor_has_none_of_the_findings_on_its_predecessor() -> None:
    """Findings are some seconds old; what is found on others stays."""
    workers = Worker(0), Worker(1)
    for worker, uptime in zip(workers, (3, 300), strict=True):
        worker.set(catalog.UPTIME_SECONDS, uptime)
    found = as_fact(Finding("error", "", "It failed.", (), ""))
    one = ProcessVerdict(pid=7, findings=(found,))
    judged = HostVerdict(
        {"0": one, "1": one},
        tuple(SharedFinding(**vars(found), workers=of) for of in (("0", "1"), ("1",))),
        age=5.0,
    )
    shown = status(*workers, verdict=judged)
    assert [one.findings for one in shown.agents] == [None, (found,)]
    assert [one.workers for one in shown.findings.shared] == [("1",)]
    earlier = judged.replace(age=2.0)
    assert len(status(*workers, verdict=earlier).findings.shared) == 2


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
        worker.set(catalog.TIME_SECONDS, 60, "rest")  # which is meant
    two.set(catalog.STEP_AGE_SECONDS, 8.0, "train")
    found = status(one, two, before=before)
    (loop,) = found.loops
    assert (loop.loop, loop.workers, loop.steps) == ("train", ("0", "1"), 380)
    assert loop.rate == pytest.approx(1.0)
    assert loop.mean == pytest.approx(0.2)
    assert loop.data_wait_ratio == pytest.approx(18 / 36)
    assert loop.goodput == pytest.approx(0.75)
    assert (loop.age, loop.age_worker) == (8.0, "1")
    assert found.answer.state == "fine"
    assert found.answer.text == "Yes: the last step of loop train was 8 s ago."


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
    (queue,), (batch,) = found.queues, found.batches
    assert queue == QueueSummary("predict", ("0", "1"), 9)
    assert batch.total == 62
    assert batch.rate == pytest.approx(1.0)
    assert batch.fill == pytest.approx(0.5)


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
    (function,) = status(worker).functions
    assert function.internal is internal


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
