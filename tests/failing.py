"""Errors that an agent of the test counted, and how to have some."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.instrumented import samples


if TYPE_CHECKING:
    from jaxmon.agent import Agent

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
