"""
Sockets and polls for our own thread.

What `socket`, `select` and `selectors` have may be gevent's or eventlet's: it would
wait in their event loop, in which our thread is not.
"""

from __future__ import annotations

import _socket
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from jaxmon.host.files.descriptor import OwnedSocket
from jaxmon.originals import original


__all__ = ["READ", "WRITE", "Socket", "SocketPoll", "Transport", "pair"]

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


class SocketPoll:
    """
    Waits for sockets. Unlike epoll, it needs no descriptor, which the program might
    close.
    """

    def __init__(self) -> None:
        self._poll: Any = _select.poll()
        self.register: Callable[[int, int], None] = self._poll.register

    def unregister(self, number: int) -> None:
        """Forget the descriptor *number*, which may be closed."""
        with suppress(KeyError):
            self._poll.unregister(number)

    def wait(self, seconds: float | None) -> list[int]:
        """Return the descriptors that are ready or closed, within *seconds*."""
        timeout = -1 if seconds is None else seconds * 1000
        return [number for number, _ in self._poll.poll(timeout)]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets."""
    found: Any = _socket.socketpair()
    here, there = found
    return here, there


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
        self._own = OwnedSocket(sock)

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self.sock.fileno()

    def handshake(self) -> None:
        """Perform the handshake; called repeatedly until it returns."""

    def receive(self, size: int) -> bytes:
        """Return at most *size* bytes, ``b""`` once the client has finished sending."""
        self.wants = READ
        return self._own.get().recv(size)

    def send(self, data: memoryview) -> int:
        """Send some of *data* and return how many bytes."""
        self.wants = WRITE
        return self._own.get().send(data)

    def end(self) -> None:
        """Finish sending, and notify the client; receiving is still possible."""
        self.wants = READ
        self._own.get().shutdown(_socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket, unless the program has. Idempotent."""
        self._own.close()
