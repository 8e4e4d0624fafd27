"""
The live page: one document, whose data is the status and the history of a host or of
one process.

Sidecar and agents serve the same one. HTML, style and scripts are separate files, sent
as one response without a reference to anything else; charts are drawn by uPlot, which
is in `uplot/` with its licence.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path

from jaxmon.facts.charts import ShownCharts
from jaxmon.facts.record import dumps, encoded
from jaxmon.facts.status import Summary
from jaxmon.host.formats.layout import UNITS
from jaxmon.host.http.messages import Request, Response, error_response
from jaxmon.host.http.routes import accepts_gzip
from jaxmon.screens.html.elements import BASE, source_hash


_NO_STORE = {"Cache-Control": "no-store"}


def json_response(document: Summary | ShownCharts | Mapping[str, object]) -> Response:
    """Return *document* as JSON."""
    body = dumps(encoded(document)).encode()
    return Response(body, "application/json", headers=_NO_STORE)


def history_page(
    charts: Callable[[str | None], ShownCharts | None],
) -> Callable[[Request], Response]:
    """Return the handler of ``/api/history``: of the host, or one ``?worker=``."""

    def handle(request: Request) -> Response:
        found = charts(request.query.get("worker"))
        if found is None:
            return error_response(HTTPStatus.NOT_FOUND, "no such process in 15 minutes")
        return json_response(found)

    return handle


_HERE = Path(__file__).parent
# In the order in which they need each other.
_STYLES = (_HERE / "uplot/uPlot.min.css", BASE, _HERE / "page.css")
_SCRIPTS = tuple(
    _HERE / name
    for name in (
        "uplot/uPlot.iife.min.js",
        "format.js",
        "table.js",
        "findings.js",
        "charts.js",
        "sections.js",
        "page.js",
    )
)


def landing_page(request: Request) -> Response:
    """Return the page; the same for everyone, because it has no data."""
    return _response(zipped=accepts_gzip(request.headers.get("accept-encoding", "")))


@cache
def _response(*, zipped: bool) -> Response:
    style = _joined(_STYLES)
    script = _joined(_SCRIPTS).replace("{{units}}", UNITS.replace("/", r"\/"))
    html = (_HERE / "page.html").read_text("utf-8")
    html = html.replace("{{style}}", style).replace("{{script}}", script)
    body = html.encode("utf-8")
    headers = {
        "Content-Security-Policy": _policy(style, script),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
    }
    if zipped:
        body = gzip.compress(body, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, content_type="text/html; charset=utf-8", headers=headers)


def _joined(paths: tuple[Path, ...]) -> str:
    return "\n".join([path.read_text("utf-8") for path in paths])


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {source_hash(style)}; "
        f"script-src {source_hash(script)}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
