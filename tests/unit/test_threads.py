"""Threads inside the user's program: what starts, and what no longer does."""

from __future__ import annotations

from jaxmon.threads import DaemonThread


def test_a_thread_that_is_prevented_does_nothing() -> None:
    """It may be started all the same, and is prevented once."""
    called: list[str] = []
    thread = DaemonThread("t", lambda: called.append("ran"))
    assert [thread.prevent(), thread.prevent()] == [True, False]
    thread.start()
    thread.join()
    assert called == []


def test_a_thread_that_has_begun_cannot_be_prevented() -> None:
    """Its target runs once."""
    called: list[bool] = []
    thread = DaemonThread("t", lambda: called.append(thread.prevent()))
    thread.start()
    thread.join()
    assert called == [False]
    assert not thread.prevent()
