"""
A small HTTP server on TCP and Unix sockets, in one daemon thread.

It runs inside users' programs: it has its own event loop, logs nothing, resolves no
names, and neither a handler nor a client can stop it. It responds to one request per
connection, whatever the client requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from jaxmon.host.files.descriptor import DescriptorLostError
from jaxmon.host.http import sockets
from jaxmon.host.http.connections import ConnectionPool, ServerLimits
from jaxmon.host.http.messages import Request, Response, now
from jaxmon.host.http.routes import Handler, HostPolicy, Router, metrics_handler
from jaxmon.host.http.sockets import READ, EventLoop, Gate, Listener
from jaxmon.threads import DaemonThread, current


if TYPE_CHECKING:
    from pathlib import Path


__all__ = ["Handler", "OnError", "Request", "Response", "Server", "metrics_handler"]

OnError: TypeAlias = Callable[[str, BaseException], None]

_JOIN_SECONDS = 5.0
_GRACE_SECONDS = 1.0
_RETRY_SECONDS = 1.0
# Connections accepted per listener and turn; one response may then serve all of them.
_ACCEPTS_PER_TURN = 32


class Server:
    """
    Serves *routes* on all listening sockets until `stop`. It runs once: listen, start,
    stop. Handlers run on its thread, so they must be quick; a slow one returns a
    future.

    *local_routes* are for clients of a Unix socket. Twice as many clients as *limits*
    has may be sending requests; a request that waits for a second gets 503. TCP clients
    may request the names *hosts* if no gate guards the listener.
    *on_error* is called on its thread with ``server``, or ``server:`` and a path.
    """

    def __init__(  # noqa: PLR0913 - options, each with a default
        self,
        routes: Mapping[str, Handler],
        *,
        local_routes: Mapping[str, Handler] | None = None,
        name: str = "jaxmon-server",
        limits: ServerLimits = ServerLimits(),  # noqa: B008 - immutable
        hosts: HostPolicy | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self.routes = dict(routes)
        self._name = name
        self._on_error = on_error
        self._limits = limits
        self._router = Router(
            self.routes,
            {**routes, **(local_routes or {})},
            hosts=hosts or HostPolicy(),
            report=self._report,
        )
        self._listeners: list[Listener] = []
        self._chores: list[tuple[float, float, Callable[[], None]]] = []
        self._stopping = False
        self._thread: DaemonThread | None = None
        # Made by start():
        self._loop: EventLoop | None = None
        self._clients: ConnectionPool | None = None

    @property
    def clients(self) -> int:
        """Number of connected clients."""
        return 0 if self._clients is None else len(self._clients)

    @property
    def dropped(self) -> int:
        """Number of clients refused, or dropped for others."""
        return 0 if self._clients is None else self._clients.dropped

    def listen_tcp(self, host: str, port: int, *, gate: Gate | None = None) -> int:
        """
        Listen before `start`; return the port, which the system chooses for 0. *host*
        is an address, or ``localhost`` for 127.0.0.1; ``::`` takes IPv4 as well. *gate*
        encrypts, or admits clients. Raises `OSError`: as `sockets.tcp`.
        """
        listener = sockets.tcp(host, port, gate=gate)
        self._add(listener)
        bound: int = listener.sock.get().getsockname()[1]
        return bound

    def listen_unix(self, path: Path, mode: int = 0o600) -> Listener:
        """
        Listen on a Unix socket, before `start` or on the server's thread. The file is
        the caller's: it must not exist yet, and `stop` leaves it. Raises `OSError`.
        """
        listener = sockets.unix(path, mode)
        try:
            self._add(listener)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return listener

    def close_listener(self, listener: Listener) -> None:
        """Stop listening there, on the server's thread; clients stay."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            if self._loop is not None:
                self._loop.unwatch(listener.sock)
            listener.sock.close()

    def every(
        self, seconds: float, call: Callable[[], None], *, first: float | None = None
    ) -> None:
        """
        Have the server's thread *call* every so many *seconds*, once started; at
        *first* after fewer.
        """
        self._chores.append((seconds, seconds if first is None else first, call))

    def start(self) -> None:
        """Serve on a daemon thread, once. Raises `OSError` without descriptors."""
        if self._loop is not None:
            msg = "a server can only be started once; create a new one"
            raise RuntimeError(msg)
        loop = EventLoop(self._report)
        clients = ConnectionPool(loop, self._router, self._limits, self._report)
        thread = DaemonThread(self._name, partial(self._run, loop, clients))
        self._loop, self._clients, self._thread = loop, clients, thread
        try:
            thread.start()
        except BaseException:  # no threads left, or the program's
            if thread.prevent():
                self._loop = self._clients = self._thread = None
                loop.close()
            else:
                self.stop()
            raise

    def stop(self, seconds: float = _JOIN_SECONDS) -> None:
        """
        Stop serving and close every socket; idempotent. Responses get a second, all
        together so many *seconds*, even if a handler hangs.
        """
        self._stopping = True
        thread, loop = self._thread, self._loop
        if thread is not None and thread is current():
            return  # it closes all once the handler has returned
        if thread is not None and loop is not None:
            loop.wake()
            thread.join(seconds)
        # Last: if an interrupt arrives earlier, the next call stops it.
        self._thread = None
        self._close_listeners()

    def abandon(self) -> None:
        """Close a forked child's descriptors only: no file, no peer notices."""
        self._thread = None
        if self._loop is not None:
            self._loop.close()
        if self._clients is not None:
            self._clients.abandon()
        self._close_listeners()

    def _add(self, listener: Listener) -> None:
        if self._loop is not None and current() is not self._thread:
            listener.sock.close()
            msg = "call listen before start"
            raise RuntimeError(msg)
        self._listeners.append(listener)
        if self._loop is not None and self._clients is not None:
            self._listen(listener, self._loop, self._clients)

    def _close_listeners(self) -> None:
        while self._listeners:
            self._listeners.pop().sock.close()

    def _report(self, site: str, error: BaseException) -> None:
        if self._on_error is not None:
            with contextlib.suppress(Exception):
                self._on_error(site, error)

    def _run(self, loop: EventLoop, clients: ConnectionPool) -> None:
        try:
            self._serve(loop, clients)
        except BaseException as error:  # noqa: BLE001 - a thread of ours ends quietly
            self._report("server", error)
        finally:
            clients.close()
            loop.close()
            self._close_listeners()

    def _serve(self, loop: EventLoop, clients: ConnectionPool) -> None:
        for listener in self._listeners:
            self._listen(listener, loop, clients)
        for seconds, first, call in self._chores:
            loop.later(first, partial(self._do, loop, seconds, call))
        while not self._stopping:
            since = now()
            loop.turn(clients.due)
            clients.turn(since)
            self._drop_lost()
        for listener in list(self._listeners):
            self.close_listener(listener)
        clients.close(waiting=True)
        end = now() + _GRACE_SECONDS
        while clients and (since := now()) < end:
            loop.turn(min(end, clients.due))
            clients.turn(since)

    def _drop_lost(self) -> None:
        """Stop listening where the program has closed the socket, and report that."""
        for listener in list(self._listeners):
            try:
                listener.sock.get()
            except DescriptorLostError as error:
                self.close_listener(listener)
                if not listener.local:  # who made that opens another
                    self._report("descriptors", error)

    def _do(self, loop: EventLoop, seconds: float, call: Callable[[], None]) -> None:
        if self._stopping:
            return
        try:
            call()
        finally:
            loop.later(seconds, partial(self._do, loop, seconds, call))

    def _listen(
        self, listener: Listener, loop: EventLoop, clients: ConnectionPool
    ) -> None:
        if listener in self._listeners and not self._stopping:
            accept = partial(self._accept, listener, loop, clients)
            loop.watch(listener.sock, READ, accept)

    def _accept(
        self, listener: Listener, loop: EventLoop, clients: ConnectionPool
    ) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, _ = listener.sock.get().accept()
            except ConnectionAbortedError:
                continue
            except (BlockingIOError, InterruptedError, DescriptorLostError):
                return
            except OSError as error:  # out of descriptors, most likely
                self._report("server", error)
                loop.unwatch(listener.sock)
                again = partial(self._listen, listener, loop, clients)
                loop.later(_RETRY_SECONDS, again)
                return
            sock.settimeout(0)
            clients.accept(sock, listener)
