"""
Sockets and polls for our own thread.

What `socket`, `select` and `selectors` have may be gevent's or eventlet's: it would
wait in their event loop, in which our thread is not.
"""

from __future__ import annotations

import _socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from jaxmon.originals import original


__all__ = ["READ", "WRITE", "Socket", "SocketPoll", "pair"]

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
