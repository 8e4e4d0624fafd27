"""
Debug endpoints, on the Unix socket only.

| endpoint | content |
|---|---|
| ``/debug/overview`` | everything below but environment and events |
| ``/debug/functions`` | calls, compiles, programs and times of each function |
| ``/debug/memory`` | devices, source lines that hold memory, transfers |
| ``/debug/environment`` | interpreter, versions, flags, installed packages |
| ``/debug/events`` | the event log; ``?kind=recompile``, ``?since=NUMBER`` |

``/debug/profile`` is in `jaxmon.agent.reports.profile`.
"""

from __future__ import annotations

from http import HTTPStatus

from jaxmon.agent.events import KINDS, EventLog
from jaxmon.agent.reports.overview import Overview
from jaxmon.facts.record import dumps, last
from jaxmon.http.messages import Request, Response, error_response


_JSON = "application/json"
_MOST_BYTES = 4 << 20


def page(name: str, request: Request, overview: Overview, log: EventLog) -> Response:
    """Return the page called *name*."""
    if name == "events":
        return _events(log, request)
    read = {
        "overview": overview.whole,
        "functions": overview.functions,
        "memory": overview.memory,
        "environment": overview.environment,
    }[name]
    return Response(dumps(read()).encode(), _JSON)


def _events(log: EventLog, request: Request) -> Response:
    """Return the requested events, oldest first; only the latest if not all fit."""
    kind, since = request.query.get("kind"), request.query.get("since", "0")
    if kind is not None and kind not in KINDS:
        message = f"kind must be one of {', '.join(KINDS)}"
        return error_response(HTTPStatus.BAD_REQUEST, message)
    if not (since.isascii() and since.isdigit() and len(since) <= len(str(1 << 63))):
        message = "since must be the number of the last event seen"
        return error_response(HTTPStatus.BAD_REQUEST, message)
    found = log.since(int(since), kind)
    texts, left_out = last((event._asdict() for event in found), size=_MOST_BYTES)
    body = f'{{"events":[{",".join(texts)}],"left_out":{left_out}}}'
    return Response(body.encode(), _JSON)
