"""Which handler serves a request, who may send it, and the handler of metrics."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from jaxmon.catalog import Metric
from jaxmon.exposition.encode import Format, encode, negotiate, preferences
from jaxmon.exposition.families import Family, Histogram
from jaxmon.host.http.messages import Request, Response, error_response, now
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    import socket
    from concurrent.futures import Future

    from jaxmon.host.http.sockets import Listener


_WORTH_COMPRESSING = 1024
_GZIP_CONTAINER = 31

_V = TypeVar("_V")


def metrics_handler(
    collect: Callable[[], Iterable[Family]],
    seconds: Histogram,
    *,
    failed: Callable[[Metric, Exception], None] | None = None,
) -> Callable[[Request], Response]:
    """
    Return the handler of a metrics endpoint. Each response calls *collect*, and
    observes in *seconds* how long it took; *failed* is called for a family that cannot
    be encoded, which alone is omitted.
    """

    def variant(request: Request) -> tuple[Format, bool]:
        gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        return negotiate(request.headers.get("accept", "")), gzip

    def make(wanted: tuple[Format, bool]) -> Response:
        started = now()
        fmt, gzip = wanted
        body = encode(collect(), fmt, failed=failed)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if gzip and len(body) > _WORTH_COMPRESSING:
            # Level 9 makes a response a sixth smaller in fifteen times the time.
            body = zlib.compress(body, 1, wbits=_GZIP_CONTAINER)
            headers["Content-Encoding"] = "gzip"
        seconds.observe(now() - started)
        return Response(body, content_type=fmt.value, headers=headers)

    return shared(make, variant)


def shared(
    make: Callable[[_V], Response], variant: Callable[[Request], _V]
) -> Callable[[Request], Response]:
    """
    Return a handler that makes one response for all waiting requests.

    It serves those that arrived before its making began, so no data is older than its
    request, and fast clients delay others by one response per turn. *make* returns that
    of a variant, *variant* which of a few a request wants; the last of each is kept.
    """
    made: dict[_V, tuple[float, Response]] = {}

    def handle(request: Request) -> Response:
        wanted = variant(request)
        began, response = made.get(wanted, (-inf, None))
        if response is None or began <= request.arrived:
            began = now()
            response = make(wanted)
            made[wanted] = began, response
        return response

    return handle


def accepts_gzip(accept: str) -> bool:
    """Return whether a client with this ``Accept-Encoding`` reads gzip."""
    wishes = {coding: q for coding, _, q in preferences(accept)}
    return wishes.get("gzip", wishes.get("*", 0.0)) > 0


# These, and names below them, cannot be registered: RFC 6761, 6762, 8375 and ICANN's
# .internal; .svc is what Kubernetes calls services.
_OURS = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
# The last label of an address, also in its odd forms (127.1, 0x7f.1).
_NUMBER = r"\d+|0x[0-9a-f]*"
# A browser sends some of these with each request, and no script can suppress all of
# them; no scraper sends any.
_BROWSER = (
    *("accept-language", "cookie", "origin", "referer", "sec-fetch-mode"),
    *("sec-fetch-site", "upgrade-insecure-requests"),
)
_PATTERN = r"(?i)\*|(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?"


class HostPolicy:
    """
    The host names a server accepts: addresses, names without a dot or under domains
    that cannot be registered, this machine's, and those *allowed*: ``*.example.com``,
    ``*`` for all. Thread-safe. Raises `ValueError`: one of them is invalid.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        names = [name.lower() for name in allowed]
        for name in names:
            if not re.fullmatch(_PATTERN, name.removesuffix(".")) or name == "*.":
                msg = (
                    f"{name!r} is not a valid host name; use one such as "
                    "gpu-7.example.com, *.example.com or *"
                )
                raise ValueError(msg)
        names = [name.removesuffix(".") for name in names]
        self._any = "*" in names
        self._names = {*names, os.uname().nodename.lower()}
        beneath = [name[1:] for name in names if name.startswith("*.")]
        self._suffixes = (*_OURS, *beneath)

    def admits(self, headers: Mapping[str, str], sock: socket.socket) -> bool:
        """
        Return whether a request is allowed. With a foreign name it is not over
        loopback, which only this machine's names resolve to, nor if a browser may have
        sent it. A remote scraper may use any name.
        """
        return self._is_ours(headers.get("host", "")) or not (
            is_loopback(sock)
            or any(name in headers for name in _BROWSER)
            or headers.get("user-agent", "").startswith("Mozilla/")
        )

    def _is_ours(self, host: str) -> bool:
        if self._any or host.startswith("["):
            return True
        name = host.partition(":")[0].lower().rstrip(".")
        head, dot, label = name.rpartition(".")
        return (
            not dot
            or name in self._names
            or name.endswith(self._suffixes)
            or (bool(head) and re.fullmatch(_NUMBER, label) is not None)
        )


def is_loopback(sock: socket.socket) -> bool:
    """Return whether the client of *sock* is on this host, as far as it shows."""
    try:
        address: str = sock.getsockname()[0]
    except OSError:  # closed meanwhile
        return True
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


Handler: TypeAlias = Callable[[Request], "Response | Future[Response]"]

PendingResponse: TypeAlias = "Generator[Future[Any], Any, Response]"
"""A response being generated: yields the futures that it waits for."""

_FOREIGN = (
    "the Host header is not a name of this machine; use the IP address, or allow "
    "the name (jaxmon exporter --allowed-host)"
)


class Router(NamedTuple):
    """
    The endpoints of a server: *routes* for TCP, *local_routes* for Unix sockets. A
    request may use the names *hosts* if nothing else guards the listener; *report* is
    called with the location and the failure of a handler.
    """

    routes: Mapping[str, Handler]
    local_routes: Mapping[str, Handler]
    hosts: HostPolicy
    report: Callable[[str, BaseException], None]

    def answer(
        self, request: Request, listener: Listener, sock: socket.socket
    ) -> PendingResponse:
        """Return the response to *request*, received on *sock*."""
        if not (listener.guarded or self.hosts.admits(request.headers, sock)):
            return error_response(HTTPStatus.FORBIDDEN, _FOREIGN)
        routes = self.local_routes if listener.local else self.routes
        trusted = listener.authenticated or is_loopback(sock)
        request = request._replace(trusted=trusted)
        if (gate := listener.gate) is None:
            return (yield from self._page(routes, request))
        refusal = gate.check(request)
        if refusal is not None and not isinstance(refusal, Response):
            refusal = yield refusal
        response = refusal or (yield from self._page(routes, request))
        return response._replace(headers={**gate.headers, **response.headers})

    def _page(self, routes: Mapping[str, Handler], request: Request) -> PendingResponse:
        handler = routes.get(request.path)
        if handler is None:
            pages = ", ".join(routes)
            return error_response(HTTPStatus.NOT_FOUND, f"available paths: {pages}")
        try:
            response = handler(request)
            if not isinstance(response, Response):
                response = yield response
        except GeneratorExit:  # the client is gone, or the server stops
            raise
        except BaseException as error:  # noqa: BLE001 - contained: costs one response
            self.report(f"server:{request.path}", error)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            text = "this response cannot be generated right now"
            return error_response(status, text)
        return response
