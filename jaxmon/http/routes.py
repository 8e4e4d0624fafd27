"""Routing: which handler serves a request, and who may send it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxmon.http.hosts import HostPolicy, is_loopback
from jaxmon.http.messages import Request, Response, error_response


if TYPE_CHECKING:
    import socket
    from concurrent.futures import Future

    from jaxmon.http.listeners import Listener

Handler: TypeAlias = Callable[[Request], "Response | Future[Response]"]

PendingResponse: TypeAlias = "Generator[Future[Any], Any, Response]"
"""A response being generated: yields the futures that it waits for."""

_FOREIGN = (
    "the Host header is not a name of this machine; use the IP address, or allow "
    "the name (jaxmon exporter --allowed-host)"
)


class Router:
    """
    The endpoints of a server.

    Args:
        routes: handler by path, for TCP.
        local_routes: for Unix sockets, in place of *routes*.
        hosts: names that a request may use if nothing else guards the listener.
        report: called with the failure of a handler, and its location.
    """

    def __init__(
        self,
        routes: Mapping[str, Handler],
        local_routes: Mapping[str, Handler],
        *,
        hosts: HostPolicy,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self._routes = routes
        self._local_routes = local_routes
        self._hosts = hosts
        self._report = report

    def answer(
        self, request: Request, listener: Listener, sock: socket.socket
    ) -> PendingResponse:
        """Return the response to *request*, received on *sock*."""
        if not (listener.guarded or self._hosts.admits(request.headers, sock)):
            return error_response(HTTPStatus.FORBIDDEN, _FOREIGN)
        routes = self._local_routes if listener.local else self._routes
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
            self._report(f"server:{request.path}", error)
            return error_response(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "this response cannot be generated right now",
            )
        return response
