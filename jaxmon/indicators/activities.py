"""Activities: wall-time breakdown of the program."""

from __future__ import annotations

import functools
from typing import TypeAlias

from jaxmon.indicators.decorate import F, decorated
from jaxmon.indicators.endings import End, noting, now, on_finalize
from jaxmon.indicators.recorder import recorder, report
from jaxmon.indicators.timeline import FAILED, FINISHED
from jaxmon.threads import get_ident


SITE = "activities"

_Opened: TypeAlias = tuple[int, End]
"""An open activity, recorded or not: its thread, and its end."""


class Activity:
    """A context manager and a decorator. See `activity`."""

    __slots__ = ("__weakref__", "_name", "_open")

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[_Opened] = []

    def __enter__(self) -> None:
        end: End = []
        try:
            self._begin(end)
            self._open.append((get_ident(), end))
        except BaseException:  # the program's: the block is not entered
            end.append(0)
            raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        opened = None
        try:
            opened = self._innermost()
            # In one step, and before anything that could fail.
            opened[1].extend((now(), FINISHED if error is None else FAILED))
            self._open.remove(opened)
        except BaseException:  # the program's: the block is left all the same
            (opened or self._innermost())[1].append(now())
            raise
        if error is not None:
            report(error)

    def _begin(self, end: End) -> None:
        indicators = recorder()
        if indicators is None or not indicators.guard.on(SITE):
            return
        try:
            mark = indicators.timeline.open(str(self._name), end)
            # An interrupt at the very beginning of `__exit__` does not leave the block.
            mark.kept = on_finalize(self, noting(end))
        except Exception:  # noqa: BLE001 - contained: the program goes on
            indicators.guard.failed(SITE, theirs=True)

    def _innermost(self) -> _Opened:
        # Of several threads that share this object, each closes its own; a generator
        # may be closed by any.
        here = get_ident()
        last = self._open[-1]
        if last[0] == here and not last[1]:
            return last
        opened = [activity for activity in self._open if not activity[1]]
        mine = [activity for activity in opened if activity[0] == here]
        return (mine or opened)[-1]

    def __call__(self, function: F) -> F:
        """Return *function*, each call of which is this activity."""
        return decorated(function, functools.partial(Activity, self._name))


def activity(name: str) -> Activity:
    """
    Mark what the program is doing, for ``jaxmon_time_seconds_total``.

    Time is attributed to the innermost open activity, or ``other``, so activities add
    up to the wall time since the first. `jaxmon.steps` marks ``step`` and ``data_wait``
    by itself, JAX's tracing and compiling is ``compile``. Only one thread is tracked:
    the one running a loop or, before that, the first to mark an activity; the time of
    activities on other threads is ignored.

    ``jaxmon_activity_running_seconds`` is the age of the oldest one in progress, and
    ``jaxmon_activity_age_seconds`` the time since one last finished without an
    exception, on any thread. Mark what should happen again and again, such as
    ``"checkpoint"`` and ``"evaluate"``: alerts then notice one that hangs, and one that
    no longer happens. Orbax's checkpoints need no mark. If another one is written in
    the background, mark the code that writes it, not the code that starts it.

    Costs a few microseconds. Never raises.

    Args:
        name: a fixed name from a small set, such as ``"checkpoint"``.

    Example:
        >>> import jaxmon
        >>> with jaxmon.activity("checkpoint"):
        ...     pass
    """
    return Activity(name)
