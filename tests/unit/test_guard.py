"""The wall between our code and the user's program."""

import logging
import resource
import threading
from functools import partial

import pytest

from jaxmon.agent.guard import LIMIT, WITHIN_SECONDS, Guard, strict
from jaxmon.threads import DaemonThread
from tests.helpers.agents import at_once, switching_often
from tests.helpers.processes import refuse_threads


pytestmark = pytest.mark.contained


def fail(guard: Guard, site: str = "here", *, stays_on: bool = False) -> None:
    try:
        dict[str, str]()[site]
    except KeyError:
        guard.failed(site, stays_on=stays_on)


def test_a_site_is_on_until_it_has_failed_often(caplog):
    """The first failure and the last are logged, all are counted, other sites go on."""
    guard = Guard()
    for count in range(LIMIT + 3):
        assert guard.on("here") is (count < LIMIT)
        fail(guard)

    assert guard.on("there") is True
    assert guard.failures() == {"here": LIMIT + 3}
    first, second = caplog.records
    assert first.exc_info is not None
    assert first.exc_info[0] is KeyError
    assert "has disabled it" in second.getMessage()


def test_at_the_limits_of_the_process_a_line_says_enough(caplog):
    """
    Where descriptors or frames run out says nothing: whatever fails then, also in
    other words, is logged without a traceback.
    """

    def dig() -> None:
        dig()

    guard = Guard()
    try:
        dig()
    except RecursionError:
        guard.failed("depth")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        fail(guard, "descriptors")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    fail(guard, "afterwards")

    assert [bool(one.exc_info) for one in caplog.records] == [False, False, True]
    assert "depth: maximum recursion depth" in caplog.records[0].getMessage()
    assert "descriptors: 'descriptors'. Your" in caplog.records[1].getMessage()


def test_failures_of_long_ago_do_not_count_against_a_site(caplog):
    """
    A site that fails now and then, for months, stays on; as many failures within an
    hour switch it off, whatever was before.
    """
    now = [0.0]
    guard = Guard(clock=lambda: now[0])
    for _ in range(3 * LIMIT):
        now[0] += WITHIN_SECONDS / (LIMIT - 2)
        fail(guard)
    assert guard.on("here") is True
    assert guard.failures() == {"here": 3 * LIMIT}
    assert len(caplog.records) == 1

    now[0] += 2 * WITHIN_SECONDS
    for count in range(LIMIT):
        assert guard.on("here") is True, count
        fail(guard)

    assert guard.on("here") is False
    assert "has disabled it" in caplog.records[-1].getMessage()


def test_a_site_that_stays_on_is_not_switched_off(caplog):
    """
    It is logged once and tried for ever; another place of the same site that does not
    stay on takes the site with it, and that is said.
    """
    guard = Guard()
    for _ in range(LIMIT + 1):
        fail(guard, stays_on=True)

    assert guard.on("here") is True
    assert len(caplog.records) == 1
    for _ in range(2):
        fail(guard)
    assert guard.on("here") is False
    assert len(caplog.records) == 2


def test_threads_that_fail_at_once_are_counted_and_logged_once_each(caplog):
    """However failures interleave, the first and the limit are seen by exactly one."""
    with switching_often():
        for _ in range(20):
            guard, barrier = Guard(), threading.Barrier(16)

            def work(guard: Guard, barrier: threading.Barrier) -> None:
                barrier.wait(90)
                fail(guard)

            at_once(*[partial(work, guard, barrier)] * 16)
            assert guard.failures() == {"here": 16}

    messages = [record.getMessage() for record in caplog.records]
    assert len([m for m in messages if "has disabled it" in m]) == 20
    assert len(messages) == 40


def test_a_failing_log_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter or handler of the user that raises stays on its side of the wall."""

    def broken(_: logging.LogRecord) -> bool:
        raise ValueError

    logger = logging.getLogger("jaxmon")
    logger.addFilter(broken)
    try:
        guard = Guard()
        fail(guard)
    finally:
        logger.removeFilter(broken)

    assert guard.failures() == {"here": 1}


def test_strict_raises_what_would_be_contained() -> None:
    """For our own tests: the failure comes out, and only while the block runs."""
    guard = Guard()
    with strict(), pytest.raises(KeyError):
        fail(guard)
    fail(guard)

    assert guard.failures() == {"here": 1}


def test_threads_that_hang_are_waited_for_together() -> None:
    """
    However many hang, they cost three seconds; one that ends costs nothing, and has
    time for that also behind those. Between two handlers of the exit, none passes.
    """
    now = [0.0]
    waits: list[float] = []

    class Thread(DaemonThread):
        def __init__(self, lasts: float) -> None:
            super().__init__("test", print)
            self.lasts = lasts

        def join(self, timeout: float | None = None) -> None:
            assert timeout is not None
            waits.append(timeout)
            now[0] += min(timeout, self.lasts)

    guard = Guard(clock=lambda: now[0])
    deadline = guard.deadline
    deadline.begin()
    for lasts in (0.0, 9.0, 0.001):
        guard.join(Thread(lasts))
    deadline.pause()
    assert waits == pytest.approx([2, 2, 2 / 3])
    now[0] += 60
    deadline.begin()
    for _ in range(30):
        deadline.begin()
        guard.join(Thread(9.0))
    assert deadline.left() == pytest.approx(0, abs=1e-6)
    assert now[0] - 60 <= 3


def test_a_thread_is_started() -> None:
    """What it is to do is done, and nothing has failed."""
    guard, done = Guard(), threading.Event()
    thread = DaemonThread("jaxmon-test", lambda: guard.run("here", done.set))

    assert guard.start(thread, "here")
    assert done.wait(90)
    thread.join()
    assert guard.failures() == {}


def test_without_threads_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt is a failure, and the next one is still made."""
    refuse_threads(monkeypatch)
    guard = Guard()
    for _ in range(LIMIT + 1):
        assert not guard.start(DaemonThread("jaxmon-test", print), "here")

    assert guard.on("here")
    assert guard.failures() == {"here": LIMIT + 1}
