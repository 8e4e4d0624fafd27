"""The metrics endpoint: content negotiation, encoding, compression."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from math import inf
from typing import TypeVar

from jaxmon.catalog import Metric
from jaxmon.exposition.encode import Format, encode, negotiate, preferences
from jaxmon.exposition.families import Family, Histogram
from jaxmon.host.http.messages import Request, Response, now


_WORTH_COMPRESSING = 1024
_GZIP_CONTAINER = 31

_V = TypeVar("_V")


def metrics_handler(
    collect: Callable[[], Iterable[Family]],
    seconds: Histogram,
    *,
    failed: Callable[[Metric, Exception], None] | None = None,
) -> Callable[[Request], Response]:
    """
    Return the handler of a metrics endpoint.

    Args:
        collect: returns the families; called for each response.
        seconds: receives the duration of each; a response contains those of its
            predecessors.
        failed: called for a family that cannot be encoded; only that family is omitted.
    """

    def variant(request: Request) -> tuple[Format, bool]:
        headers = request.headers
        return (
            negotiate(headers.get("accept", "")),
            accepts_gzip(headers.get("accept-encoding", "")),
        )

    def make(wanted: tuple[Format, bool]) -> Response:
        started = now()
        fmt, gzip = wanted
        body = encode(collect(), fmt, failed=failed)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if gzip and len(body) > _WORTH_COMPRESSING:
            # Level 9 makes a response a sixth smaller in fifteen times the time.
            body = zlib.compress(body, 1, wbits=_GZIP_CONTAINER)
            headers["Content-Encoding"] = "gzip"
        seconds.observe(now() - started)
        return Response(body, content_type=fmt.content_type, headers=headers)

    return shared(make, variant)


def shared(
    make: Callable[[_V], Response], variant: Callable[[Request], _V]
) -> Callable[[Request], Response]:
    """
    Return a handler that generates one response for all waiting requests.

    A response serves a request only if its generation started after the request had
    arrived, so no client gets data older than its request. Clients that send requests
    faster than responses are generated delay others by one response per turn, however
    many there are.

    *make* returns the response of a variant, *variant* which of a few of them a request
    wants; the last response of each is kept.
    """
    made: dict[_V, tuple[float, Response]] = {}

    def handle(request: Request) -> Response:
        wanted = variant(request)
        began, response = made.get(wanted, (-inf, None))
        if response is None or began <= request.arrived:
            began = now()
            response = make(wanted)
            made[wanted] = began, response
        return response

    return handle


def accepts_gzip(accept: str) -> bool:
    """Return whether a client with this ``Accept-Encoding`` reads gzip."""
    wishes = {coding: q for coding, _, q in preferences(accept)}
    return wishes.get("gzip", wishes.get("*", 0.0)) > 0
