"""An HTTP server for doubles: keeps what it was asked, and fails on demand."""

import json
import re
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


JSON = "application/json; charset=UTF-8"


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    type: str = JSON

    def encoded(self) -> bytes:
        if isinstance(self.body, str):
            return self.body.encode()
        return json.dumps(self.body).encode()


@dataclass
class Fault:
    """
    Something that goes wrong with some requests.

    Args:
        match: regular expression for "METHOD /path?query".
        reply: answer with this instead.
        before: call this, then answer as usual.
        handled: do what is asked, then let the answer go wrong.
        cut: send half of the answer, then close.
        drop: close without an answer.
        stall: answer nothing until the server stops.
        times: how often.
    """

    match: str
    reply: Reply | None = None
    before: Callable[[], object] | None = None
    handled: bool = False
    cut: bool = False
    drop: bool = False
    stall: bool = False
    times: int = 1


@dataclass(frozen=True)
class Seen:
    """A request as it came, without the value of its Authorization header."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {self.target}"


Answer = Callable[[Seen, str], Reply]


class FaultyServer:
    """
    Serves what *answer* returns for a request and its Authorization header.

    For the length of a ``with`` block, whose end raises what went wrong in here;
    answers one request at a time.
    """

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()
        self._server = _Server(self)
        self.port = self._server.server_port
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        if self.errors:
            raise self.errors[0]

    def fault(self, match: str, **options: Any) -> None:
        """Let the next requests that match go wrong; see `Fault`."""
        self.faults.append(Fault(match, **options))

    def requests(self, pattern: str) -> list[Seen]:
        """Return the requests whose "METHOD /target" matches *pattern*."""
        return [one for one in self.seen if re.search(pattern, one.line)]

    def take_fault(self, seen: Seen) -> Fault | None:
        """Return the fault for a request and use it up."""
        with self.lock:
            for fault in self.faults:
                if fault.times and re.search(fault.match, seen.line):
                    fault.times -= 1
                    return fault
        return None


class _Server(ThreadingHTTPServer):
    """Waits for its threads when closed, and forgives clients that go away."""

    daemon_threads = False

    def __init__(self, owner: FaultyServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request, client_address
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.owner.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        owner = self.server.owner
        self.close_connection = True
        headers = {key.lower(): value for key, value in self.headers.items()}
        authorization = headers.pop("authorization", "")
        body = self.rfile.read(int(headers.get("content-length", 0)))
        seen = Seen(self.command, self.path, headers, body)
        owner.seen.append(seen)
        fault = owner.take_fault(seen) or Fault("")
        if fault.before is not None:
            fault.before()
        if fault.stall:
            owner.stopping.wait(60)
        reply = fault.reply
        if reply is None or fault.handled:
            if (fault.drop or fault.stall) and not fault.handled:
                return
            with owner.lock:
                answer = owner.answer(seen, authorization)
            reply = reply or answer
        if not fault.drop:
            self._send(reply, cut=fault.cut)

    def _send(self, reply: Reply, *, cut: bool) -> None:
        body = reply.encoded()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body[: len(body) // 2] if cut else body)
