"""The minimal HTTP/1.1 subset needed by the server."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from math import inf
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

from jaxmon.tuples import NamedTuple


MAX_HEAD = 16 * 1024
METHODS = ("GET", "HEAD")

_REQUEST_LINE = r"([A-Z]{1,32}) ([!-~]+) HTTP/1\.([01])"
_AUTHORITY = r"(?i)https?://[^/?#]+/?"
_FIELD_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CONTROL = r"[\0-\x08\x0a-\x1f\x7f]"
_MAX_PARAMETERS = 64


now = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
"""
Seconds by `time.monotonic`'s clock. The program may replace that function: if it
returned NaN, everything that is scheduled would happen immediately.
"""


class Request(NamedTuple):
    """
    A request; *path* is decoded, of parameters the last of a name wins, *headers* are
    by lower-case name. It *arrived* when complete, by `now`: a response made later may
    serve it. It is *trusted* if from this host, or with password or certificate.
    """

    method: str
    path: str
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})
    arrived: float = inf
    trusted: bool = False


class Response(NamedTuple):
    """A complete response; the server adds length and connection headers."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


class RequestError(Exception):
    """A request that is rejected with *status* and a line of text."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def parse_request(head: bytes) -> Request:
    """Return the request in *head*; a body is never read. Raises `RequestError`."""
    line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    match = re.fullmatch(_REQUEST_LINE, line)
    if match is None:
        raise RequestError(HTTPStatus.BAD_REQUEST, "the request line is malformed")
    method, target, minor = match.groups()
    if method not in METHODS:
        problem = f"only {' and '.join(METHODS)} are supported"
        raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED, problem)
    headers = _parse_fields(lines)
    if minor == "1" and "host" not in headers:
        raise RequestError(HTTPStatus.BAD_REQUEST, "the Host header is missing")
    path, query = _parse_target(target)
    return Request(method, path, query, headers)


def render_head(response: Response) -> bytes:
    """Return the status line and headers of *response*."""
    head = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")


def error_response(status: HTTPStatus, message: str) -> Response:
    """Return a plain-text response of one line."""
    headers = {HTTPStatus.METHOD_NOT_ALLOWED: {"Allow": ", ".join(METHODS)}}
    return Response(
        f"{status.value} {status.phrase}: {message}\n".encode(),
        status=status.value,
        headers=headers.get(status, {}),
    )


def _parse_target(target: str) -> tuple[str, dict[str, str]]:
    # Clients of a proxy send a whole URL; the host in it is of no interest.
    if not target.startswith("/"):
        target = re.sub(_AUTHORITY, "/", target, count=1)
    path, _, query = target.partition("#")[0].partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        path = ""
    if not path.startswith("/"):
        raise RequestError(HTTPStatus.BAD_REQUEST, "the request target is malformed")
    return unquote(path), dict(pairs)


def _parse_fields(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        named = colon and re.fullmatch(_FIELD_NAME, name)
        # A proxy in front may take a control character for the end of the line.
        if not named or re.search(_CONTROL, value):
            raise RequestError(HTTPStatus.BAD_REQUEST, "a header line is malformed")
        key, value = name.lower(), value.strip(" \t")
        if key == "host" and key in headers:
            raise RequestError(HTTPStatus.BAD_REQUEST, "duplicate Host header")
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers
