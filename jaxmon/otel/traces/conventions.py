"""
Names of spans and attributes.

Those of HTTP, RPC and code are OpenTelemetry's semantic conventions, 1.45, stable; what
they do not have begins with ``jaxmon.`` and has the name of the label of our metrics.
See decision 44.
"""

from __future__ import annotations

from typing import Any

from jaxmon.indicators.tracing import RequestOrigin


SCOPE = "jaxmon"

COMPILE = "jax.compile"
PHASES = {
    "trace": "jax.trace",
    "lower": "jax.lower",
    "backend_compile": "jax.backend_compile",
    "cache_retrieval": "jax.cache_retrieval",
}
"""Names of the spans of a compile's phases, by the label ``phase``."""

STEP_NAME = "step"
DATA_WAIT = "data wait"
TRANSFER = "transfer"
SYNC = "sync"
CHECKPOINT = "checkpoint"
PROFILE_NAME = "profile"

ROUTE = "jaxmon.route"
START = "jaxmon.start"
OUTCOME = "jaxmon.outcome"
FUNCTION = "jaxmon.function"
CAUSE = "jaxmon.cause"
CACHE = "jaxmon.cache"
FIRST_CALL = "jaxmon.first_call"
LOOP = "jaxmon.loop"
STEP = "jaxmon.step"
HOW = "jaxmon.how"
BYTES = "jaxmon.bytes"
PROFILE = "jaxmon.profile"
OPERATION = "jaxmon.operation"
BLOCKED = "jaxmon.blocked_seconds"
FILE = "code.file.path"
LINE = "code.line.number"

_GRPC_STATUS = "rpc.response.status_code"


def request_name(route: str, origin: RequestOrigin | None) -> str:
    """Return the name of a request's span; low in cardinality, as its route is."""
    if origin is None or origin.system == "function":
        return route
    if origin.system == "grpc":
        return route.removeprefix("/")
    # Without a template the name is the method alone.
    return origin.method if route == "unmatched" else f"{origin.method} {route}"


def request_attributes(route: str, origin: RequestOrigin | None) -> dict[str, Any]:
    """Return what is known of a request when it begins."""
    found: dict[str, Any] = {ROUTE: route}
    if origin is None or origin.system == "function":
        return found
    if origin.system == "grpc":
        method = route.removeprefix("/")
        return {**found, "rpc.system.name": "grpc", "rpc.method": method}
    found["http.request.method"] = origin.method
    if route != "unmatched":
        found["http.route"] = route
    return found


def response_attributes(origin: RequestOrigin | None) -> dict[str, Any]:
    """Return what is known of a response."""
    if origin is None or origin.status is None:
        return {}
    name = _GRPC_STATUS if origin.system == "grpc" else "http.response.status_code"
    return {name: origin.status}
