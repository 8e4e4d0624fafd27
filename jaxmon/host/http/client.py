"""
One HTTP exchange within bounds: unencrypted, or by a route, over TLS if the URL says
so, directly or through a proxy. `fetch` makes many at once.
"""

from __future__ import annotations

import io
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

from jaxmon.errors import ConfigFileError, JaxmonError
from jaxmon.host.files.bounded import require_regular
from jaxmon.host.formats import json_text
from jaxmon.host.http import urls
from jaxmon.host.http.stream import Bounds, Place, Stream, connected


_CHUNK = 1 << 16
_INTERIM = range(100, 200)


class ClientResponse(NamedTuple):
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
        host = "localhost" if isinstance(place, Path) else urls.authority(*place)
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


_MOST_BYTES = 16 << 20


class CertificatesError(JaxmonError, ValueError):
    """A file of certificates that cannot be used; the message names it."""


def trusted(server: SplitResult, ca_file: Path | None) -> ssl.SSLContext | None:
    """
    Return which certificates to trust of *server*, those in *ca_file* (PEM) instead of
    the system's; `None` if none are needed. Raises `CertificatesError`.
    """
    # Loading the system's takes longer than a request to a server on this host.
    if server.scheme == "http" and ca_file is None:
        return None
    try:
        if ca_file is not None:  # OpenSSL would read whatever it is to its end
            require_regular(ca_file, most=_MOST_BYTES)
        return ssl.create_default_context(cafile=ca_file)
    except (ConfigFileError, OSError) as error:  # ssl.SSLError, too
        strerror = error.strerror if isinstance(error, OSError) else str(error)
        reason = strerror or "it holds no certificates"
        msg = f"cannot use the certificates in {ca_file}: {reason}"
        raise CertificatesError(msg) from None


class RouteError(JaxmonError, ValueError):
    """An unusable proxy."""


class UnreachableError(OSError):
    """Nothing accepts connections there, or there is no such host."""


class Route(NamedTuple):
    """The URLs of server and proxy, trusted certificates, and one *address* of many."""

    server: SplitResult
    proxy: SplitResult | None = None
    trust: ssl.SSLContext | None = None
    address: str = ""

    @classmethod
    def by_environment(cls, server: SplitResult, trust: ssl.SSLContext | None) -> Route:
        """
        Return the route to *server* according to HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
        As in curl and Go, this host itself is never reached through a proxy. Raises
        `RouteError`: the variable names an invalid proxy, or one that does not speak
        plain HTTP.
        """
        # Heavy, and a direct route does not need it.
        from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - see above

        named = getproxies().get(server.scheme, "")
        if not named or urls.is_loopback(server) or proxy_bypass(server.netloc):
            return cls(server, None, trust)
        try:
            proxy = urlsplit(named if "://" in named else f"http://{named}")
            usable = bool(proxy.hostname) and proxy.port != 0
        except ValueError:
            proxy, usable = urlsplit(""), False
        # Its password, and the requests to it, would be sent unencrypted.
        if not usable or proxy.scheme != "http":
            what = "an unsupported proxy type" if usable else "an invalid proxy"
            variable = f"{server.scheme}_proxy"
            if not os.environ.get(variable):
                variable = variable.upper()
            msg = (
                f"{variable}={urls.without_user(named)!r} names {what}; give "
                "http://HOST:PORT, or unset it"
            )
            raise RouteError(msg)
        return cls(server, proxy, trust)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets that server and proxy may echo and that must not be shown."""
        of_proxy = () if self.proxy is None else urls.secrets_of(self.proxy)
        return (*urls.secrets_of(self.server), *of_proxy)

    def exchange(
        self,
        method: str,
        target: str,
        bounds: Bounds,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> ClientResponse:
        """
        Return the response to a request for *target*, path and query, with user and
        password of the URL. Raises `TimeoutError`, `TooLargeError`, `UnreachableError`,
        `ssl.SSLError`, `OSError`, or `http.client.HTTPException`: invalid or truncated.
        """
        sent = {**headers, **_header("Authorization", self.server)}
        if self.proxy is not None and self.server.scheme == "http":
            target = f"http://{_host(self.server)}{target}"
            sent |= _header("Proxy-Authorization", self.proxy)
        host = _host(self.server)
        with self._stream(bounds) as stream:
            send(stream, method, target, host=host, headers=sent, body=body)
            return receive(stream, method)

    @contextmanager
    def _stream(self, bounds: Bounds) -> Iterator[Stream]:
        host, port = urls.place_of(self.proxy or self.server)
        if self.address and self.proxy is None:
            host = self.address
        with ExitStack() as stack:
            try:
                stream = stack.enter_context(connected((host, port), bounds))
            except TimeoutError:
                raise
            except OSError as error:
                raise UnreachableError(*error.args) from error
            if self.server.scheme == "https":
                if self.proxy is not None:
                    _open_tunnel(stream, self.server, self.proxy)
                trust = self.trust or ssl.create_default_context()
                stream.encrypt(trust, urls.place_of(self.server)[0])
            yield stream


def _open_tunnel(stream: Stream, server: SplitResult, proxy: SplitResult) -> None:
    target = urls.authority(*urls.place_of(server))
    headers = _header("Proxy-Authorization", proxy)
    send(stream, "CONNECT", target, host=target, headers=headers)
    response = receive_head(stream, "CONNECT")
    if response.status != HTTPStatus.OK:
        msg = f"Tunnel connection failed: {response.status} {response.reason}"
        raise OSError(msg)


def _header(name: str, parts: SplitResult) -> dict[str, str]:
    return {} if parts.username is None else {name: urls.basic(parts)}


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]
