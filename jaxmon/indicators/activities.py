"""
Activities: where the wall time of the program goes.
"""

from __future__ import annotations

import functools
from types import TracebackType

from jaxmon.indicators.current import Indicators, recorder, report
from jaxmon.indicators.decorate import F, decorated
from jaxmon.indicators.timeline import Mark


SITE = "activities"


class Activity:
    """
    A context manager and a decorator. See `activity`.
    """

    __slots__ = ("_name", "_open")

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[tuple[Indicators, Mark] | None] = []

    def __enter__(self) -> None:
        self._open.append(_open(self._name))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (opened := self._open.pop()) is not None:
            _close(*opened)
        if error is not None:
            report(error)

    def __call__(self, function: F) -> F:
        """
        Return *function*, each call of which is this activity.
        """
        return decorated(function, functools.partial(Activity, self._name))


def activity(name: str) -> Activity:
    """
    Mark what the program is doing, for ``jaxmon_time_seconds_total``.

    Time goes to the innermost open activity, ``other`` where none is, so all of them
    add up to the wall time since the first. `jaxmon.steps` marks ``step`` and
    ``data_wait`` by itself, JAX's tracing and compiling is ``compile``. Only one
    thread is looked at: the one that runs a loop, before that the first that marked
    something; elsewhere an activity counts for nothing.

    Costs about a microsecond. Never raises.

    Args:
        name: one of a few names that stay the same, such as ``"checkpoint"``.

    Example:
        >>> import jaxmon
        >>> with jaxmon.activity("checkpoint"):
        ...     pass
    """
    return Activity(name)


def _open(name: str) -> tuple[Indicators, Mark] | None:
    indicators = recorder()
    if indicators is None or not indicators.guard.on(SITE):
        return None
    try:
        return indicators, indicators.timeline.open(str(name))
    except Exception:  # noqa: BLE001 - contained: the program goes on
        indicators.guard.failed(SITE)
    return None


def _close(indicators: Indicators, mark: Mark) -> None:
    # In a forked child the parent's timeline may be locked for good.
    if indicators is recorder():
        try:
            indicators.timeline.close(mark)
        except Exception:  # noqa: BLE001 - contained: the program goes on
            indicators.guard.failed(SITE)
