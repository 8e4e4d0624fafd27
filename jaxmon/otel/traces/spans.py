"""
What spans are made of, which is current, and how they and their attributes are called.

Loads no OpenTelemetry. Names of HTTP, RPC and code are its semantic conventions, 1.45,
stable; what they do not have begins with ``jaxmon.`` and has the name of the label of
our metrics. See decision 44.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from time import time_ns
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
)

from jaxmon.indicators.endings import now
from jaxmon.indicators.recorder import FailureGuard, RequestOrigin


if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link


SCOPE = "jaxmon"
SITE = "traces"

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


_NS = 1_000_000_000


class Clock:
    """
    Converts times around its making, one for each trace: spans in it nest exactly; the
    clocks drift apart by less than a millisecond in a second.
    """

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = time_ns() - round(now() * _NS)

    def unix_ns(self, moment: float) -> int:
        """Return *moment*, on the performance counter, in nanoseconds since 1970."""
        return self._offset + round(moment * _NS)


MOST = 32
"""Transfers of one request or step that have spans; those after these have none."""


class Child(NamedTuple):
    """What has ended, on the performance counter; *name* is low in cardinality."""

    name: str
    began: float
    ended: float
    attributes: Mapping[str, str | int | float]
    failed: bool = False


class Place(Protocol):
    """Where something happens: in a request, a step, or a span of the application."""

    def add(self, child: Child) -> None:
        """Make *child* a span here, unless there are too many. May raise."""


class Places(Protocol):
    """Knows where the program is."""

    def place(self) -> Place | None:
        """Return where this thread is, `None` without a trace. Raises nothing."""


class Traces(Protocol):
    """What has a tracer while traces are on."""

    @property
    def tracer(self) -> Places | None:
        """The tracer."""


class CompilePhase(NamedTuple):
    """A phase of a compile; times on the performance counter."""

    name: str
    began: float
    ended: float


class Compiled(NamedTuple):
    """
    A compile that has ended, on the performance counter; it *began* with the call that
    caused it. It is *first* if no function of this name was compiled before, and
    *looked_up* if the persistent cache was checked.
    """

    function: str
    began: float
    ended: float
    outcome: str
    cause: str | None
    first: bool
    looked_up: bool
    phases: Sequence[CompilePhase]


class Payer(NamedTuple):
    """What a compile is for: context, clock, *links* to other requests that wait."""

    context: Context
    links: Sequence[Link]
    clock: Clock


class CompileSpan(NamedTuple):
    """The span of a compile in progress, for its payer, since the call *began*."""

    payer: Payer
    began: float
    first: bool
    phases: list[CompilePhase]


class Guarded(Protocol):
    """What has a guard, which is notified of failures."""

    @property
    def guard(self) -> FailureGuard:
        """The guard."""


P = ParamSpec("P")
S = TypeVar("S", bound=Guarded)
R = TypeVar("R")


def contained(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R | None]:
    """Return *method* so that it returns `None` if it fails: the program continues."""

    @wraps(method)
    def call(traced: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(traced, *args, **kwargs)
        except Exception:  # noqa: BLE001 - contained: the program continues
            traced.guard.failed(SITE)
            return None

    return call
