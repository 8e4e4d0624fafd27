"""Serves an agent's metrics on a TCP port, and on a Unix socket for the sidecar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jaxmon import disclosure, interrupts, rundir
from jaxmon.agent.guard import log
from jaxmon.agent.local_socket import EVERY, LocalSocket
from jaxmon.deadline import Deadline
from jaxmon.errors import JaxmonError
from jaxmon.http.messages import Request, Response
from jaxmon.http.server import Handler, Server
from jaxmon.settings import SIDECAR_PORT, Settings


if TYPE_CHECKING:
    from concurrent.futures import Future

# Number of ports tried after a busy one.
_PORTS = 64


class Serving:
    """
    The server of one agent.

    Args:
        settings: settings of the agent.
        routes: handlers by path.
        local_routes: handlers only for the Unix socket.
        on_error: called with the site of each failure.
        running: returns the name of the loop that runs, ``""`` for none.
        position: returns how far the program has come; see `LocalSocket`.
        began: when counting began, by `monotonic`.
        deadline: of what waits when it stops.

    Attributes:
        url: URL of the metrics, `None` if no TCP port is open.
    """

    def __init__(  # noqa: PLR0913 - what is served, and who asks
        self,
        settings: Settings,
        routes: Mapping[str, Handler],
        local_routes: Mapping[str, Handler],
        on_error: Callable[[str, BaseException], None],
        *,
        running: Callable[[], str],
        position: Callable[[], Mapping[str, Any]],
        began: float,
        deadline: Deadline,
    ) -> None:
        self._deadline = deadline
        self._settings = settings
        self._routes = dict(routes)
        self._local_routes = {path: _shown(one) for path, one in local_routes.items()}
        self._on_error = on_error
        self._running, self._position, self._began = running, position, began
        self._server: Server | None = None
        self._local: LocalSocket | None = None
        self.url: str | None = None

    @property
    def socket(self) -> str | None:
        """Path of the Unix socket, `None` if there is none."""
        return None if self._local is None else self._local.path

    @property
    def slot(self) -> int | None:
        """Number of the slot that the Unix socket has, `None` if there is none."""
        return None if self._local is None else self._local.number

    def dropped(self) -> int:
        """Return the number of refused connections."""
        return self._server.dropped if self._server is not None else 0

    def start(self) -> None:
        """
        Listen, and start the server if anything listens.

        Raises:
            OSError, RuntimeError: no descriptors or threads are left.
        """
        server = Server(
            self._routes,
            local_routes=self._local_routes,
            name="jaxmon-server",
            on_error=self._on_error,
        )
        # Stored first: whatever fails, it is closed again.
        self._server = server
        listening = [self._listen_tcp(server), self._listen_unix(server)]
        if not any(listening):
            self._server = None
            return
        server.start()

    def note_loop(self) -> None:
        """Record which loop runs, for the sidecar; costs 15 µs if that has changed."""
        if self._local is not None:
            self._local.note_loop()

    def note_crash(self) -> None:
        """Record that an exception ends the program, for the sidecar."""
        if self._local is not None:
            self._local.note_crash()

    def say(self, words: Mapping[str, Any]) -> None:
        """Record how this process ends, for the sidecar."""
        if self._local is not None:
            self._local.say(words)

    def withdraw(self, last: Callable[[str], bytes]) -> None:
        """
        Stop the server, and leave to the sidecar what was counted: all that any
        response had. Idempotent.

        Args:
            last: see `LocalSocket.keep`.
        """
        self._stop()
        if self._local is not None:
            self._local.keep(last)

    def close(self) -> None:
        """Stop the server and release the slot. Idempotent."""
        self._stop()
        if self._local is not None:
            self._local.close()

    def abandon(self) -> None:
        """Close descriptors and leave files to the parent; called in a forked child."""
        if self._server is not None:
            self._server.abandon()
        if self._local is not None:
            self._local.abandon()
        self.url = None

    def _stop(self) -> None:
        if self._local is not None:
            self._local.withdraw()
        if self._server is not None:
            self._server.stop(self._deadline.portion())
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
                    "port %d is in use; jaxmon serves on port %d instead", first, bound
                )
            shown = f"[{host}]" if ":" in host else host
            self.url = f"http://{shown}:{bound}/metrics"
            return True
        log.warning(
            "jaxmon could not open a TCP port: %s:%d to %d: %s",
            host,
            first,
            last,
            problem,
        )
        return False

    def _listen_unix(self, server: Server) -> bool:
        if not self._settings.socket:
            return False
        directory = rundir.locate(self._settings.run_dir)
        local = LocalSocket(
            server,
            directory,
            running=self._running,
            position=self._position,
            began=self._began,
        )
        # Stored first, like the server.
        self._local = local
        try:
            local.open()
        except (JaxmonError, OSError) as error:
            interrupts.pass_on(error)
            log.warning(
                "jaxmon could not open the Unix socket for the sidecar: %s", error
            )
            self._local = None
            return False
        server.every(EVERY, local.check)
        return True


def _shown(page: Handler) -> Handler:
    """Return the handler *page* whose documents are as they may be shown."""

    def shown(request: Request) -> Response | Future[Response]:
        found = page(request)
        if isinstance(found, Response) and found.content_type == "application/json":
            body = disclosure.document(found.body.decode())
            return found._replace(body=body.encode())
        return found

    return shown
