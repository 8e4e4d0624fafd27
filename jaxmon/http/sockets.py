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


__all__ = ["READ", "WRITE", "Poller", "Socket", "pair"]

if TYPE_CHECKING:
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


class Poller:
    """
    Waits for sockets. Linux forgets those that the program has closed.

    Raises:
        OSError: there are no descriptors left.
    """

    def __init__(self) -> None:
        epoll = getattr(_select, "epoll", None)
        self._poll: Any = _select.poll() if epoll is None else epoll()
        self._unit = 1000 if epoll is None else 1
        self.register: Callable[[int, int], None] = self._poll.register
        self.modify: Callable[[int, int], None] = self._poll.modify

    def unregister(self, number: int) -> None:
        """Forget the descriptor *number*, which may be closed."""
        with suppress(OSError, KeyError):
            self._poll.unregister(number)

    def wait(self, seconds: float | None) -> list[int]:
        """Return the descriptors that are ready, within *seconds*."""
        timeout = -1 if seconds is None else seconds * self._unit
        return [number for number, _ in self._poll.poll(timeout)]

    def close(self) -> None:
        """Close its descriptor."""
        if self._unit == 1:
            self._poll.close()


def pair() -> tuple[Socket, Socket]:
    """Return two connected sockets."""
    here, there = _socket.socketpair()
    return Socket(fileno=here.detach()), Socket(fileno=there.detach())
