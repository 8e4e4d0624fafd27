"""
Activities: where the wall time of the program goes.
"""

from __future__ import annotations

import functools
from threading import get_ident
from types import TracebackType
from typing import NamedTuple

from jaxmon.indicators.current import Indicators, recorder, report
from jaxmon.indicators.decorate import F, decorated
from jaxmon.indicators.timeline import Mark


SITE = "activities"


class _Opened(NamedTuple):
    """
    An activity that is open; without a mark if nobody recorded its beginning.
    """

    thread: int
    indicators: Indicators | None = None
    mark: Mark | None = None


class Activity:
    """
    A context manager and a decorator. See `activity`.
    """

    __slots__ = ("_name", "_open")

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[_Opened] = []

    def __enter__(self) -> None:
        self._open.append(_open(self._name))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        here = get_ident()
        # Of several threads that share this object, each closes its own; a generator
        # may be closed by any.
        mine = [opened for opened in self._open if opened.thread == here]
        opened = (mine or self._open)[-1]
        self._open.remove(opened)
        _close(opened)
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


def _open(name: str) -> _Opened:
    indicators, here = recorder(), get_ident()
    if indicators is None or not indicators.guard.on(SITE):
        return _Opened(here)
    try:
        return _Opened(here, indicators, indicators.timeline.open(str(name)))
    except Exception:  # noqa: BLE001 - contained: the program goes on
        indicators.guard.failed(SITE)
    return _Opened(here)


def _close(opened: _Opened) -> None:
    indicators = opened.indicators
    # In a forked child the parent's timeline may be locked for good.
    if indicators is None or opened.mark is None or indicators is not recorder():
        return
    try:
        indicators.timeline.close(opened.mark)
    except Exception:  # noqa: BLE001 - contained: the program goes on
        indicators.guard.failed(SITE)
