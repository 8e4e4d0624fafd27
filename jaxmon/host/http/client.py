"""
One HTTP exchange within bounds, unencrypted; `route` has TLS, `fetch` many at once.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any, cast

from jaxmon.host.formats import json_text
from jaxmon.host.http.stream import Bounds, Place, Stream, connected
from jaxmon.host.http.urls import authority


_CHUNK = 1 << 16
_INTERIM = range(100, 200)


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """A response; *headers* are by lower-case name, the last of duplicates."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def type(self) -> str:
        """The media type, in lower case, ``""`` without one."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """Return the body as JSON. Raises `ValueError`: it is not valid JSON."""
        return json_text.parse(self.body)


def get(
    place: Place,
    target: str,
    *,
    seconds: float,
    max_bytes: int,
    headers: Mapping[str, str] | None = None,
) -> ClientResponse:
    """
    GET *target*, path and query, from the server at *place*, unencrypted, within so
    many *seconds* and *max_bytes*, head included. Raises `TimeoutError`,
    `TooLargeError`, `OSError`, and `http.client.HTTPException`: it is not valid HTTP,
    or truncated.
    """
    with connected(place, Bounds(seconds, max_bytes)) as stream:
        host = "localhost" if isinstance(place, Path) else authority(*place)
        send(stream, "GET", target, host=host, headers=headers)
        return receive(stream, "GET")


def send(  # noqa: PLR0913 - what a request consists of
    stream: Stream,
    method: str,
    target: str,
    *,
    host: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> None:
    """Send the one request of a connection; *host* is the requested host."""
    connection = HTTPConnection("localhost")  # has a connection, and needs no name
    connection.sock = cast("socket.socket", stream)
    sent = {"Host": host, "Connection": "close", **(headers or {})}
    connection.request(method, target, body, sent)


def receive(stream: Stream, method: str) -> ClientResponse:
    """Return the complete response to a request by *method*."""
    response = receive_head(stream, method)
    headers = {name.lower(): value for name, value in response.getheaders()}
    body = io.BytesIO()
    # Never as much as the server announces: memory would be requested for all of it.
    while chunk := response.read1(_CHUNK):
        body.write(chunk)
    if response.length:
        raise IncompleteRead(body.getvalue(), response.length)
    return ClientResponse(response.status, headers, body.getvalue())


def receive_head(stream: Stream, method: str) -> HTTPResponse:
    """Return the final response, skipping interim ones; its body is unread."""
    while True:
        response = HTTPResponse(cast("socket.socket", stream), method=method)
        response.begin()
        if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
            msg = "the server speaks another protocol"
            raise HTTPException(msg)
        if response.status not in _INTERIM:
            return response
