"""What makes the spans of requests, as markers see it. Loads no OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Origin:
    """
    What a server knows of a request, for its span.

    Attributes:
        system: ``"http"`` or ``"grpc"``.
        method: ``GET``, say; the empty string for gRPC.
        headers: those that carry the context of a trace, names in lower case.
        status: status code of the response, once it is known.
    """

    __slots__ = ("headers", "method", "status", "system")

    def __init__(self, system: str, method: str, headers: Mapping[str, str]) -> None:
        self.system = system
        self.method = method
        self.headers = headers
        self.status: int | None = None


class RequestTrace(Protocol):
    """The span of one request. No method raises."""

    def enter(self) -> None:
        """Make the span current in this context."""
        ...

    def leave(self) -> None:
        """Make current what was current before."""
        ...

    def describe(self, outcome: str, start: str) -> None:
        """Say on the span how the request is about to end."""
        ...

    def end(
        self, ended: float, outcome: str, start: str, error: BaseException | None
    ) -> str | None:
        """
        End the span at *ended*, on the performance counter; return the id of its trace
        if that is kept.
        """
        ...


class Tracer(Protocol):
    """Makes spans."""

    def request(
        self, route: str, origin: Origin | None, started: float
    ) -> RequestTrace | None:
        """
        Return the span of a request to *route* that has *started* then, on the
        performance counter; `None` if its trace is not recorded. Raises nothing.
        """
        ...


CARRIED = ("traceparent", "tracestate")
"""Headers of W3C Trace Context; baggage is the application's."""
