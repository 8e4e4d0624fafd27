"""Threads inside the user's program."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable


_start = _thread.start_new_thread
_PREFIX = "jaxmon-"


def is_ours(thread: threading.Thread | None) -> bool:
    """Return whether *thread* is one of ours, by its name."""
    return thread is not None and thread.name.startswith(_PREFIX)


class DaemonThread(threading.Thread):
    """
    A daemon thread of ours that prints nothing when it stops, even if gevent has
    patched `threading` meanwhile.
    """

    def __init__(self, name: str, target: Callable[[], None]) -> None:
        super().__init__(name=name, target=self._begin, daemon=True)
        self._targets = [target]

    def start(self) -> None:
        """
        Start it.

        Raises:
            RuntimeError: no threads are left, or gevent has replaced them by greenlets,
                which would block the program while they wait.
        """
        if _thread.start_new_thread is not _start:
            msg = (
                "threading was patched after jaxmon was loaded; patch it before "
                "importing jaxmon"
            )
            raise RuntimeError(msg)
        super().start()

    def prevent(self) -> bool:
        """
        Report, once, that the target is not running and will not run: `start` may be
        interrupted before or after the thread starts.
        """
        return bool(self._take())

    def _begin(self) -> None:
        for target in self._take():
            target()

    def _take(self) -> list[Callable[[], None]]:
        try:
            return [self._targets.pop()]
        except IndexError:
            return []

    def _delete(self) -> None:
        try:
            super()._delete()  # type: ignore[misc]
        except KeyError:  # of what gevent takes for this thread's number
            threading._active.pop(self.ident, None)  # type: ignore[attr-defined] # noqa: SLF001
