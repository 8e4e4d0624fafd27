"""What a server answers to a request: who may ask, and which page it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import TypeAlias

from jaxmon.http.hosts import Hosts
from jaxmon.http.listeners import Gate
from jaxmon.http.lobby import Guest
from jaxmon.http.messages import Request, Response, error_response


Handler: TypeAlias = Callable[[Request], "Response | Future[Response]"]

_FOREIGN = (
    "the Host header has a name that is not this machine's; ask by address, or allow "
    "the name (jaxmon exporter --allowed-host)"
)


class Answers:
    """
    The pages of a server, on its event loop.

    Args:
        routes: page by path, for TCP.
        local_routes: for Unix sockets, in place of *routes*.
        hosts: names that a request may use where nothing else guards the listener.
        seconds: that a page may take which is made elsewhere.
        report: told of a failure, with where it was.
    """

    def __init__(
        self,
        routes: Mapping[str, Handler],
        local_routes: Mapping[str, Handler],
        *,
        hosts: Hosts,
        seconds: float,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self.routes = dict(routes)
        self.local_routes = dict(local_routes)
        self._hosts = hosts
        self._seconds = seconds
        self._report = report

    async def to(self, guest: Guest, request: Request) -> Response:
        """Return the response to *request*, whatever happens."""
        listener = guest.listener
        if not (listener.guarded or self._hosts.admits(request.headers, guest.sock)):
            return error_response(HTTPStatus.FORBIDDEN, _FOREIGN)
        routes = self.local_routes if listener.local else self.routes
        if (gate := listener.gate) is None:
            return await self._page(routes, request)
        if not await _admitted(gate, request):
            response = error_response(HTTPStatus.UNAUTHORIZED, "name and password")
        else:
            response = await self._page(routes, request)
        return response._replace(headers={**gate.headers, **response.headers})

    async def _page(self, routes: Mapping[str, Handler], request: Request) -> Response:
        import asyncio  # noqa: PLC0415 - see start()

        handler = routes.get(request.path)
        if handler is None:
            pages = ", ".join(routes)
            return error_response(HTTPStatus.NOT_FOUND, f"the pages here are {pages}")
        try:
            response = handler(request)
            if isinstance(response, Future):
                async with asyncio.timeout(self._seconds):
                    response = await asyncio.wrap_future(response)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                raise  # the server stops
            self._report(f"server:{request.path}", error)
            return error_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this page cannot be made right now"
            )
        return response


async def _admitted(gate: Gate, request: Request) -> bool:
    import asyncio  # noqa: PLC0415 - see start()

    found = gate.admits(request.path, request.headers.get("authorization"))
    return await asyncio.wrap_future(found) if isinstance(found, Future) else found
