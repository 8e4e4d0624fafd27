"""What happens within a request or step, to be a span below it. No OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


MOST = 32
"""Transfers of one request or step that have spans; those after these have none."""


class Child(NamedTuple):
    """
    Something that has ended; times on the performance counter.

    Attributes:
        name: of its span; low in cardinality.
        began: when it began.
        ended: when it ended.
        attributes: of its span.
        failed: whether it failed.
    """

    name: str
    began: float
    ended: float
    attributes: Mapping[str, str | int | float]
    failed: bool = False


class Place(Protocol):
    """Where something happens: in a request, a step, or a span of the application."""

    def add(self, child: Child) -> None:
        """Make *child* a span here, unless there are too many. May raise."""
        ...


class Places(Protocol):
    """Knows where the program is."""

    def place(self) -> Place | None:
        """Return where this thread is, `None` without a trace. Raises nothing."""
        ...


class Traces(Protocol):
    """What has a tracer while traces are on."""

    @property
    def tracer(self) -> Places | None:
        """The tracer."""
        ...
