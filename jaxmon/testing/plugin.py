"""
pytest plugin: budget markers, and a report of the tests with the most compiles.

Loaded by every pytest of the environment, so it imports nothing but pytest until a test
has the marker or a report is requested.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import Any, NoReturn

import pytest


MARK = "jaxmon_budget"

_MARK_HELP = (
    f"{MARK}(compiles=None, recompiles=None, transfers=None, "
    "live_bytes_growth=None, function=None, internal=False): fail if the test "
    "exceeds these limits; see jaxmon.budget. The innermost marker wins for each "
    "limit."
)
_REPORT_HELP = (
    "report the N tests (default 10) with the most JAX compiles, across all xdist "
    "workers"
)
_DEFAULT = "10"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--jaxmon-report``, and its option in the ini file."""
    group = parser.getgroup("jaxmon", "jaxmon (JAX observability)")
    group.addoption(
        "--jaxmon-report",
        nargs="?",
        const=_DEFAULT,
        default=None,
        metavar="N",
        help=_REPORT_HELP,
    )
    parser.addini("jaxmon_report", f"{_REPORT_HELP}; 0 for none", default="0")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and prepare the report if one is requested."""
    config.addinivalue_line("markers", _MARK_HELP)
    _keep_our_modules(config)
    given = config.getoption("--jaxmon-report")
    text = config.getini("jaxmon_report") if given is None else given
    try:
        most = int(text) if str(text).isascii() else -1
    except ValueError:
        most = -1
    if most < 0:
        msg = (
            f"--jaxmon-report={text} is not a valid number of tests; give 0 or "
            "more, or put the option last: pytest tests --jaxmon-report"
        )
        raise pytest.UsageError(msg)
    if most:
        from jaxmon.testing.report import TestRecorder  # noqa: PLC0415 - see above

        config.pluginmanager.register(TestRecorder(most), "jaxmon-report")


def _keep_our_modules(config: pytest.Config) -> None:
    """Do not rewrite jaxmon, which fails beside threads (CPython #106905)."""
    # Without these names, pytest does what it always did.
    with contextlib.suppress(AttributeError):
        hook: Any = config.pluginmanager.rewrite_hook
        hook._must_rewrite.difference_update(("jaxmon", "jaxmon_exporter"))  # noqa: SLF001 - there is no public way
        hook._marked_for_rewrite_cache.clear()  # noqa: SLF001 - see above


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Observe a marked test from its fixtures on, for recompiles."""
    if "jax" not in sys.modules or item.get_closest_marker(MARK) is None:
        return (yield)
    from jaxmon.testing.budget import OBSERVER  # noqa: PLC0415 - see above

    agent = OBSERVER.take()
    try:
        return (yield)
    finally:
        OBSERVER.give_back(agent)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Apply the budget of a test that has one; its fixtures do not count."""
    __tracebackhide__ = True
    limits: dict[str, Any] = {}
    for mark in item.iter_markers(MARK):  # the nearest first
        if mark.args:
            _fail(f"takes keyword arguments such as compiles=1, not {mark.args!r}")
        limits = {**mark.kwargs, **limits}
    if not limits:
        return (yield)
    from jaxmon.errors import BudgetExceeded, SettingsError  # noqa: PLC0415 - see above
    from jaxmon.testing.budget import budget  # noqa: PLC0415 - see above

    # Failing outside of the except clauses keeps their errors out of the report.
    failure = ""
    try:
        block = budget(**limits)
    except (SettingsError, TypeError) as error:
        failure = str(error)
    if failure:
        _fail(failure)
    passed = False
    result = None
    try:
        with block:
            result = yield
            passed = True
    except BudgetExceeded as error:
        if not passed:  # a budget inside the test
            raise
        failure = str(error)
    if failure:
        _fail(failure)
    return result


def _fail(reason: str) -> NoReturn:
    pytest.fail(f"@pytest.mark.{MARK}: {reason}", pytrace=False)
