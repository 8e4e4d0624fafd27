"""
One client of the server, from its handshake to its last response.

Every wait in here has an end, so a client that is slow, idle or gone costs its
own connection and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from math import inf
from socket import socket
from time import monotonic
from typing import Any, TypeAlias

from jaxmon.http.listeners import Listener
from jaxmon.http.messages import (
    MAX_HEAD,
    Request,
    RequestError,
    Response,
    Timeouts,
    error_response,
    parse_request,
    render_head,
)
from jaxmon.http.places import Place


_LINGER_SECONDS = 1.0
_CLOSING_TURNS = 8
# As much as asyncio holds for a client before it lets us wait.
_PIECE = 1 << 16

Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


class Connection:
    """
    Serves the requests of one accepted socket, one after the other.

    Args:
        sock: just accepted; closed at the end of `serve`.
        listener: where it came in.
        answer: makes the response; must not raise.
        peer: address of the client, the same for all of a Unix socket.
        timeouts: what the client is granted.
        claim: gives it a place once it has asked, if it wants one; where it does not,
            the request gets 503, and no other is read.

    Attributes:
        place: whether it has one.
        idle_since: when it began to wait for another request, `None` before the
            first and during one.
        slow_since: since when the client keeps us waiting with a request, its
            handshake included, or in taking a response; `None` at other times.
        responding: a response is being made or sent.
        last: set it to close the connection after the response under way.
        leaving: gives its place to another client, and is being closed.
    """

    def __init__(  # noqa: PLR0913 - made in one place
        self,
        sock: socket,
        listener: Listener,
        answer: Answer,
        *,
        peer: str,
        timeouts: Timeouts,
        claim: Callable[[Connection], bool],
        place: Place = "held",
    ) -> None:
        self.sock = sock
        self.peer = peer
        self.place = place
        self.idle_since: float | None = None
        self.slow_since: float | None = monotonic()
        self.responding = False
        self.last = False
        self.leaving = False
        self._listener = listener
        self._answer = answer
        self._timeouts = timeouts
        self._claim = claim
        self._reader: _Reader
        self._writer: asyncio.StreamWriter

    async def serve(self) -> None:
        """
        Answer requests until either side has enough. What the network does
        wrong ends the connection and is nobody's error.
        """
        with contextlib.suppress(OSError, EOFError):
            await self._open()
            try:
                while await self._exchange():
                    pass
            finally:
                await self._close()

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        self._reader = _Reader(limit=MAX_HEAD, loop=loop)
        protocol = asyncio.StreamReaderProtocol(self._reader, loop=loop)
        tls: dict[str, Any] = {}
        if (context := self._listener.context()) is not None:
            tls = {
                "ssl": context,
                "ssl_handshake_timeout": self._listener.handshake_timeout,
                "ssl_shutdown_timeout": _LINGER_SECONDS,
            }
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, self.sock, **tls
            )
        except BaseException:
            self.sock.close()
            raise
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)
        gate = self._listener.gate
        if gate is not None and not gate.admits_certificate(
            transport.get_extra_info("peercert")
        ):
            transport.abort()
            raise ConnectionAbortedError

    async def _exchange(self) -> bool:
        """Read one request and answer it; return whether another may follow."""
        try:
            request, keep = parse_request(await self._read_head())
        except RequestError as error:
            await self._write(error_response(error.status, str(error)))
            await self._linger()
            return False
        if self.place == "wanted" and not self._claim(self):
            status = HTTPStatus.SERVICE_UNAVAILABLE
            await self._write(error_response(status, "too many connections"))
            return False
        self.responding = True
        self.slow_since = None
        response = await self._answer(request._replace(arrived=self._reader.fed))
        await self._write(response, keep=keep, body=request.method != "HEAD")
        # Others get their turn, also between requests that came together.
        await asyncio.sleep(0)
        keep = keep and not self.last
        self.responding = not keep
        return keep

    async def _read_head(self) -> bytes:
        first = b""
        if self.idle_since is not None:
            async with asyncio.timeout(self._timeouts.idle):
                first = await self._reader.readexactly(1)
            self.idle_since, self.slow_since = None, monotonic()
        try:
            async with asyncio.timeout(
                _LINGER_SECONDS if self.place == "wanted" else self._timeouts.read
            ):
                return first + await self._reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            raise RequestError(
                HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time"
            ) from None
        except asyncio.LimitOverrunError:
            raise RequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"at most {MAX_HEAD} bytes of request line and headers",
            ) from None

    async def _write(
        self, response: Response, *, keep: bool = False, body: bool = True
    ) -> None:
        head = render_head(response, keep=keep)
        rest = memoryview(response.body if body else b"")
        self.slow_since = monotonic()
        try:
            async with asyncio.timeout(self._timeouts.write):
                # Not writelines(): drain() does not wait for it on 3.12.1 and 3.13.0.
                self._writer.write(head + rest[:_PIECE])
                await self._writer.drain()
                # Requests share a page; a client that does not read holds up a
                # piece of its own, not a copy of the whole.
                while rest := rest[_PIECE:]:
                    self._writer.write(rest[:_PIECE])
                    await self._writer.drain()
        except BaseException:
            # The rest of the page would not be taken either.
            self._abort()
            raise
        self.idle_since, self.slow_since = monotonic(), None

    async def _linger(self) -> None:
        # Closing over unread bytes resets the connection, and the client would
        # never see the response that says why.
        if self._writer.can_write_eof():
            self._writer.write_eof()
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._reader.read(MAX_HEAD):
                    pass

    async def _close(self) -> None:
        # Who does not take the rest of its last response is slow, too.
        self.idle_since, self.slow_since = None, monotonic()
        try:
            self._writer.close()
            async with asyncio.timeout(
                _LINGER_SECONDS if self.leaving else self._timeouts.write
            ):
                await self._writer.wait_closed()
        finally:
            self._abort()
            # wait_closed() returns at once after a cancellation, but the loop
            # needs another turn or two to close the socket.
            for _ in range(_CLOSING_TURNS):
                if self.sock.fileno() < 0:
                    break
                await asyncio.sleep(0)

    def _abort(self) -> None:
        # A transport that closed after its last byte cannot be aborted any more.
        if self.sock.fileno() >= 0:
            self._writer.transport.abort()


class _Reader(asyncio.StreamReader):
    """
    What a client sends.

    Attributes:
        fed: when the last of it came in.
    """

    fed = inf

    def feed_data(self, data: Any) -> None:
        """Take *data* from the transport."""
        self.fed = monotonic()
        super().feed_data(data)
