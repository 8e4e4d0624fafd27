"""Values that cost too much to keep up to date when no one reads them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from jaxmon.threads import DaemonThread
from jaxmon_exporter.collecting import Clock


if TYPE_CHECKING:
    from concurrent.futures import Future

_MOST_OF_A_CORE = 0.1

T = TypeVar("T")


class _Known(NamedTuple, Generic[T]):
    value: T
    began: float


class Refreshed(Generic[T]):
    """
    A value that is made when it is read, on a thread of its own, and kept for a while.

    `refresh` is called on one thread; the rest is thread-safe.

    Args:
        make: returns the value.
        failed: called with what `make` raises; the value before stays.
        every: seconds from the start of one making to the start of the next, however
            many read it; longer if all of them would take a tenth of a core.
        patience: seconds that a reader waits at most for others' makings; longer ones
            continue, and readers get the value before.
    """

    def __init__(  # noqa: PLR0913 - each has a default, or is a limit
        self,
        make: Callable[[], T],
        failed: Callable[[BaseException], None],
        *,
        every: float,
        patience: float,
        clock: Clock = time.monotonic,
        cpu: Clock = time.thread_time,
    ) -> None:
        self._make = make
        self._failed = failed
        self._every = every
        self._patience = patience
        self._clock = clock
        self._cpu = cpu
        self._taken = 0.0
        self._known: _Known[T] | None = None
        self._began: float | None = None
        self._making: Future[None] | None = None

    def refresh(self) -> Future[None] | None:
        """Return what is done when the value is recent; `None` if it is, or is late."""
        now = self._clock()
        if (making := self._making) is not None:
            late = self._began is not None and now - self._began > self._patience
            return None if late else making
        pause = max(self._every, self._taken / _MOST_OF_A_CORE)
        if self._began is not None and now - self._began < pause:
            return None
        from concurrent.futures import Future  # noqa: PLC0415 - few hosts have readers

        self._began, self._making = now, (making := Future())
        try:
            DaemonThread("jaxmon-refresh", lambda: self._run(making, now)).start()
        except RuntimeError as error:  # no threads left
            self._making = None
            self._failed(error)
            return None
        return making

    def latest(self) -> tuple[T, float] | None:
        """Return the value and its age in seconds, `None` if there is none yet."""
        known = self._known
        return None if known is None else (known.value, self._clock() - known.began)

    def _run(self, making: Future[None], began: float) -> None:
        taken = self._cpu()
        try:
            self._known = _Known(self._make(), began)
        except Exception as error:  # noqa: BLE001 - contained and counted
            self._failed(error)
        finally:
            self._taken = self._cpu() - taken
            self._making = None
            making.set_result(None)
