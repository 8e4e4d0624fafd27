"""
The Unix socket of an agent, kept where the sidecar looks for it.

Run directories are often below ``/tmp`` or ``/run``, where cleaners and logouts take
files away under living programs. Whoever is connected notices nothing, and nobody else
finds the agent any more: so the server's thread looks every few seconds whether its
socket and its lock are still there, and listens again where they are not.
"""

from __future__ import annotations

from pathlib import Path
from threading import RLock

from jaxmon import rundir
from jaxmon.agent.guard import log
from jaxmon.errors import JaxmonError
from jaxmon.http.listeners import Listener
from jaxmon.http.server import Server


EVERY = 5.0
"""
Seconds between two looks. One takes some 10 µs of the server's thread.
"""


class LocalSocket:
    """A slot in the run *directory*, and *server*'s socket in it."""

    def __init__(self, server: Server, directory: Path) -> None:
        self._server = server
        # The program may change its directory.
        self._directory = directory.absolute()
        self._slot: rundir.Slot | None = None
        self._listener: Listener | None = None
        self._number: int | None = None
        self._trouble = ""
        self._closed = False
        # Looks are on the server's thread, the end is not.
        self._lock = RLock()

    @property
    def path(self) -> str | None:
        """Where the socket is, `None` when there is none."""
        slot = self._slot
        return None if slot is None else str(slot.socket)

    def open(self) -> None:
        """
        Listen in the slot of before, or else in the lowest free one; before the server
        starts, or on its thread.

        Raises:
            RunDirError: the directory cannot be used.
            OSError: it takes no sockets.
        """
        slot = rundir.acquire(self._directory, first=self._number)
        listener = None
        try:
            self._listener = listener = self._server.listen_unix(slot.socket, slot.mode)
            slot.bound()
        except BaseException:
            if listener is not None:
                slot.bound()
            slot.release()
            raise
        self._slot, self._number = slot, slot.number

    def look(self) -> None:
        """Listen again if others do not find the socket; on the server's thread."""
        with self._lock:
            if self._closed or (self._slot is not None and self._slot.in_place()):
                return
            self._let_go()
            try:
                self.open()
            except (JaxmonError, OSError) as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning(
                        "the run directory of jaxmon was changed, and the sidecar does "
                        "not see this process until that is mended: %s",
                        error,
                    )
            else:
                self._trouble = ""
                log.warning(
                    "the run directory of jaxmon was changed; its socket is %s again",
                    self.path,
                )

    def close(self) -> None:
        """
        Let the slot go, before the server stops: who comes next finds it free, and a
        sidecar no socket on which nobody answers.
        """
        with self._lock:
            self._closed = True
            if self._slot is not None:
                self._slot.release()
                self._slot = None

    def abandon(self) -> None:
        """
        Leave slot and socket to the parent process; in a forked child, where another
        thread of the parent may have held the lock.
        """
        self._closed = True
        if self._slot is not None:
            self._slot.abandon()
            self._slot = None

    def _let_go(self) -> None:
        # First, or our own socket would answer where we look for a free slot.
        if self._listener is not None:
            self._server.close_listener(self._listener)
            self._listener = None
        if self._slot is not None:
            self._slot.release()
            self._slot = None
