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
    from jaxmon_exporter.summary import Summary

Page: TypeAlias = Callable[[Request], Response]

_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)
_NO_STORE = {"Cache-Control": "no-store"}


def landing_page() -> Page:
    """Return the handler of ``/``: one self-contained HTML page."""
    return lambda _request: _landing()


def summary_page(summary: Callable[[], Summary]) -> Page:
    """Return the handler of ``/api/summary``."""

    def make(_: None) -> Response:
        import json  # noqa: PLC0415 - most hosts have no viewer

        body = json.dumps(summary(), allow_nan=False, separators=(",", ":"))
        return Response(
            body.encode("utf-8"), content_type="application/json", headers=_NO_STORE
        )

    return shared(make, lambda _request: None)


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
