"""Jobs for a scheduler, and its threads."""

from __future__ import annotations

import threading

from jaxmon.threads import DaemonThread, running


class Busy:
    """A job that begins, and goes on until it may end."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.began.set()
        self.may_end.wait(90)


def threads(*names: str) -> list[DaemonThread]:
    """Return the threads for jobs, or those with one of the *names*."""
    return [one for one in running() if one.name in (names or ("jaxmon-worker",))]
