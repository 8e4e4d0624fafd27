"""TLS between the server and a client, without waiting for either."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jaxmon.http.sockets import READ, WRITE, Transport


if TYPE_CHECKING:
    import socket

# OpenSSL must be given the same bytes again if it could not send all: no more at a
# time, so that what a client takes can be seen.
_RECORD = 1 << 14


class TlsTransport(Transport):
    """
    The socket of a TLS client.

    Args:
        sock: just accepted, non-blocking.
        context: with the server's certificate.
        admits: returns whether the client's certificate, verified or `None`, is
            accepted.

    Raises:
        OSError: the client is gone.
    """

    sock: ssl.SSLSocket

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        admits: Callable[[Mapping[str, object] | None], bool],
    ) -> None:
        super().__init__(
            context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        )
        self._admits = admits

    def handshake(self) -> None:
        """
        Perform the TLS handshake and check the client's certificate.

        Raises:
            OSError: the handshake failed, or the certificate is not accepted.
        """
        with self._unblocked():
            self.sock.do_handshake()
        if not self._admits(self.sock.getpeercert()):
            raise ConnectionAbortedError

    def receive(self, size: int) -> bytes:
        """Return at most *size* bytes, ``b""`` once the client has finished sending."""
        with self._unblocked():
            return super().receive(size)

    def send(self, data: memoryview) -> int:
        """Send some of *data* and return how many bytes."""
        with self._unblocked():
            return super().send(data[:_RECORD])

    def end(self) -> None:
        """Close TLS, and send nothing more; incoming data is no longer decrypted."""
        # It waits for the client's farewell, or there never was a handshake.
        with contextlib.suppress(OSError, ValueError):
            self.sock.unwrap()
        super().end()

    @contextmanager
    def _unblocked(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLWantReadError:
            self.wants = READ
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.wants = WRITE
            raise BlockingIOError from None
