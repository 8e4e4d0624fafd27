"""
Sockets for our own thread, and its private event loop inside the user's program.

What `socket`, `select` and `selectors` have may be gevent's or eventlet's: it would
wait in their event loop, in which our thread is not.
"""

from __future__ import annotations

import _socket
import contextlib
import heapq
import socket
from collections.abc import Callable
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from jaxmon.host.files.descriptor import DescriptorLostError, OwnedSocket
from jaxmon.host.http.messages import now
from jaxmon.originals import original
from jaxmon.threads import unlist


__all__ = ["READ", "WRITE", "EventLoop", "Socket", "Transport"]

if TYPE_CHECKING:
    import socket
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
    The unencrypted socket of a client; encrypting transports derive from it.

    Nothing here blocks: if the client is not ready, `BlockingIOError` is raised, and
    `wants` is the event to wait for. Any other `OSError` means that the client is gone.

    Args:
        sock: just accepted, non-blocking; closed by `close`.
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
    Makes calls when sockets are ready, and at given times. Except for `wake`, it is
    used by one thread at a time. *report* is called with what a call raised, as a
    failure of ``server``. Raises `OSError` without descriptors.
    """

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._timers: list[tuple[float, int, _Call]] = []
        self._number = count()
        self._watched: dict[int, _Watch] = {}
        with contextlib.ExitStack() as undo:
            # Unlike epoll, it needs no descriptor, which the program might close.
            self._poll: Any = _select.poll()
            ends: Any = _socket.socketpair()
            self._pipe = tuple(map(OwnedSocket, ends))
            for end in self._pipe:
                undo.callback(end.close)
                end.get().settimeout(0)
            self.watch(self._pipe[0], READ, self._wake_up)
            undo.pop_all()

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
        for number, watch in [
            (descriptor, self._watched.get(descriptor)) for descriptor, _ in ready
        ]:
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
