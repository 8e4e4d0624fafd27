"""
HTTP requests as events of serverless functions.

API gateways, load balancers and function URLs pass a dictionary with ``headers``, and
take one with ``statusCode``. Other platforms pass a request of a framework, which has
``headers``, and take a response with ``status_code``, or what Flask makes one of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jaxmon.indicators.tracing import CARRIED


_LOWEST, _HIGHEST, _DIGITS = 100, 599, 3


def headers_of(event: Any) -> Any:
    """Return the headers of *event*, a mapping, `None` if it is no HTTP request."""
    if isinstance(event, Mapping):
        found = event.get("headers")
        if not found:  # load balancers have one or the other
            found = event.get("multiValueHeaders") or found
    else:
        found = getattr(event, "headers", None)
    return found if callable(getattr(found, "items", None)) else None


def carried(headers: Any) -> Iterator[tuple[str, str]]:
    """Yield those of *headers* that carry the context of a trace, in lower case."""
    for name, value in headers.items():
        if isinstance(name, str) and (lower := name.lower()) in CARRIED:
            yield lower, ",".join(value) if isinstance(value, list) else str(value)


def status_of(response: Any) -> int | None:
    """Return the status of *response*, `None` if it does not say one."""
    if isinstance(response, Mapping):
        found = response.get("statusCode")
    elif isinstance(response, tuple):  # Flask's: body, status
        found = response[1] if len(response) > 1 else None
    else:
        found = getattr(response, "status_code", None)
    if isinstance(found, str) and len(found) == _DIGITS and found.isdecimal():
        found = int(found)
    return found if isinstance(found, int) and _LOWEST <= found <= _HIGHEST else None
