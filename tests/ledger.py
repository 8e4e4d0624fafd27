"""Requests by HTTP and gRPC, and what their client knows of each."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.client import HTTPConnection
from itertools import count
from typing import Any, NamedTuple

import grpc


Kind = tuple[str, str, str]


class Entry(NamedTuple):
    """What the client knows of a request."""

    name: str
    route: str
    outcome: str
    start: str
    attributes: dict[str, Any]

    @property
    def kind(self) -> Kind:
        """What its series is."""
        return self.route, self.outcome, self.start


class Ledger:
    """The requests that a client has made, by the id of their trace. Thread-safe."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    def next(self) -> tuple[str, str]:
        """Return the id of a new trace, and its header."""
        with self._lock:
            number = next(self._numbers)
        return f"{number:032x}", f"00-{number:032x}-{number:016x}-01"

    def http(
        self,
        port: int,
        path: str,
        route: str,
        status: int,
        *,
        start: str = "warm",
        body: str | None = None,
    ) -> None:
        """Make a request, and note it if it got *status*."""
        trace, header = self.next()
        method = "GET" if body is None else "POST"
        connection = HTTPConnection("127.0.0.1", port, timeout=240)
        headers = {"traceparent": header, "Content-Type": "application/json"}
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        assert response.status == status
        outcome = {2: "success", 4: "client_error", 5: "error"}[status // 100]
        self._note_http(trace, method, status, (route, outcome, start))

    def leave(self, port: int, path: str) -> None:
        """Request what never ends, and leave after its first bytes."""
        trace, header = self.next()
        with socket.create_connection(("127.0.0.1", port), timeout=240) as one:
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\ntraceparent: {header}\r\n\r\n"
            one.sendall(head.encode())
            assert one.recv(1000).startswith(b"HTTP/1.")
        self._note_http(trace, "GET", 200, (path, "client_error", "warm"))

    def _note_http(
        self, trace: str, method: str, status: int, kind: tuple[str, str, str]
    ) -> None:
        route, outcome, start = kind
        known = {} if route == "unmatched" else {"http.route": route}
        attributes = {
            "http.request.method": method,
            "http.response.status_code": status,
            **known,
        }
        name = method if route == "unmatched" else f"{method} {route}"
        self.entries[trace] = Entry(name, route, outcome, start, attributes)

    def rpc(
        self,
        channel: grpc.Channel,
        request: bytes,
        code: grpc.StatusCode = grpc.StatusCode.OK,
        *,
        method: str = "Run",
        start: str = "warm",
        seconds: float = 240,
        cancel: bool = False,
    ) -> None:
        """Make an RPC, and note it if it ended with *code*."""
        trace, header = self.next()
        route, metadata = f"/models.Predict/{method}", (("traceparent", header),)
        got = grpc.StatusCode.OK
        try:
            if method == "Stream":
                list(channel.unary_stream(route)(request, seconds, metadata))
            else:
                call = channel.unary_unary(route).future(request, seconds, metadata)
                if cancel:
                    # Only what has arrived is a request of the server's.
                    with suppress(grpc.FutureTimeoutError):
                        call.result(timeout=0.5)
                    call.cancel()
                got = call.code()
        except grpc.RpcError as error:
            got = error.code()
        assert got is code
        codes = {"OK": "success", "INVALID_ARGUMENT": "client_error"}
        outcome = "client_error" if cancel else codes.get(code.name, "error")
        attributes = {
            "rpc.system.name": "grpc",
            "rpc.method": f"models.Predict/{method}",
            "rpc.response.status_code": code.name,
        }
        self.entries[trace] = Entry(
            route.removeprefix("/"), route, outcome, start, attributes
        )
