"""
Sockets for our own thread, those that a server listens on, and its private event loop
inside the user's program.

What `socket`, `select` and `selectors` have may be gevent's or eventlet's: it would
wait in their event loop, in which our thread is not.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import heapq
import os
import socket
import stat
from collections.abc import Callable, Mapping
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from jaxmon.clocks import original
from jaxmon.host.files.descriptor import DescriptorLostError, OwnedSocket
from jaxmon.host.http.messages import Request, Response, now
from jaxmon.threads import unlist
from jaxmon.tuples import NamedTuple


__all__ = ["READ", "WRITE", "EventLoop", "Listener", "Socket", "Transport"]

if TYPE_CHECKING:
    from concurrent.futures import Future
    from socket import socket as Socket  # noqa: N812 - a class, and the same for types
else:

    class Socket(_socket.socket):
        """As `socket.socket`, for servers and probes."""

        def accept(self) -> tuple[Socket, Any]:
            """Return the socket of a new client, and its address."""
            number, address = self._accept()
            return Socket(fileno=number), address


_select: Final[Any] = original("select")
READ: Final[int] = _select.POLLIN
WRITE: Final[int] = _select.POLLOUT


class Transport:
    """
    The unencrypted socket of a client, non-blocking; encrypting ones derive from it. If
    the client is not ready, `BlockingIOError` is raised, and `wants` is the event to
    wait for; any other `OSError` means that it is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.wants = READ
        self._owned = OwnedSocket(sock)

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self.sock.fileno()

    def handshake(self) -> None:
        """Perform the handshake; called repeatedly until it returns."""

    def receive(self, size: int) -> bytes:
        """Return at most *size* bytes, ``b""`` once the client has finished sending."""
        self.wants = READ
        return self._owned.get().recv(size)

    def send(self, data: memoryview) -> int:
        """Send some of *data* and return how many bytes."""
        self.wants = WRITE
        return self._owned.get().send(data)

    def end(self) -> None:
        """Finish sending, and notify the client; receiving is still possible."""
        self.wants = READ
        self._owned.get().shutdown(_socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket, unless the program has. Idempotent."""
        self._owned.close()


_Socket: TypeAlias = OwnedSocket | Transport
_Call: TypeAlias = Callable[[], None]

# Between two turns, if `wake` is impossible: the program has closed what it needs.
_DEAF_SECONDS = 0.1


class _Watch(NamedTuple):
    sock: _Socket
    events: int
    call: _Call


class EventLoop:
    """
    Makes calls when sockets are ready, and at given times, on one thread at a time but
    for `wake`. *report* gets what they raise. Raises `OSError` without descriptors.
    """

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._timers: list[tuple[float, int, _Call]] = []
        self._number = count()
        self._watched: dict[int, _Watch] = {}
        # Unlike epoll, it needs no descriptor, which the program might close.
        self._poll: Any = _select.poll()
        ends: Any = _socket.socketpair()
        self._pipe = tuple(map(OwnedSocket, ends))
        for end in self._pipe:
            end.get().settimeout(0)
        self.watch(self._pipe[0], READ, self._wake_up)

    def watch(self, sock: _Socket, events: int, call: _Call) -> None:
        """Make *call* whenever *sock* is ready for *events*, and for no others."""
        number = sock.fileno()
        watched = self._watched.get(number)
        # If it is another socket's, the program closed that.
        if watched is None or watched.sock is not sock or watched.events != events:
            self._poll.register(number, events)
            self._watched[number] = _Watch(sock, events, call)

    def unwatch(self, sock: _Socket) -> None:
        """Stop watching *sock*; call this before it is closed."""
        watched = self._watched.get(sock.fileno())
        if watched is not None and watched.sock is sock:
            del self._watched[sock.fileno()]
            with contextlib.suppress(KeyError):
                self._poll.unregister(sock.fileno())

    def later(self, seconds: float, call: _Call) -> None:
        """Make *call* once, *seconds* from now."""
        heapq.heappush(self._timers, (now() + seconds, next(self._number), call))

    def wake(self) -> None:
        """Make `turn` return soon; thread-safe."""
        with contextlib.suppress(OSError):  # it will, or cannot
            self._pipe[1].get().send(b"\0")

    def turn(self, until: float = inf) -> None:
        """Wait until something is due, or *until* (by `now`), and do what is due."""
        due = min(until, self._timers[0][0] if self._timers else inf)
        if not all(end.is_ours for end in self._pipe):
            self.unwatch(self._pipe[0])
            due = min(due, now() + _DEAF_SECONDS)
        unlist()
        ready = self._poll.poll(-1 if due == inf else max(0.0, due - now()) * 1000)
        watches = [(number, self._watched.get(number)) for number, _ in ready]
        for number, watch in watches:
            # It may have been closed meanwhile, and its number be another socket's.
            if watch is not None and self._watched.get(number) is watch:
                self._do(watch.call)
        while self._timers and self._timers[0][0] <= now():
            self._do(heapq.heappop(self._timers)[-1])

    def close(self) -> None:
        """Close the loop's own descriptors."""
        for end in self._pipe:
            end.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError, DescriptorLostError):
            self._pipe[0].get().recv(1 << 12)

    def _do(self, call: _Call) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - contained: the loop continues
            self._report("server", error)


# As many as the kernel grants (net.core.somaxconn): if the queue overflows, a client
# gets no response, and retries after one, three and seven seconds.
_BACKLOG = 4096
# A client that does not read would have the kernel hold megabytes for it.
_SEND_BUFFER = 128 << 10


class Gate(Protocol):
    """Guards a listener; used on the server's thread."""

    @property
    def guards(self) -> bool:
        """Whether it keeps out websites in a browser."""

    @property
    def authenticates(self) -> bool:
        """Whether clients must give a password or a certificate."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers for every response."""

    def open(self, sock: socket.socket) -> Transport:
        """Return the transport of a client just accepted; `OSError` if it is gone."""

    def check(self, request: Request) -> Response | Future[Response | None] | None:
        """Return the response that rejects *request*, `None` if it is admitted."""


class Listener(NamedTuple):
    """A listening socket and the gate of its clients; *local* is a Unix socket."""

    sock: OwnedSocket
    gate: Gate | None = None
    local: bool = False

    @property
    def guarded(self) -> bool:
        """Whether websites that pretend to be this host are kept out."""
        return self.local or (self.gate is not None and self.gate.guards)

    @property
    def authenticated(self) -> bool:
        """Whether clients have shown that they may read what not everyone may."""
        return self.local or (self.gate is not None and self.gate.authenticates)

    def open(self, sock: socket.socket) -> Transport:
        """Return the transport of a client that was accepted here."""
        return Transport(sock) if self.gate is None else self.gate.open(sock)


def tcp(host: str, port: int, *, gate: Gate | None = None) -> Listener:
    """Listen on the address *host*. Raises `OSError`: invalid, foreign, or in use."""
    family, address = numeric_address(host, port)
    everywhere = address[0] == "::"
    if everywhere and not socket.has_dualstack_ipv6():
        # A kernel without IPv6 has no other addresses than these.
        family, address, everywhere = socket.AF_INET, ("0.0.0.0", port), False  # noqa: S104
    sock = Socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not everywhere)
        sock.bind(address)
        sock.listen(_BACKLOG)
        # Connections inherit both.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(0)
        name = f"jaxmon's TCP port {sock.getsockname()[1]}, which is no longer served"
        return Listener(OwnedSocket(sock, name), gate)
    except BaseException:
        sock.close()
        raise


def unix(path: Path, mode: int) -> Listener:
    """Listen on a new Unix socket, never open beyond *mode*. Raises `OSError`."""
    if os.path.lexists(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    hidden = path.with_name(f".{path.name}")
    sock = OwnedSocket(Socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        # Linux gives the file the mode of the unbound socket, less the umask;
        # without this it would be open to others until the chmod.
        with contextlib.suppress(OSError):
            os.fchmod(sock.get().fileno(), mode)
        # Under a different name until it listens: a client that connects in between
        # would find a socket that refuses it, as a killed process leaves one.
        hidden.unlink(missing_ok=True)
        sock.get().bind(os.fspath(hidden))
        _set_mode(hidden, mode)
        sock.get().listen(_BACKLOG)
        sock.get().settimeout(0)
        listener = Listener(sock, local=True)
        hidden.rename(path)
    except BaseException:
        for created in (hidden, path):
            with contextlib.suppress(OSError):
                created.unlink()
        sock.close()
        raise
    return listener


def _set_mode(path: Path, mode: int) -> None:
    """Give the new socket *path* its *mode*, whatever the umask; nothing else there."""
    if not hasattr(os, "O_PATH"):  # not Linux
        path.chmod(mode)
        return
    number = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid():
            os.chmod(f"/proc/self/fd/{number}", mode)  # noqa: PTH101 - it is open
    finally:
        os.close(number)


def numeric_address(host: str, port: int) -> tuple[int, Any]:
    """Return the address to bind for *host*, with the scope of a link-local address."""
    try:
        found = _socket.getaddrinfo(
            # As bytes: for a text it would load the tables of international names.
            b"127.0.0.1" if host == "localhost" else host.encode("ascii"),
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE,
        )
    except (socket.gaierror, ValueError):  # or one that no name can have
        msg = f"{host!r} is not an IP address; use one such as 127.0.0.1, 0.0.0.0 or ::"
        raise OSError(errno.EINVAL, msg) from None
    family, _, _, _, address = found[0]
    return family, address
