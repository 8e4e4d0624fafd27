"""Where a server's requests come from, for their spans."""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon.indicators.recorder import recorder
from jaxmon.indicators.tracing import CARRIED, Origin


def origin_of(
    route: str, system: str, method: str, headers: Iterable[tuple[str, str]]
) -> Origin | None:
    """
    Return the origin of a request to *route*, `None` without traces.

    Args:
        route: its label; the first of a process may turn traces on.
        system: ``"http"`` or ``"grpc"``.
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
