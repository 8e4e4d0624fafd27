"""Polling: failure states, deadlines, staleness, backoff, merging."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from jaxmon.catalog import (
    COLLECTOR_AGE_SECONDS,
    COLLECTOR_ERRORS,
    COLLECTOR_SUCCESS,
    HOST_CPUS,
    HOST_LOAD_1M,
)
from jaxmon.exposition.families import Family, gauge, series
from jaxmon_exporter.polling import (
    CollectorUnavailable,
    Poller,
    PollerGroup,
    partial_failures,
)


WAIT = 60.0


class Clock:
    """A clock that only advances on demand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """A collector that does on each poll what the test says next."""

    deadline = 5.0

    def __init__(
        self, action: Callable[[], Iterable[Family]], name: str = "it"
    ) -> None:
        self.name = name
        self.interval = 2.0
        self.action = action
        self.closed = threading.Event()

    def collect(self) -> Iterable[Family]:
        return self.action()

    def close(self) -> None:
        self.closed.set()


class Gate:
    """A poll that hangs until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.free = threading.Event()
        self.calls = 0

    def __call__(self) -> Iterable[Family]:
        self.calls += 1
        self.entered.set()
        assert self.free.wait(WAIT)
        return [gauge(HOST_CPUS, 4)]


def works() -> Iterable[Family]:
    return [gauge(HOST_CPUS, 2)]


def fails() -> Iterable[Family]:
    msg = "broken pipe"
    raise OSError(msg)


def absent() -> Iterable[Family]:
    reason = "no_devices"
    raise CollectorUnavailable(reason, "there is no GPU here", [gauge(HOST_LOAD_1M, 0)])


def values(families: Iterable[Family]) -> dict[str, float]:
    return {name: value for family in families for name, value in family.samples}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.free.set()


def test_successful_poll_is_served(clock: Clock) -> None:
    """A poll that worked serves its figures, with success and age."""
    poller = Poller(Scripted(works), clock=clock)
    poller.poll()
    clock.now += 1.5
    assert values(poller.families()) == {"jaxmon_host_cpus": 2}
    status = poller.status()
    assert (status.success, status.age, status.reason) == (True, 1.5, "")


def test_nothing_is_claimed_before_the_first_poll(clock: Clock) -> None:
    """Before its first poll a collector has no success or age, but errors at 0."""
    page = values(PollerGroup([Scripted(works)], clock=clock).families())
    assert page == {
        series(COLLECTOR_ERRORS, "it", "timeout"): 0,
        series(COLLECTOR_ERRORS, "it", "error"): 0,
    }


def test_failure_keeps_the_last_figures_for_a_while(clock: Clock) -> None:
    """After a failed poll the last figures are served until max_age, then dropped."""
    collector = Scripted(works)
    poller = Poller(collector, clock=clock)
    poller.poll()
    collector.action = fails
    poller.poll()
    assert not poller.status().success
    clock.now += poller.max_age
    assert poller.families()
    clock.now += 0.1
    assert not poller.families()
    assert poller.status().age == pytest.approx(poller.max_age + 0.1)


def test_max_age_is_three_intervals_and_the_deadline() -> None:
    """The documented bound on stale figures is the one in force."""
    assert Poller(Scripted(works)).max_age == 3 * 2.0 + 5.0


def test_unavailable_replaces_the_figures_at_once(clock: Clock) -> None:
    """A collector that says there is nothing drops old figures and serves its own."""
    collector = Scripted(works)
    poller = Poller(collector, clock=clock)
    poller.poll()
    collector.action = absent
    poller.poll()
    assert values(poller.families()) == {"jaxmon_host_load1": 0}
    status = poller.status()
    assert (status.success, status.reason) == (False, "no_devices")
    assert status.message == "there is no GPU here"


def test_what_a_failed_poll_tells_holds_until_the_next(clock: Clock) -> None:
    """A GPU that is down stays down on the page, however long the next poll waits."""
    collector = Scripted(absent)
    poller = Poller(collector, clock=clock)
    for _ in range(8):
        poller.poll()
        clock.now += poller.delay() + collector.deadline
        assert values(poller.families()) == {"jaxmon_host_load1": 0}
    clock.now += 0.1
    assert not poller.families()
    collector.action = works
    poller.poll()
    clock.now += poller.max_age + 0.1
    assert not poller.families()


def test_nothing_to_serve_has_no_age(clock: Clock) -> None:
    """A source that is not there has no age; one that is there and empty has."""

    def missing() -> Iterable[Family]:
        reason = "not_installed"
        raise CollectorUnavailable(reason, "not present")

    collector = Scripted(list)
    poller = Poller(collector, clock=clock)
    poller.poll()
    assert poller.status().age == 0
    collector.action = missing
    poller.poll()
    assert poller.status().age is None


def test_failures_are_counted_by_reason(clock: Clock) -> None:
    """Each failed poll counts once under its reason; others stay at zero."""
    collector = Scripted(fails)
    polling = PollerGroup([collector], clock=clock)
    (poller,) = polling._pollers
    poller.poll()
    poller.poll()
    collector.action = absent
    poller.poll()
    page = values(polling.families())
    assert page[series(COLLECTOR_ERRORS, "it", "error")] == 2
    assert page[series(COLLECTOR_ERRORS, "it", "no_devices")] == 1
    assert page[series(COLLECTOR_ERRORS, "it", "timeout")] == 0
    assert page[series(COLLECTOR_SUCCESS, "it")] == 0


def test_library_that_exits_ends_no_thread(clock: Clock) -> None:
    """A poll that wants to end the process fails like others, and is tried again."""

    def leave() -> Iterable[Family]:
        raise SystemExit(3)

    poller = Poller(Scripted(leave), clock=clock)
    poller.poll()
    status = poller.status()
    assert (status.reason, status.message) == ("error", "SystemExit: 3")


def test_failing_collector_is_polled_less_often(clock: Clock) -> None:
    """The delay doubles with each failure up to a minute, and success resets it."""
    collector = Scripted(fails)
    poller = Poller(collector, clock=clock)
    delays = []
    for _ in range(8):
        poller.poll()
        delays.append(poller.delay())
    assert delays == [4, 8, 16, 32, 60, 60, 60, 60]
    collector.action = works
    poller.poll()
    assert poller.delay() == 2.0


def test_backoff_never_polls_faster_than_the_interval(clock: Clock) -> None:
    """An interval above the longest backoff stays as it is."""
    collector = Scripted(fails)
    collector.interval = 300.0
    poller = Poller(collector, clock=clock)
    poller.poll()
    assert poller.delay() == 300.0


def test_poll_time_is_taken_from_the_interval(clock: Clock) -> None:
    """Polls start one interval apart, however long each takes."""

    def slow() -> Iterable[Family]:
        clock.now += 0.5
        return []

    poller = Poller(Scripted(slow), clock=clock)
    poller.poll()
    assert poller.status().duration == 0.5
    assert poller.delay() == 1.5


def test_hanging_poll_fails_after_its_deadline_and_recovers(clock, gate):
    """A stuck poll counts as one timeout, starts no second thread, and recovers."""
    collector = Scripted(gate)
    poller = Poller(collector, clock=clock)
    poller.start()
    try:
        assert gate.entered.wait(WAIT)
        clock.now += collector.deadline
        assert not poller.status().polled
        clock.now += 0.1
        for _ in range(3):
            status = poller.status()
            assert (status.success, status.reason) == (False, "timeout")
            assert status.errors["timeout"] == 1
        named = [t for t in threading.enumerate() if t.name == "jaxmon-poll-it"]
        assert (len(named), gate.calls) == (1, 1)
        finished = threading.Event()

        def last() -> Iterable[Family]:
            finished.set()
            return works()

        collector.action = last
        gate.free.set()
        assert finished.wait(WAIT)
    finally:
        gate.free.set()
        poller.stop()
        assert poller.join(WAIT)
    status = poller.status()
    assert (status.success, status.reason) == (True, "")
    assert status.errors["timeout"] == 1
    assert values(poller.families()) == {"jaxmon_host_cpus": 2}


def test_late_poll_counts_as_timeout_even_if_nobody_looked(clock: Clock) -> None:
    """A poll that came back late is counted, and its figures are served."""

    def late() -> Iterable[Family]:
        clock.now += 6.0
        return works()

    poller = Poller(Scripted(late), clock=clock)
    poller.poll()
    status = poller.status()
    assert (status.errors["timeout"], status.success) == (1, True)
    assert poller.families()


def test_one_collector_costs_only_its_own_series(clock: Clock) -> None:
    """A failing collector leaves the figures of another untouched."""
    polling = PollerGroup(
        [Scripted(fails, "bad"), Scripted(works, "good")], clock=clock
    )
    for poller in polling._pollers:
        poller.poll()
    page = values(polling.families())
    assert page["jaxmon_host_cpus"] == 2
    assert page[series(COLLECTOR_SUCCESS, "bad")] == 0
    assert page[series(COLLECTOR_SUCCESS, "good")] == 1
    assert series(COLLECTOR_AGE_SECONDS, "bad") not in page


def test_ready_after_the_first_poll_of_each(clock: Clock) -> None:
    """Ready means that every collector was polled, failed ones included."""
    polling = PollerGroup([Scripted(fails, "a"), Scripted(works, "b")], clock=clock)
    first, second = polling._pollers
    first.poll()
    assert not polling.ready()
    second.poll()
    assert polling.ready()


def test_stop_closes_and_names_the_stuck(gate: Gate) -> None:
    """Stopping closes what can be closed and names the collector that hangs."""
    hanging, healthy = Scripted(gate, "hangs"), Scripted(works, "well")
    polling = PollerGroup([hanging, healthy])
    polling.start()
    assert gate.entered.wait(WAIT)
    assert polling.stop(timeout=0.2) == ["hangs"]
    assert healthy.closed.wait(WAIT)
    assert not hanging.closed.is_set()
    gate.free.set()
    assert hanging.closed.wait(WAIT)
    assert polling.stop(WAIT) == []


def test_log_speaks_when_the_state_changes(clock, caplog):
    """A failure is logged when it begins, changes or ends, not on each poll."""
    collector = Scripted(fails)
    poller = Poller(collector, clock=clock)
    with caplog.at_level(logging.INFO, "jaxmon.exporter"):
        for action in (fails, fails, fails, absent, absent, works, works):
            collector.action = action
            poller.poll()
    assert [record.getMessage() for record in caplog.records] == [
        "collector it: error: OSError: broken pipe",
        "collector it: no_devices: there is no GPU here",
        "collector it has recovered",
    ]


def test_a_host_without_a_device_is_no_warning(clock, caplog):
    """What was never there is normal; what cannot be read, or has gone, is not."""

    def unread() -> Iterable[Family]:
        reason = "not_installed"
        raise CollectorUnavailable(reason, "there is a driver and nobody to ask it")

    collector = Scripted(absent)
    poller = Poller(collector, clock=clock)
    with caplog.at_level(logging.INFO, "jaxmon.exporter"):
        for action in (absent, unread, works, absent):
            collector.action = action
            poller.poll()
            assert poller.status().absent is (len(caplog.records) == 1)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "WARNING", "INFO", "WARNING"]


def test_partial_failures_name_collector_and_reason() -> None:
    """A collector can count what it lost without failing its poll."""
    family = partial_failures("agents", {"agent_timeout": 3})
    assert family.samples == [(series(COLLECTOR_ERRORS, "agents", "agent_timeout"), 3)]
