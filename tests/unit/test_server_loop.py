"""The event loop of a server inside the user's program."""

from __future__ import annotations

import time
from contextlib import closing

from jaxmon.host.http.messages import now
from jaxmon.host.http.sockets import EventLoop


def test_timers_go_by_a_clock_that_the_program_cannot_replace(monkeypatch):
    """With one that is no number, timeouts would be over before they began."""
    for name in ("monotonic", "clock_gettime"):
        monkeypatch.setattr(time, name, lambda *_: float("nan"))
    seen: list[str] = []
    with closing(EventLoop(lambda *_: None)) as loop:
        loop.later(600, lambda: seen.append("too early"))
        loop.later(0.01, lambda: seen.append("soon"))
        before = now()
        loop.turn()
        assert before <= now() < before + 300
        loop.turn(now())
    assert seen == ["soon"]


def test_a_call_that_fails_costs_no_other() -> None:
    """Its failure is reported, and what else is due is done."""
    failures: list[tuple[str, BaseException]] = []
    seen: list[str] = []
    error = LookupError("of a call")

    def fail() -> None:
        raise error

    with closing(EventLoop(lambda *failure: failures.append(failure))) as loop:
        loop.later(0, fail)
        loop.later(0, lambda: seen.append("done"))
        loop.turn()
    assert seen == ["done"]
    assert failures == [("server", error)]


def test_another_thread_ends_the_wait() -> None:
    """However often it is woken, also after it was closed."""
    with closing(EventLoop(lambda *_: None)) as loop:
        for _ in range(100_000):
            loop.wake()
        loop.turn()
    loop.wake()
