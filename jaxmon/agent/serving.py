"""
Where an agent serves: a TCP port, and a Unix socket where the sidecar looks for it.

Run directories are often under ``/tmp`` or ``/run``, where cleaners and logouts remove
files of running programs. Existing connections keep working but new ones fail, so every
few seconds the server's thread checks that its socket and lock still exist and, if not,
listens again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import RLock

from jaxmon import interrupts, rundir
from jaxmon.agent.guard import log
from jaxmon.errors import JaxmonError
from jaxmon.http.listeners import Listener
from jaxmon.http.server import Handler, Server
from jaxmon.settings import SIDECAR_PORT, Settings


EVERY = 5.0
"""
Seconds between two looks. One takes some 10 µs of the server's thread.
"""


# How many ports after a busy one are tried.
_PORTS = 64


class Serving:
    """
    The server of one agent.

    Args:
        settings: say where.
        routes: handlers by path.
        local_routes: likewise, of the Unix socket only.
        on_error: told of failures, by site.

    Attributes:
        url: where the metrics are, `None` when no TCP port is open.
    """

    def __init__(
        self,
        settings: Settings,
        routes: Mapping[str, Handler],
        local_routes: Mapping[str, Handler],
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        self._settings = settings
        self._routes, self._local_routes = dict(routes), dict(local_routes)
        self._on_error = on_error
        self._server: Server | None = None
        self._local: LocalSocket | None = None
        self.url: str | None = None

    @property
    def socket(self) -> str | None:
        """Path of the Unix socket, `None` when there is none."""
        return None if self._local is None else self._local.path

    def dropped(self) -> int:
        """Return how many connections were refused."""
        return self._server.dropped if self._server is not None else 0

    def start(self) -> None:
        """
        Listen, and start the server if anybody is to reach it.

        Raises:
            OSError, RuntimeError: there are no descriptors or threads left.
        """
        server = Server(
            self._routes,
            local_routes=self._local_routes,
            name="jaxmon-server",
            on_error=self._on_error,
        )
        # Known first: whatever goes wrong, it is closed again.
        self._server = server
        listening = [self._listen_tcp(server), self._listen_unix(server)]
        if not any(listening):
            self._server = None
            return
        server.start()

    def close(self) -> None:
        """Let the slot go and stop the server. Harmless when repeated."""
        if self._local is not None:
            self._local.close()
        if self._server is not None:
            self._server.stop()
        self.url = None

    def abandon(self) -> None:
        """Close descriptors, and leave files to the parent; in a forked child."""
        if self._server is not None:
            self._server.abandon()
        if self._local is not None:
            self._local.abandon()
        self.url = None

    def _listen_tcp(self, server: Server) -> bool:
        first, host = self._settings.port, self._settings.host
        if first is None:
            return False
        last = min(first + _PORTS, 65535) if first else 0
        for port in range(first, last + 1):
            if port == SIDECAR_PORT != first:
                continue
            try:
                bound = server.listen_tcp(host, port)
            except OSError as error:
                interrupts.pass_on(error)
                problem = error
                continue
            if first and bound != first:
                log.warning(
                    "port %d is taken; jaxmon serves on %d instead", first, bound
                )
            shown = f"[{host}]" if ":" in host else host
            self.url = f"http://{shown}:{bound}/metrics"
            return True
        log.warning(
            "jaxmon serves no TCP port: %s:%d to %d: %s", host, first, last, problem
        )
        return False

    def _listen_unix(self, server: Server) -> bool:
        if not self._settings.socket:
            return False
        local = LocalSocket(server, rundir.locate(self._settings.run_dir))
        # Known first, as the server is.
        self._local = local
        try:
            local.open()
        except (JaxmonError, OSError) as error:
            interrupts.pass_on(error)
            log.warning("jaxmon serves no Unix socket for the sidecar: %s", error)
            self._local = None
            return False
        server.every(EVERY, local.look)
        return True


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
                        "jaxmon's run directory was modified; the sidecar cannot "
                        "see this process until that is fixed: %s",
                        error,
                    )
            else:
                self._trouble = ""
                log.warning(
                    "jaxmon's run directory was modified; the socket has been "
                    "recreated at %s",
                    self.path,
                )

    def close(self) -> None:
        """
        Release the slot before the server stops, so that the next agent finds it free
        and the sidecar finds no dead socket.
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
