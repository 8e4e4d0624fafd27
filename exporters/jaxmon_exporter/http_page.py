"""
The page of another exporter, over HTTP or HTTPS, within a time and a size.

For pages of our own agents, on Unix sockets, see `jaxmon.exposition.fetch`.
"""

from __future__ import annotations

import base64
import io
import socket
import ssl
import time
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit

from jaxmon.errors import JaxmonError


UNREACHABLE = "unreachable"
TIMEOUT = "timeout"
REDIRECT = "redirect"
STATUS = "http_status"
TOO_LARGE = "too_large"
TLS = "tls"
BROKEN = "broken"

_CHUNK = 1 << 16
_PORTS = {"http": 80, "https": 443}


class PageUnavailable(JaxmonError):  # noqa: N818 - a state, not a mistake
    """
    A page that did not arrive.

    Args:
        reason: one of the constants of this module.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def usable(url: str) -> str:
    """
    Return *url*; a path is added when it has none.

    Raises:
        ValueError: it is not http or https, or names no host.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        msg = f"{without_password(url)!r} is no address; give http://HOST:PORT/metrics"
        raise ValueError(msg)
    _ = parts.port  # raises for what is no port
    return parts._replace(path=parts.path or "/metrics").geturl()


def without_password(url: str) -> str:
    """
    Return *url* as it may stand in logs and on pages.
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def fetch_page(url: str, *, timeout: float, max_bytes: int) -> tuple[str, bytes]:
    """
    GET *url* and return content type and body. Redirects are not followed: what a
    site points elsewhere was not meant to be read by us.

    Args:
        url: may hold user and password.
        timeout: seconds for all of it, however slowly the answer drips. Looking
            up the host's name is not part of it.
        max_bytes: most that the response may have, head included.

    Raises:
        PageUnavailable: with the reason.
    """
    parts = urlsplit(url)
    end = time.monotonic() + timeout
    try:
        with closing(_connected(parts, timeout)) as plain:
            stream = _encrypted(plain, parts, end)
            with closing(stream):
                return _exchange(_Bounded(stream, end, max_bytes), parts)
    except TimeoutError as error:
        message = f"no complete answer within {timeout:g} s"
        raise PageUnavailable(TIMEOUT, message) from error
    except ssl.SSLError as error:
        message = f"no encrypted connection: {error}; SSL_CERT_FILE names authorities"
        raise PageUnavailable(TLS, message) from error
    except (HTTPException, ValueError) as error:
        message = f"its answer is not HTTP as it should be: {error!r}"
        raise PageUnavailable(BROKEN, message) from error
    except OSError as error:
        message = f"connection failed: {error}"
        raise PageUnavailable(BROKEN, message) from error


def _connected(parts: SplitResult, timeout: float) -> socket.socket:
    address = (parts.hostname or "", parts.port or _PORTS[parts.scheme])
    try:
        return socket.create_connection(address, timeout)
    except TimeoutError:
        raise
    except OSError as error:
        raise PageUnavailable(UNREACHABLE, f"cannot connect: {error}") from error


def _encrypted(plain: socket.socket, parts: SplitResult, end: float) -> socket.socket:
    if parts.scheme == "http":
        return plain
    plain.settimeout(_left(end))
    context = ssl.create_default_context()
    return context.wrap_socket(plain, server_hostname=parts.hostname)


def _exchange(stream: _Bounded, parts: SplitResult) -> tuple[str, bytes]:
    connection = HTTPConnection(parts.hostname or "", parts.port)
    connection.sock = cast("socket.socket", stream)
    headers = {"Accept": "text/plain; version=0.0.4", "Connection": "close"}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    connection.request("GET", target, headers=headers)
    with connection.getresponse() as response:
        _check_status(response)
        return response.headers.get_content_type(), response.read()


def _check_status(response: HTTPResponse) -> None:
    status = response.status
    if status in range(300, 400):
        message = f"it answered HTTP status {status}; give the address of its page"
        raise PageUnavailable(REDIRECT, message)
    if status != HTTPStatus.OK:
        raise PageUnavailable(STATUS, f"it answered HTTP status {status}")


class _Bounded:
    """
    The part of a socket that `HTTPConnection` uses, with an end in time and size.
    """

    def __init__(self, stream: socket.socket, end: float, max_bytes: int) -> None:
        self._stream = stream
        self._end = end
        self._received = _Received(stream, end, max_bytes)

    def sendall(self, data: bytes) -> None:
        """
        Send all of *data*.
        """
        self._stream.settimeout(_left(self._end))
        self._stream.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """
        Return what is received as a file; *mode* is always ``"rb"``.
        """
        del mode
        return io.BufferedReader(self._received, _CHUNK)

    def close(self) -> None:
        """
        Leave it open: the connection lets go before the response has been read.
        """


class _Received(io.RawIOBase):
    """
    What a socket receives, with an end in time and size.
    """

    def __init__(self, stream: socket.socket, end: float, max_bytes: int) -> None:
        self._stream = stream
        self._end = end
        self._left = self._max_bytes = max_bytes

    def readable(self) -> bool:
        """
        Say yes.
        """
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # bytes
        """
        Receive some bytes.
        """
        self._stream.settimeout(_left(self._end))
        count = self._stream.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            most = f"{self._max_bytes / (1 << 20):g} MiB"
            message = f"its page has more than {most}; have it export fewer fields"
            raise PageUnavailable(TOO_LARGE, message)
        return count


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
