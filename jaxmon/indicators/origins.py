"""Where a server's requests come from, for their spans."""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon.indicators.recorder import recorder
from jaxmon.indicators.routes import Outcome
from jaxmon.indicators.tracing import CARRIED, Origin


SERVER_ERROR = 500
"""The lowest status of HTTP that is the server's fault."""

_CLIENT_ERROR = 400


def origin_of(
    route: str, system: str, method: str, headers: Iterable[tuple[str, str]]
) -> Origin | None:
    """
    Return the origin of a request to *route*, `None` without traces.

    Args:
        route: its label; the first of a process may turn traces on.
        system: ``"http"``, ``"grpc"``, or ``"function"``.
        method: of the request.
        headers: all of them, names in lower case; read only with traces.
    """
    indicators = recorder()
    if indicators is None:
        return None
    if indicators.tracer is None:
        if indicators.routes.any():
            return None
        indicators.routes.of(route)
        if indicators.tracer is None:
            return None
    carried = {name: value for name, value in headers if name in CARRIED}
    return Origin(system, method, carried)


def http_status(status: object) -> int:
    """
    Return the number in *status*, as applications give it; 0 if there is none. What is
    valid is the server's to decide.
    """
    if isinstance(status, bytes):
        status = status.decode("latin-1")
    if isinstance(status, str):
        status = status[:3]
        return int(status) if status.isascii() and status.isdigit() else 0
    return int(status) if isinstance(status, int) else 0


def http_outcome(status: int) -> Outcome:
    """Return the outcome of a request that is responded to with *status*."""
    if status >= SERVER_ERROR:
        return "error"
    return "client_error" if status >= _CLIENT_ERROR else "success"
