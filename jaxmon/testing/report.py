"""Reports the tests with the most compiles, across pytest processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from jaxmon.autostart import when_jax_is_imported
from jaxmon.testing.budget import SILENT


if TYPE_CHECKING:
    from jaxmon.agent import Agent

_COLUMNS = "{:>8}  {:>10}  {:>9}  {}"


class TestFigures(NamedTuple):
    """JAX's work in a test: programs compiled or loaded, recompiles, and seconds."""

    compiles: int = 0
    recompiles: int = 0
    seconds: float = 0.0


class TestRecorder:
    """Counts compiles of each test; properties of pytest's reports carry them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._start: tuple[Agent | None, TestFigures] = (None, TestFigures())
        self._found: dict[str, TestFigures] = {}
        self._call_off: Callable[[], None] = _nothing

    def pytest_sessionstart(self) -> None:
        """Observe JAX from its import on."""
        self._call_off = when_jax_is_imported(**SILENT)

    def pytest_unconfigure(self) -> None:
        """Stop observing JAX."""
        self._call_off()
        if _agent() is not None:
            from jaxmon.agent import uninstrument  # noqa: PLC0415 - loaded before

            uninstrument()

    def pytest_runtest_logstart(self) -> None:
        """Start counting for the next test."""
        if "jax" in sys.modules and _agent() is None:  # a test has stopped it
            self._call_off = when_jax_is_imported(**SILENT)
        agent = _agent()
        self._start = (agent, _totals(agent))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, pytest.TestReport]:
        """Record what the test has compiled so far."""
        report: pytest.TestReport = yield
        agent = _agent()
        before = self._start[1] if agent is self._start[0] else TestFigures()
        for name, now, then in zip(
            TestFigures._fields, _totals(agent), before, strict=True
        ):
            report.user_properties.append((f"jaxmon_{name}", now - then))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the counts; a test's last report has all."""
        found: dict[str, Any] = dict(report.user_properties)
        self._found[report.nodeid] = TestFigures(
            *(found.get(f"jaxmon_{name}", 0) for name in TestFigures._fields)
        )

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """Print the report."""
        compiled = [(f, test) for test, f in self._found.items() if f.compiles]
        compiled.sort(key=lambda test: (-test[0].compiles, -test[0].seconds, test[1]))
        count = sum(figures.compiles for figures, _ in compiled)
        total = sum(figures.seconds for figures, _ in compiled)
        write = terminalreporter.write_line
        terminalreporter.section("jaxmon: tests with the most compiles")
        write(
            f"{count} compiles in {total:.1f} s, "
            f"in {len(compiled)} of {len(self._found)} tests"
        )
        if compiled:
            write(_COLUMNS.format("COMPILES", "RECOMPILES", "SECONDS", "TEST"))
        for figures, test in compiled[: self._most]:
            seconds = f"{figures.seconds:.2f}"
            write(_COLUMNS.format(figures.compiles, figures.recompiles, seconds, test))


def _agent() -> Agent | None:
    """Return the running agent; without one, nothing is loaded."""
    if "jaxmon.agent" not in sys.modules:
        return None
    from jaxmon.agent.agent import running  # noqa: PLC0415 - loaded before

    return running()


def _totals(agent: Agent | None) -> TestFigures:
    if agent is None:
        return TestFigures()
    from jaxmon.agent.ledger import totals  # noqa: PLC0415 - JAX is there by now

    return TestFigures(*totals(agent))


def _nothing() -> None: ...
