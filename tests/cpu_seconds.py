"""
The option ``--cpu-seconds``: what each file of tests costs, subprocesses included.

CPU seconds are nearly the same on a busy machine; wall-clock seconds are not.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest


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
