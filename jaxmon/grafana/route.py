"""The way to a server: directly, or by the proxy that the environment names."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from jaxmon.errors import JaxmonError
from jaxmon.http import client
from jaxmon.http.stream import Bounds, Stream, connected
from jaxmon.http.urls import credentials, is_loopback, place_of, without_user


class RouteError(JaxmonError, ValueError):
    """A proxy that cannot be used."""


@dataclass(frozen=True)
class Route:
    """
    Args:
        server: its address.
        proxy: address of what stands between, `None` for nothing.
        trust: certificates; `None` for the system's.
    """

    server: SplitResult
    proxy: SplitResult | None
    trust: ssl.SSLContext | None

    @classmethod
    def to(cls, server: SplitResult, trust: ssl.SSLContext | None) -> Route:
        """
        Return the way to *server* by HTTP_PROXY, HTTPS_PROXY and NO_PROXY. As in curl
        and Go, this host itself is never reached by a proxy.

        Raises:
            RouteError: the variable names no proxy, or one that is not spoken to in
                plain HTTP.
        """
        named = getproxies().get(server.scheme, "")
        if not named or is_loopback(server) or proxy_bypass(server.netloc):
            return cls(server, None, trust)
        try:
            proxy = urlsplit(named if "://" in named else f"http://{named}")
            usable = bool(proxy.hostname) and proxy.port != 0
        except ValueError:
            proxy, usable = urlsplit(""), False
        # Its password, and what it is asked for, would go there in the clear.
        if not usable or proxy.scheme != "http":
            what = "a proxy of another kind" if usable else "no proxy"
            msg = (
                f"{_variable(server.scheme)}={without_user(named)!r} names {what}; "
                "give http://HOST:PORT, or unset it"
            )
            raise RouteError(msg)
        return cls(server, proxy, trust)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What the proxy is sent and nobody else is to see."""
        if self.proxy is None or not self.proxy.password:
            return ()
        return unquote(self.proxy.password), credentials(self.proxy)

    @contextmanager
    def stream(self, bounds: Bounds) -> Iterator[Stream]:
        """
        Connect to the server, as far as the way there allows, for a block.

        Raises:
            OSError: it cannot be reached, or has no certificate that is trusted.
            http.client.HTTPException: what the proxy answers is no HTTP.
        """
        first = self.proxy or self.server
        with connected(place_of(first), bounds) as stream:
            host = self.server.hostname or ""
            if self.server.scheme == "https":
                if self.proxy is not None:
                    self._open_tunnel(stream)
                stream.encrypt(self.trust or ssl.create_default_context(), host)
            yield stream

    def send(
        self,
        stream: Stream,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> None:
        """Send a request for *target*, path and query, to the server."""
        if self.proxy is not None and self.server.scheme == "http":
            target = f"http://{self.server.netloc}{target}"
            headers = {**headers, **self._proxy_authorization()}
        host, port = place_of(self.server)
        headers = {"Host": self.server.netloc, **headers}
        client.send(
            stream, method, target, host=host, port=port, headers=headers, body=body
        )

    def _open_tunnel(self, stream: Stream) -> None:
        host, port = place_of(self.server)
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        headers = {"Host": target, **self._proxy_authorization()}
        client.send(stream, "CONNECT", target, host=host, headers=headers)
        response = client.receive_head(stream, "CONNECT")
        if response.status != HTTPStatus.OK:
            msg = f"Tunnel connection failed: {response.status} {response.reason}"
            raise OSError(msg)

    def _proxy_authorization(self) -> dict[str, str]:
        if self.proxy is None or not (self.proxy.username and self.proxy.password):
            return {}
        return {"Proxy-Authorization": f"Basic {credentials(self.proxy)}"}


def _variable(scheme: str) -> str:
    """Return the name of the variable that names the proxy for *scheme*."""
    lower = f"{scheme}_proxy"
    return lower if os.environ.get(lower) else lower.upper()
