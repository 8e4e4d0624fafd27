"""The sidecar's endpoints other than ``/metrics``."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from jaxmon.http.page import shared
from jaxmon.http.server import Request, Response


if TYPE_CHECKING:
    from concurrent.futures import Future

    from jaxmon.report.status.model import Summary

Page: TypeAlias = Callable[[Request], Response]
SlowPage: TypeAlias = Callable[[Request], "Response | Future[Response]"]

_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)
_NO_STORE = {"Cache-Control": "no-store"}


def landing_page() -> Page:
    """Return the handler of ``/``: one self-contained HTML page."""
    return lambda _request: _landing()


def summary_page(
    summary: Callable[[bool], Summary],
    *,
    admits: Callable[[Request], bool],
    refresh: Callable[[], Future[None] | None],
) -> SlowPage:
    """
    Return the handler of ``/api/summary``.

    Args:
        summary: returns it, with the findings or without them.
        admits: returns whether a request gets the findings.
        refresh: returns what is done when the findings are recent, `None` if they are.
    """

    def make(admitted: bool) -> Response:  # noqa: FBT001 - the variant
        import json  # noqa: PLC0415 - most hosts have no viewer

        body = json.dumps(summary(admitted), allow_nan=False, separators=(",", ":"))
        return Response(
            body.encode("utf-8"), content_type="application/json", headers=_NO_STORE
        )

    respond = shared(make, admits)

    def handle(request: Request) -> Response | Future[Response]:
        if not admits(request) or (refreshed := refresh()) is None:
            return respond(request)
        return _after(refreshed, lambda: respond(request))

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


def _after(first: Future[None], respond: Callable[[], Response]) -> Future[Response]:
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


@cache
def _landing() -> Response:
    html = Path(__file__).with_name("page.html").read_text("utf-8")
    return Response(
        html.encode("utf-8"),
        content_type="text/html; charset=utf-8",
        headers={
            "Content-Security-Policy": _policy(html),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        },
    )


def _policy(html: str) -> str:
    """Return a content security policy that allows only this page's own content."""
    import hashlib  # noqa: PLC0415 - most hosts have no viewer

    hashes: dict[str, list[str]] = {"style": [], "script": []}
    for kind, text in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest())
        hashes[kind].append(f"'sha256-{digest.decode()}'")
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src {' '.join(hashes['style'])}",
            f"script-src {' '.join(hashes['script'])}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )
