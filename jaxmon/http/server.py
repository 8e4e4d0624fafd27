"""
A small HTTP server for pages: TCP and Unix sockets, one daemon thread.

It lives inside other people's programs: its event loop is its own, it logs
nothing, resolves no names, and neither a handler nor a client can stop it.
"""

from __future__ import annotations

import contextlib
import functools
import selectors
import socket
from collections.abc import Callable, Mapping
from threading import Thread, current_thread
from typing import TYPE_CHECKING, TypeAlias

from jaxmon.http import listeners
from jaxmon.http.hosts import Hosts
from jaxmon.http.listeners import Gate, Listener
from jaxmon.http.lobby import Guest, Lobby
from jaxmon.http.loop import new_loop
from jaxmon.http.messages import Request, Response, Timeouts
from jaxmon.http.page import metrics_handler
from jaxmon.http.places import Place, Places
from jaxmon.http.routes import Answers, Handler
from jaxmon.threads import DaemonThread


if TYPE_CHECKING:
    import asyncio
    from pathlib import Path
    from ssl import SSLContext

    from jaxmon.http.connection import Connection


__all__ = [
    "Handler",
    "OnError",
    "Request",
    "Response",
    "Server",
    "metrics_handler",
]

OnError: TypeAlias = Callable[[str, BaseException], None]

_JOIN_SECONDS = 5.0
_GRACE_SECONDS = 1.0
_RETRY_SECONDS = 1.0
# Few, or a burst would take all places before the first of it is served; more once they
# are taken, but no more than can leave meanwhile.
_ACCEPTS_PER_TURN = 4
_ACCEPTS_WHEN_FULL = 12
_GUESTS = 2  # in the lobby, to each place


class Server:
    """
    Serves *routes* on every socket it was told to listen on, until `stop`.

    A server runs once: listen, start, stop. Handlers run on its thread, one at a
    time, so they must be quick; one that takes its time returns a future, which it
    completes on a thread of its own.

    Args:
        routes: handler by path.
        local_routes: pages for clients of a Unix socket only, which its file's
            permissions guard.
        name: of the thread.
        max_connections: how many clients are served at a time. For one more another
            gives way that is idle or slow, or one of an address that has more
            (`Places.welcome`), and for one that has asked one that has not
            (`Places.claim`). When there is none, it is refused with 503; who says
            nothing is closed. Both are counted in `dropped`.
        read_timeout: seconds for a client to send a request.
        write_timeout: seconds for a client to take a response.
        idle_timeout: seconds that an unused connection stays open; longer than
            the usual scrape interval, so that a scraper keeps its own.
        answer_timeout: seconds that a page made on another thread may take.
        hosts: by which names clients of TCP may ask, where neither TLS nor passwords
            keep others out.
        on_error: told of failures, by site: ``server`` or ``server:`` and the
            path of the handler that raised. Called on the server thread.
    """

    def __init__(  # noqa: PLR0913 - each limit has a default
        self,
        routes: Mapping[str, Handler],
        *,
        local_routes: Mapping[str, Handler] | None = None,
        name: str = "jaxmon-server",
        max_connections: int = 64,
        read_timeout: float = 5.0,
        write_timeout: float = 10.0,
        idle_timeout: float = 75.0,
        answer_timeout: float = 180.0,
        hosts: Hosts | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self.dropped = 0
        self._name = name
        self._timeouts = Timeouts(
            read_timeout, write_timeout, idle_timeout, answer_timeout
        )
        self._on_error = on_error
        self._answers = Answers(
            routes,
            {**routes, **(local_routes or {})},
            hosts=hosts or Hosts(),
            seconds=answer_timeout,
            report=self._report,
        )
        self.routes = self._answers.routes
        self._listeners: list[Listener] = []
        self._chores: list[tuple[float, Callable[[], None]]] = []
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._places = Places(self._connections, max_connections)
        self._most = max_connections
        self._thread: Thread | None = None
        # Made by start():
        self._selector: selectors.BaseSelector | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._lobby: Lobby

    @property
    def clients(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def listen_tcp(
        self,
        host: str,
        port: int,
        *,
        ssl: SSLContext | None = None,
        gate: Gate | None = None,
        ssl_handshake_timeout: float = 5.0,
    ) -> int:
        """
        Listen on an address, before `start`; return the port, which the system
        chose if *port* is 0.

        Args:
            host: an IPv4 or IPv6 address, or ``localhost`` for 127.0.0.1; ``::``
                takes IPv4 clients as well. Names are not resolved.
            port: 0 for any free one.
            ssl: serve HTTPS with this context. It may be reloaded while in use.
            gate: encrypts, and asks for passwords or certificates, instead.
            ssl_handshake_timeout: seconds for a client to finish the handshake.

        Raises:
            OSError: the address is not one, not of this host, or in use.
        """
        listener = listeners.tcp(
            host, port, ssl=ssl, gate=gate, handshake_timeout=ssl_handshake_timeout
        )
        self._add(listener)
        bound: int = listener.sock.getsockname()[1]
        return bound

    def listen_unix(self, path: Path, mode: int = 0o600) -> Listener:
        """
        Listen on a Unix socket, before `start` or on the server's own thread.

        The file belongs to the caller: it must not exist yet, and `stop` leaves
        it where it is. It never has more permissions than *mode*.

        Raises:
            OSError: the path exists, is too long, or cannot be written.
        """
        listener = listeners.unix(path, mode)
        try:
            self._add(listener)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return listener

    def close_listener(self, listener: Listener) -> None:
        """Stop listening there; on the server's own thread. Clients are served on."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            self._loop.remove_reader(listener.sock)
            listener.sock.close()

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        """
        Have *call* made on the server's thread, *seconds* after `start` and after each
        call; before `start`. It must be quick; what it raises is reported.
        """
        self._chores.append((seconds, call))

    def start(self) -> None:
        """
        Serve from now on, on a daemon thread.

        Raises:
            OSError: no descriptors left for the event loop.
            RuntimeError: the server was started before.
        """
        if self._selector is not None:
            msg = "a server starts once; make a new one"
            raise RuntimeError(msg)
        import asyncio  # noqa: PLC0415 - 40 ms that only a running server pays

        with contextlib.ExitStack() as undo:
            selector = undo.enter_context(selectors.DefaultSelector())
            # Where no descriptors are left, asyncio would print a traceback.
            for end in socket.socketpair():
                end.close()
            self._loop = new_loop(selector, self._report)
            undo.callback(self._loop.close)
            self._stopping = asyncio.Event()
            self._lobby = Lobby(
                self._loop,
                _GUESTS * self._most,
                enter=self._enter,
                leave=self._count_dropped,
            )
            thread = DaemonThread(self._name, self._run)
            self._selector, self._thread = selector, thread
            try:
                thread.start()
                undo.pop_all()
            except BaseException:  # no threads left, or the program's
                if thread.prevent():
                    self._selector = self._thread = None
                else:
                    undo.pop_all()
                    self.stop()
                raise

    def stop(self) -> None:
        """
        Stop serving and close every socket; twice is harmless.

        Responses under way get a second to finish. Returns after five seconds at
        the latest, even if a handler hangs.
        """
        thread = self._thread
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
            if thread is not current_thread():
                thread.join(_JOIN_SECONDS)
        # Last: where an interrupt lands before, the next call stops it.
        self._thread = None
        self._close_listeners()

    def abandon(self) -> None:
        """
        Close what a forked child inherited; the parent's server serves on.

        Only descriptors are closed: no file is unlinked, no peer is told, and
        the epoll instance, which parent and child share, stays as it is.
        """
        self._thread = None
        if self._selector is not None:
            self._selector.close()
            # The loop cannot be closed: it believes that it runs, and would
            # unregister its descriptors from the parent's epoll instance.
            for name in ("_ssock", "_csock"):
                pipe = getattr(self._loop, name, None)
                if isinstance(pipe, socket.socket):
                    pipe.close()
            self._lobby.close()
        for connection in self._connections.values():
            connection.sock.close()
        self._close_listeners()

    def _add(self, listener: Listener) -> None:
        started = self._selector is not None
        if started and current_thread() is not self._thread:
            listener.sock.close()
            msg = "listen before start"
            raise RuntimeError(msg)
        self._listeners.append(listener)
        if started:
            self._watch(listener)

    def _close_listeners(self) -> None:
        while self._listeners:
            self._listeners.pop().sock.close()

    # --- On the server thread ------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - a thread of ours ends quietly
            self._report("server", error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        import asyncio  # noqa: PLC0415 - see start()

        for listener in self._listeners:
            self._watch(listener)
        for chore in self._chores:
            self._loop.call_later(chore[0], self._do, *chore)
        await self._stopping.wait()
        for listener in self._listeners:
            self._loop.remove_reader(listener.sock)
        self._close_listeners()
        self._lobby.close()
        for task, connection in self._connections.items():
            connection.last = True
            if not connection.responding:
                task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=_GRACE_SECONDS)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _watch(self, listener: Listener) -> None:
        if not self._stopping.is_set() and listener in self._listeners:
            self._loop.add_reader(listener.sock, self._accept, listener)

    def _do(self, seconds: float, call: Callable[[], None]) -> None:
        if self._stopping.is_set():
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001 - contained: the server goes on
            self._report("server", error)
        self._loop.call_later(seconds, self._do, seconds, call)

    def _accept(self, listener: Listener) -> None:
        for _ in range(_ACCEPTS_WHEN_FULL if self._places.full else _ACCEPTS_PER_TURN):
            try:
                sock, address = listener.sock.accept()
            except ConnectionAbortedError:
                continue
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # out of descriptors, most likely
                self._report("server", error)
                self._loop.remove_reader(listener.sock)
                self._loop.call_later(_RETRY_SECONDS, self._watch, listener)
                return
            guest = Guest(sock, listener, "" if listener.local else address[0])
            if self._places.welcome(guest.peer):
                self._serve_guest(guest, "held")
            else:
                sock.settimeout(0)
                self._lobby.wait(guest)

    def _enter(self, guest: Guest) -> bool:
        """
        Serve *guest*, who has no place and has spoken, or tell that there is no room
        for one more who wants a place.
        """
        if self._places.welcome(guest.peer):
            self._serve_guest(guest, "held")
        elif self._places.tolerates():
            self._serve_guest(guest, "wanted")
        else:
            return False
        return True

    def _count_dropped(self) -> None:
        self.dropped += 1

    def _claim(self, connection: Connection) -> bool:
        if self._places.claim(connection):
            return True
        connection.place = "refused"
        self._count_dropped()
        return False

    def _serve_guest(self, guest: Guest, place: Place) -> None:
        from jaxmon.http.connection import Connection  # noqa: PLC0415 - see start()

        connection = Connection(
            guest.sock,
            guest.listener,
            functools.partial(self._answers.to, guest),
            peer=guest.peer,
            timeouts=self._timeouts,
            claim=self._claim,
            place=place,
        )
        task = self._loop.create_task(connection.serve())
        self._connections[task] = connection
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        # A task that was cancelled before its first step has closed nothing.
        connection = self._connections.pop(task)
        connection.sock.close()
        if connection.place == "wanted":
            self._count_dropped()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report("server", error)

    def _report(self, site: str, error: BaseException) -> None:
        if self._on_error is not None:
            with contextlib.suppress(Exception):
                self._on_error(site, error)
