"""
A session of `requests` for the SDK's exporters, limited in time and size: they would
read on as long as bytes come, and may follow redirects, or count them as success.
"""

from __future__ import annotations

import io
import socket
from contextlib import suppress
from http.client import HTTPResponse
from typing import Any

from requests import PreparedRequest, Response, Session, exceptions
from requests.adapters import HTTPAdapter
from urllib3 import connection, connectionpool
from urllib3.exceptions import HTTPError

from jaxmon.host.http.stream import Bounds, Received


# Of a response with its head; one of OTLP names what was rejected.
_MOST_BYTES = 1 << 16
# The SDK always gives a time limit.
_SECONDS = 10.0


def session() -> Session:
    """Return a session whose responses are limited and come from where they should."""
    found = Session()
    for scheme in ("http://", "https://"):
        found.mount(scheme, _Adapter())
    return found


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        response = super().send(request, *args, **{**kwargs, "stream": True})
        raw = response.raw
        body = b""
        # The status says whether an export arrived, whatever follows.
        with suppress(HTTPError):
            body = raw.read(_MOST_BYTES, decode_content=False)
        raw.close()  # the connection as well, unless all was read
        response.raw = io.BytesIO(body)
        if response.is_redirect:
            msg = "the receiver redirects; give the endpoint to which it does"
            raise exceptions.TooManyRedirects(msg, response=response)
        return response


class _LimitedResponse(HTTPResponse):
    """A response that arrives in the time that the socket has for one piece of it."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        bounds = Bounds(sock.gettimeout() or _SECONDS, _MOST_BYTES)
        self.fp = io.BufferedReader(_Limited(self.fp.detach(), sock, bounds))


class _Limited(Received):
    """What a connection receives; the file *raw* of it is closed with it."""

    def __init__(
        self, raw: io.RawIOBase, of_socket: socket.socket, bounds: Bounds
    ) -> None:
        super().__init__(of_socket, bounds)
        self._raw = raw

    def close(self) -> None:
        """Close the connection's file as well."""
        self._raw.close()
        super().close()


class _Connection(connection.HTTPConnection):
    response_class = _LimitedResponse


class _EncryptedConnection(connection.HTTPSConnection):
    response_class = _LimitedResponse


class _Pool(connectionpool.HTTPConnectionPool):
    ConnectionCls = _Connection


class _EncryptedPool(connectionpool.HTTPSConnectionPool):
    ConnectionCls = _EncryptedConnection


_POOLS = {"http": _Pool, "https": _EncryptedPool}
