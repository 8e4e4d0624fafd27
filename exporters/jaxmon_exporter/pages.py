"""The sidecar's endpoints besides ``/metrics``; `screens.livepage` has the page."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from jaxmon.host.http.messages import error_response
from jaxmon.host.http.page import shared
from jaxmon.host.http.server import Request, Response


if TYPE_CHECKING:
    from concurrent.futures import Future

    from jaxmon.facts.charts import ShownCharts
    from jaxmon.facts.status import Summary

Page: TypeAlias = Callable[[Request], Response]
SlowPage: TypeAlias = Callable[[Request], "Response | Future[Response]"]

_NO_STORE = {"Cache-Control": "no-store"}


def summary_page(
    summary: Callable[[bool, str | None], Summary | None],
    *,
    admits: Callable[[Request], bool],
    refresh: Callable[[], Future[None] | None],
) -> SlowPage:
    """
    Return the handler of ``/api/summary``, and of that of one process, ``?worker=3``.

    Args:
        summary: returns it, with the findings or without them, of all processes or of
            one; `None` if that one is unknown.
        admits: returns whether a request gets the findings.
        refresh: returns what is done when the findings are recent, `None` if they are.
    """

    def make(admitted: bool) -> Response:  # noqa: FBT001 - the variant
        return _json(summary(admitted, None))

    every = shared(make, admits)

    def respond(request: Request) -> Response:
        worker = request.query.get("worker")
        if worker is None:
            return every(request)
        # Not shared: what clients ask for is not bounded, and few ask.
        return _json(summary(admits(request), worker))

    def handle(request: Request) -> Response | Future[Response]:
        if not admits(request) or (refreshed := refresh()) is None:
            return respond(request)
        return after(refreshed, lambda: respond(request))

    return handle


def _json(found: Summary | None) -> Response:
    from jaxmon.screens.livepage import json_response  # noqa: PLC0415 - few look

    if found is None:
        return error_response(HTTPStatus.NOT_FOUND, "no such process")
    return json_response(found)


def landing_page(request: Request) -> Response:
    """Respond to ``/``: one self-contained HTML page."""
    from jaxmon.screens import livepage  # noqa: PLC0415 - most hosts have no viewer

    return livepage.landing_page(request)


def history_page(charts: Callable[[str | None], ShownCharts | None]) -> Page:
    """Return the handler of ``/api/history``."""

    def handle(request: Request) -> Response:
        from jaxmon.screens import livepage  # noqa: PLC0415 - most hosts have no viewer

        return livepage.history_page(charts)(request)

    return handle


def health_page() -> Page:
    """
    Return the handler of ``/-/healthy``: this process serves requests.

    It deliberately ignores collectors: a hung driver would hang the replacement too,
    and a restart would lose the evidence.
    """
    response = Response(b"healthy\n", headers=_NO_STORE)
    return lambda _request: response


def ready_page(ready: Callable[[], bool]) -> Page:
    """Return the handler of ``/-/ready``: 200 once every collector was polled."""

    def handle(request: Request) -> Response:
        del request
        if ready():
            return Response(b"ready\n", headers=_NO_STORE)
        return Response(b"waiting for the first poll\n", status=503, headers=_NO_STORE)

    return handle


def after(first: Future[None], respond: Callable[[], Response]) -> Future[Response]:
    """Return the response to give once *first* is done."""
    from concurrent.futures import Future  # noqa: PLC0415 - see above

    given: Future[Response] = Future()

    def give(_: Future[None]) -> None:
        if given.set_running_or_notify_cancel():  # else the client is gone
            try:
                given.set_result(respond())
            except BaseException as error:  # noqa: BLE001 - the server contains it
                given.set_exception(error)

    first.add_done_callback(give)
    return given
