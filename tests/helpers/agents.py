"""An agent in the process of the test, what it says, and jobs for its scheduler."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jaxmon.threads import DaemonThread, running


if TYPE_CHECKING:
    from jaxmon.agent import Agent


# No sockets and no thread: most tests ask the agent directly.
SILENT: dict[str, Any] = {"port": None, "socket": False, "memory_interval": 0}


@contextmanager
def instrumented(**settings: Any) -> Iterator[Agent]:
    """Run an agent while the block runs; it serves nothing unless *settings* say so."""
    import jaxmon

    agent = jaxmon.instrument(**{**SILENT, **settings})
    try:
        yield agent
    finally:
        jaxmon.uninstrument()


def samples(agent: Agent) -> dict[str, float]:
    """Return the value of every series that *agent* would export now."""
    return {
        series: value for family in agent.collect() for series, value in family.samples
    }


def value(agent: Agent, name: str, **labels: str) -> float:
    """Return the sum of the series called *name* whose labels include *labels*."""
    wanted = [f'{label}="{text}"' for label, text in labels.items()]
    return sum(
        number
        for series, number in samples(agent).items()
        if series.partition("{")[0] == name and all(one in series for one in wanted)
    )


ERRORS = "jaxmon_errors_total"
FULL = "RESOURCE_EXHAUSTED: Out of memory allocating 64 bytes."


def kinds(agent: Agent) -> dict[tuple[str, str], float]:
    """Return the errors counted so far by the function's last name and kind."""
    found = {}
    for series, count in samples(agent).items():
        if series.startswith(ERRORS) and count:
            function, kind = series.split('"')[1::2]
            found[function.rpartition(".")[2], kind] = count
    return found


def fail(function: Callable[..., object], *args: Any) -> BaseException:
    """Return the error that *function* raises."""
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    msg = "no error"
    raise AssertionError(msg)


class Busy:
    """A job that begins, and goes on until it may end."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.began.set()
        self.may_end.wait(90)


def threads(*names: str) -> list[DaemonThread]:
    return [one for one in running() if one.name in (names or ("jaxmon-worker",))]


def at_once(*calls: Callable[[], object]) -> None:
    """Make all *calls* at once, each on a thread of its own, and wait for them."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def switching_often() -> Iterator[None]:
    """Have threads take turns as often as Python can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
