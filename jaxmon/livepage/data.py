"""The page's data as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from jaxmon.facts.host import Summary
from jaxmon.http.messages import Request, Response, error_response
from jaxmon.report.status.history import Charts


_NO_STORE = {"Cache-Control": "no-store"}


def json_response(document: Summary | Charts | Mapping[str, object]) -> Response:
    """Return *document*, which has no number that JSON does not have."""
    body = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return Response(
        body.encode("utf-8"), content_type="application/json", headers=_NO_STORE
    )


def history_page(
    charts: Callable[[str | None], Charts | None],
) -> Callable[[Request], Response]:
    """
    Return the handler of ``/api/history``: the samples of the host, or those of one
    process with ``?worker=``.
    """

    def handle(request: Request) -> Response:
        found = charts(request.query.get("worker"))
        if found is None:
            return error_response(HTTPStatus.NOT_FOUND, "no such process in 15 minutes")
        return json_response(found)

    return handle
