"""One client of the server, from its first byte to its last."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from jaxmon.http.messages import (
    MAX_HEAD,
    Request,
    RequestError,
    Response,
    now,
    parse_request,
    render_head,
)


if TYPE_CHECKING:
    from concurrent.futures import Future

    from jaxmon.http.listeners import Listener
    from jaxmon.http.routes import PendingResponse
    from jaxmon.http.transport import Transport


# A client that does not read a shared response holds a copy of this much of it.
_PIECE = 1 << 16
# After this much, other clients get their turn.
_PIECES_PER_TURN = 8
_END_OF_HEAD = b"\r\n\r\n"


class Connection:
    """
    A client connection: receives a request, sends the response, and closes.

    `receive`, `send` and `drain` do what can be done without blocking, and return
    whether they are finished. They raise `OSError` when the client is gone.

    Args:
        transport: carries its bytes.
        listener: the listener that accepted it.
        peer: its address, the same for all clients of a Unix socket.

    Attributes:
        progress: time when it last sent or received something, or had to wait for us.
        deadline: end of the time allowed for its current phase.
        request: its request, once that is complete.
        answer: the response being generated.
        pending: what *answer* waits for.
        open: the handshake is done, so a response can be sent.
    """

    def __init__(self, transport: Transport, listener: Listener, peer: str) -> None:
        self.transport = transport
        self.listener = listener
        self.peer = peer
        self.progress = self.deadline = now()
        self.request: Request | None = None
        self.answer: PendingResponse | None = None
        self.pending: Future[Any] | None = None
        self.open = False
        self._head = bytearray()
        self._unsent = self._rest = memoryview(b"")

    def receive(self) -> bool:
        """
        Receive the available part of the request; return whether it is complete.

        Raises:
            RequestError: it is not a valid request, or too long.
            OSError: the client is gone, or has closed its side.
        """
        self.progress = now()
        try:
            if not self.open:
                self.transport.handshake()
                self.open = True
            while not self._is_complete():
                if not (data := self.transport.receive(MAX_HEAD)):
                    raise ConnectionAbortedError
                self._head += data
        except BlockingIOError:
            return False
        arrived = now()
        head = bytes(self._head.partition(_END_OF_HEAD)[0])
        self._head.clear()
        self.request = parse_request(head)._replace(arrived=arrived)
        return True

    def respond(self, response: Response) -> None:
        """Start sending *response*."""
        hidden = self.request is not None and self.request.method == "HEAD"
        body = memoryview(b"" if hidden else response.body)
        self._unsent = memoryview(render_head(response) + body[:_PIECE])
        self._rest = body[_PIECE:]
        self.progress = now()

    def send(self) -> bool:
        """Send what is left of the response; return whether that was all."""
        try:
            for _ in range(_PIECES_PER_TURN):
                if not self._unsent:
                    # Not a copy of the whole, which others share.
                    self._unsent, self._rest = self._rest[:_PIECE], self._rest[_PIECE:]
                if not self._unsent:
                    return True
                self._unsent = self._unsent[self.transport.send(self._unsent) :]
                self.progress = now()
        except BlockingIOError:
            pass
        return not (self._unsent or self._rest)

    def drain(self) -> bool:
        """Discard what the client still sends; return whether it has finished."""
        try:
            return not self.transport.receive(_PIECE)
        except BlockingIOError:
            return False

    def _is_complete(self) -> bool:
        end = self._head.find(_END_OF_HEAD)
        if max(end, len(self._head) if end < 0 else 0) > MAX_HEAD:
            raise RequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"request line and headers are limited to {MAX_HEAD} bytes",
            )
        return end >= 0
