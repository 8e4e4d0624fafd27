"""Transports: how bytes travel between the server and a client."""

from __future__ import annotations

import socket

from jaxmon.files.descriptor import OwnedSocket
from jaxmon.http.sockets import READ, WRITE


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
        self._own.get().shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket, unless the program has. Idempotent."""
        self._own.close()
