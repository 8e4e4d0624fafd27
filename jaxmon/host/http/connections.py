"""One client of the server, from its first byte to its last."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxmon.host.http import messages
from jaxmon.threads import unlist
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    import socket
    from concurrent.futures import Future

    from jaxmon.host.http.routes import PendingResponse, Router
    from jaxmon.host.http.sockets import EventLoop, Listener, Transport


# A client that does not read a shared response holds a copy of this much of it.
_PIECE = 1 << 16
# After this much, other clients get their turn.
_PIECES_PER_TURN = 8
_END_OF_HEAD = b"\r\n\r\n"


class Connection:
    """
    A client connection: receives a request, sends the response, and closes. `receive`,
    `send` and `drain` do what cannot block, and return whether they are finished. They
    raise `OSError` when the client is gone.

    It made *progress* when it last sent or received, or had to wait for us. The
    *answer* waits for *pending*. *open* is set after the handshake.
    """

    def __init__(self, transport: Transport, listener: Listener) -> None:
        self.transport = transport
        self.listener = listener
        self.progress = self.deadline = messages.now()
        self.request: messages.Request | None = None
        self.answer: PendingResponse | None = None
        self.pending: Future[Any] | None = None
        self.open = False
        self._head = bytearray()
        self._unsent = self._rest = memoryview(b"")

    def receive(self) -> bool:
        """
        Receive what is there of the request; return whether it is complete. Raises
        `RequestError`: it is invalid, or too long; `OSError`: the client is gone.
        """
        self.progress = messages.now()
        try:
            if not self.open:
                self.transport.handshake()
                self.open = True
            while not self._is_complete():
                if not (data := self.transport.receive(messages.MAX_HEAD)):
                    raise ConnectionAbortedError
                self._head += data
        except BlockingIOError:
            return False
        arrived = messages.now()
        head = bytes(self._head.partition(_END_OF_HEAD)[0])
        self._head.clear()
        self.request = messages.parse_request(head)._replace(arrived=arrived)
        return True

    def respond(self, response: messages.Response) -> None:
        """Start sending *response*."""
        hidden = self.request is not None and self.request.method == "HEAD"
        body = memoryview(b"" if hidden else response.body)
        self._unsent = memoryview(messages.render_head(response) + body[:_PIECE])
        self._rest = body[_PIECE:]
        self.progress = messages.now()

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
                self.progress = messages.now()
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
        if max(end, len(self._head) if end < 0 else 0) > messages.MAX_HEAD:
            raise messages.RequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"request line and headers are limited to {messages.MAX_HEAD} bytes",
            )
        return end >= 0


_Kind: TypeAlias = "dict[Connection, None]"

# For each client that may be served at a time.
_ASKING = 2
_ENDING = 2
# For a place to become free, and for a client to take some of its response.
_PATIENCE_SECONDS = 1.0
_LINGER_SECONDS = 1.0


class ServerLimits(NamedTuple):
    """
    Seconds for a request with its handshake, to take a response, and for one of another
    thread; and how many clients are served at a time.
    """

    read: float = 5.0
    write: float = 10.0
    answer: float = 180.0
    clients: int = 64


class ConnectionPool:
    """
    Used on the server's thread only. Clients are *asking* until there is room to
    process their request, *answered* until they have received the response, and
    *ending* until they have closed as well: closing first, with unread bytes, resets a
    connection and loses the response in it. `dropped` is the number of clients refused,
    or dropped for others. *report* is called with our failures and their locations.
    """

    def __init__(
        self,
        loop: EventLoop,
        router: Router,
        limits: ServerLimits,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self.dropped = 0
        self._loop = loop
        self._router = router
        self._limits = limits
        self._report = report
        # Each in the order in which clients reached that state.
        self._asking: _Kind = {}
        self._answered: _Kind = {}
        self._ending: _Kind = {}
        self._kinds = self._asking, self._answered, self._ending
        # Clients whose responses can be continued.
        self._ready: deque[Connection] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._kinds))

    def __iter__(self) -> Iterator[Connection]:
        return chain(*self._kinds)

    @property
    def due(self) -> float:
        """The earliest deadline of a client, by `now`."""
        return min((client.deadline for client in self), default=inf)

    def accept(self, sock: socket.socket, listener: Listener) -> None:
        """Serve a new client, accepted by *listener*."""
        try:
            transport = listener.open(sock)
        except Exception as error:  # noqa: BLE001 - contained: costs one client
            sock.close()
            if not isinstance(error, OSError):  # gone already
                self._report("server", error)
            return
        client = Connection(transport, listener)
        client.deadline = client.progress + self._limits.read
        most = _ASKING * self._limits.clients
        if self._has_room(self._asking, most, lambda other: other.request is None):
            self._asking[client] = None
            # Most have sent their whole request by now, and are served in this turn.
            self._handle(client)
        else:
            self._drop(client)

    def turn(self, since: float) -> None:
        """
        Do all that cannot block. Clients are dropped whose deadline had passed when the
        loop was polled, *since*; a handler may have delayed others.
        """
        while self._ready:
            client = self._ready.popleft()
            answer, pending = client.answer, client.pending
            if answer is not None and pending is not None and pending.done():
                self._go_on_with(client, partial(_resume, answer, pending))
        self._answer()
        for client in [other for other in self if other.deadline <= since]:
            if client.deadline <= since:  # and not closed meanwhile
                self._end_the_time_of(client)

    def close(self, *, waiting: bool = False) -> None:
        """Close all, or only those *waiting*, to which no response is being sent."""
        for client in list(self._asking if waiting else self):
            self._close(client)

    def abandon(self) -> None:
        """Close the sockets, in a forked child, and leave the selector alone."""
        for client in self:
            client.transport.close()

    def _handle(self, client: Connection) -> None:
        try:
            if client in self._asking:
                self._receive(client)
            elif client in self._answered:
                self._send(client)
            elif client.drain():
                self._close(client)
        except Exception as error:  # noqa: BLE001 - contained: costs one client
            if not isinstance(error, OSError):
                self._report("server", error)
            self._close(client)

    def _receive(self, client: Connection) -> None:
        try:
            has_asked = client.receive()
        except messages.RequestError as error:
            self._refuse(client, messages.error_response(error.status, str(error)))
        except OSError:
            self._end(client)
        else:
            if has_asked:
                self._loop.unwatch(client.transport)
                client.deadline = messages.now() + _PATIENCE_SECONDS
            else:
                self._watch(client)

    def _answer(self) -> None:
        """Answer all requests with room in one turn: they may share one."""
        for client in list(self._asking):
            if client.request is None:
                continue
            if not self._has_room(self._answered, self._limits.clients, _is_slow):
                return
            self._begin(client, client.request)

    def _begin(self, client: Connection, request: messages.Request) -> None:
        self._become(self._answered, client)
        client.progress = messages.now()
        client.deadline = client.progress + self._limits.answer
        sock = client.transport.sock
        client.answer = self._router.answer(request, client.listener, sock)
        self._go_on_with(client, partial(next, client.answer))

    def _go_on_with(self, client: Connection, step: Callable[[], Future[Any]]) -> None:
        """Take the next *step* of a response, and send it once it is made."""
        try:
            try:
                client.pending = step()
            except StopIteration as made:
                client.answer = client.pending = None
                client.respond(made.value)
                unlist()  # before the client knows that it is over
            else:
                client.pending.add_done_callback(lambda _: self._call(client))
                return
        except BaseException as error:  # noqa: BLE001 - contained: costs one client
            self._report("server", error)
            self._close(client)
            return
        client.deadline = client.progress + self._limits.write
        try:
            self._send(client)
        except OSError:
            self._close(client)

    def _call(self, client: Connection) -> None:
        self._ready.append(client)
        self._loop.wake()

    def _send(self, client: Connection) -> None:
        if client.send():
            self._end(client)
        else:
            self._watch(client)

    def _refuse(self, client: Connection, response: messages.Response) -> None:
        """Send *response*, a short one, and nothing more."""
        client.respond(response)
        try:
            client.send()
        except OSError:
            self._close(client)
        else:
            self._end(client)

    def _end(self, client: Connection) -> None:
        if len(self._ending) >= _ENDING * self._limits.clients:
            self._close(next(iter(self._ending)))
        self._become(self._ending, client)
        client.deadline = messages.now() + _LINGER_SECONDS
        try:
            client.transport.end()
            self._watch(client)
        except OSError:
            self._close(client)

    def _end_the_time_of(self, client: Connection) -> None:
        if client in self._asking and client.request is not None:
            self.dropped += 1
            status, message = HTTPStatus.SERVICE_UNAVAILABLE, "too many connections"
            self._refuse(client, messages.error_response(status, message))
        elif client in self._asking and client.open:
            status, message = HTTPStatus.REQUEST_TIMEOUT, "request timeout"
            self._refuse(client, messages.error_response(status, message))
        elif client.answer is not None and client.pending is not None:
            client.deadline = inf
            client.pending.cancel()
            self._go_on_with(client, partial(client.answer.throw, TimeoutError()))
        else:
            self._close(client)

    def _drop(self, client: Connection) -> None:
        self.dropped += 1
        self._close(client)

    def _close(self, client: Connection) -> None:
        self._become(None, client)
        client.deadline = inf
        self._loop.unwatch(client.transport)
        client.transport.close()
        answer, pending = client.answer, client.pending
        client.answer = client.pending = None
        if answer is not None:
            answer.close()
        if pending is not None:
            pending.cancel()

    def _has_room(
        self, clients: _Kind, most: int, is_slow: Callable[[Connection], bool]
    ) -> bool:
        """
        Return whether one more client can join *clients*, of which there are *most*;
        the one that *is_slow* for longest is dropped for it.
        """
        if len(clients) < most:
            return True
        slow = list(filter(is_slow, clients))
        if slow:
            self._drop(min(slow, key=lambda client: client.progress))
        return bool(slow)

    def _become(self, kind: _Kind | None, client: Connection) -> None:
        for clients in self._kinds:
            if clients is not kind:
                clients.pop(client, None)
        if kind is not None:
            kind[client] = None

    def _watch(self, client: Connection) -> None:
        self._loop.watch(
            client.transport, client.transport.wants, partial(self._handle, client)
        )


def _is_slow(client: Connection) -> bool:
    idle = messages.now() - client.progress
    return client.pending is None and idle > _PATIENCE_SECONDS


def _resume(answer: PendingResponse, future: Future[Any]) -> Future[Any]:
    """Send *answer* the result it waits for, and return what it waits for next."""
    try:
        result = future.result()
    except BaseException as error:  # noqa: BLE001 - the answer's to handle
        return answer.throw(error)
    return answer.send(result)
