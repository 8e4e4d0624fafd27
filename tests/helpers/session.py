"""
What a test may leave behind in the process, which is nothing, and the CPU seconds that
each file of tests costs.

Looks only at modules that are already loaded; it imports neither JAX nor
prometheus_client.
"""

import gc
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jaxmon.agent.jaxlink.names import NAMES
from jaxmon.threads import DaemonThread, running


PATCHABLE = (
    *(name.path for name in NAMES if name.replaced),
    "jax.jit",  # stays JAX's
    "sys.excepthook",
    "sys.unraisablehook",
    "threading.excepthook",
)

LISTENERS = (
    "_event_listeners",
    "_event_duration_secs_listeners",
    "_event_time_span_listeners",
    "_scalar_listeners",
)

GRACE_SECONDS = 20.0

THREADS = ("jaxmon-scheduler", "jaxmon-server", "jaxmon-wall-time", "jaxmon-worker")
"""Threads of an agent with default settings, one of each, as soon as it runs."""


@dataclass(frozen=True)
class Snapshot:
    """The state of the process that a test must restore."""

    threads: frozenset[threading.Thread | DaemonThread]
    descriptors: frozenset[tuple[str, str]]
    attributes: dict[str, Any] = field(hash=False)
    listeners: dict[str, list[Any]] = field(hash=False)
    collectors: frozenset[Any] | None


def snapshot() -> Snapshot:
    """Return the state of the process now."""
    registry = _attribute("prometheus_client.REGISTRY")
    return Snapshot(
        threads=frozenset((*threading.enumerate(), *running())),
        descriptors=frozenset(_descriptors()),
        attributes={
            place: value
            for place in PATCHABLE
            if (value := _attribute(place)) is not None
        },
        listeners={
            name: list(found)
            for name in LISTENERS
            if (found := _attribute(f"jax._src.monitoring.{name}")) is not None
        },
        collectors=None
        if registry is None
        else frozenset(registry._collector_to_names),
    )


def leaked(before: Snapshot) -> list[str]:
    """
    Return what is there now and was not in *before*, in words.

    What ends by itself, such as a thread that was asked to stop, or goes with the next
    garbage collection, gets some time.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    found = list(_leaks(before))
    while found and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
        found = list(_leaks(before))
    return found


def _leaks(before: Snapshot) -> Iterator[str]:
    now = snapshot()
    for thread in now.threads - before.threads:
        yield f"thread {thread.name!r} is still running"
    for number, target in sorted(now.descriptors - before.descriptors):
        yield f"descriptor {number} is still open: {target}"
    for place, value in now.attributes.items():
        known = place in before.attributes
        if value is not before.attributes[place] if known else _ours(value):
            yield f"{place} is still {value!r}"
    for name, callbacks in now.listeners.items():
        new = _new(callbacks, before.listeners.get(name))
        for callback in new:
            yield f"JAX still calls the listener {callback!r} ({name})"
    for collector in _new(now.collectors or (), before.collectors):
        yield f"prometheus_client.REGISTRY still holds {collector!r}"


def _new(now: Any, before: Any) -> list[Any]:
    """
    Return what *now* has and *before* had not; without a *before*, because the
    module was imported since, what is ours.
    """
    is_new: Callable[[Any], bool] = _ours if before is None else _not_in(before)
    return [item for item in now if is_new(item)]


def _not_in(before: Any) -> Callable[[Any], bool]:
    known = list(before)
    return lambda item: not any(item is other or item == other for other in known)


def _ours(value: Any) -> bool:
    """Return whether *value* was defined by jaxmon or by a test."""
    origins = (getattr(value, "__module__", None), type(value).__module__)
    ours = ("jaxmon", "jaxmon_exporter", "tests")
    return any(str(origin).partition(".")[0] in ours for origin in origins)


def _attribute(path: str) -> Any:
    """Return what a loaded module, or a class in it, has at *path*, as it is kept."""
    for module, between, name in _divided(path):
        owner: Any = sys.modules.get(module)
        if owner is None:
            continue
        for one in between:
            owner = getattr(owner, one, None)
        return None if owner is None else vars(owner).get(name)
    return None


@cache
def _divided(path: str) -> list[tuple[str, list[str], str]]:
    """Return the modules that may have *path*, and the names on the way from each."""
    *owners, name = path.split(".")
    return [
        (".".join(owners[:count]), owners[count:], name)
        for count in range(len(owners), 0, -1)
    ]


_OPEN = "/proc/self/fd"


def _descriptors() -> Iterator[tuple[str, str]]:
    """Yield open sockets and files, but none of native libraries."""
    # Twice for each of ten thousand tests: `Path` takes three times as long.
    for number in os.listdir(_OPEN):  # noqa: PTH208 - see above
        try:
            target = os.readlink(f"{_OPEN}/{number}")  # noqa: PTH115 - see above
        except FileNotFoundError:  # the descriptor that lists the directory
            continue
        if target.startswith("socket:") or (
            target.startswith("/") and not target.startswith(("/dev/", "/proc/"))
        ):
            yield number, target


_TICKS = os.sysconf("SC_CLK_TCK")
_SHOWN = 40
_ATTRIBUTE = "cpu_seconds"


class CpuSeconds:
    """A plugin for workers, which measure, and for what collects their reports."""

    def __init__(self) -> None:
        self._before = spent()
        self._files: defaultdict[str, float] = defaultdict(float)
        self._tests: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        """Charge no test for the collection."""
        self._before = spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to the report what was spent since the last one."""
        report = yield
        now = spent()
        setattr(report, _ATTRIBUTE, now - self._before)
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up; a fixture of a module counts for the tests that make and end it."""
        seconds = getattr(report, _ATTRIBUTE, 0.0)
        self._files[report.nodeid.partition("::")[0]] += seconds
        self._tests[report.nodeid] += seconds

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """Print the files and the tests that cost most."""
        total = sum(self._files.values())
        terminalreporter.section(f"{total:.0f} CPU seconds")
        for costs in (self._files, self._tests):
            dearest = sorted(costs.items(), key=lambda one: -one[1])[:_SHOWN]
            for name, seconds in dearest:
                terminalreporter.write_line(f"{seconds:7.1f}  {name}")
            terminalreporter.write_line("")


def spent() -> float:
    """Return the CPU seconds of this process and all below it, also while they run."""
    own = os.times()
    ended = own.children_user + own.children_system
    return own.user + own.system + ended + sum(map(_of, _below("self")))


def _of(pid: str) -> float:
    """Return the CPU seconds of a process and of those that it waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has just exited
        return 0.0
    # The name before it may have spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _below(pid: str) -> Iterator[str]:
    """Yield the living descendants of a process."""
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text(encoding="ascii").split():
                yield child
                yield from _below(child)
    except OSError:  # it has just exited
        return
