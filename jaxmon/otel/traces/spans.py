"""What spans are made of, and which is current. Loads no OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jaxmon.indicators.endings import now


if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link


def ids() -> tuple[str, str]:
    """
    Return the ids of the current trace and span in hexadecimal, empty if there are
    none. Takes a microsecond, less if the program has not loaded OpenTelemetry.
    """
    trace = sys.modules.get("opentelemetry.trace")
    # Another thread may be importing it.
    read = getattr(trace, "get_current_span", None)
    if read is None:
        return "", ""
    context = read().get_span_context()
    if not context.is_valid:
        return "", ""
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


_NS = 1_000_000_000


class Clock:
    """
    Converts times around its making.

    One for each trace: within it, spans nest exactly; the clocks drift apart by less
    than a millisecond in a second.
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


class CompilePhase(NamedTuple):
    """A phase of a compile; times on the performance counter."""

    name: str
    began: float
    ended: float


class Compiled(NamedTuple):
    """
    A compile that has ended; times on the performance counter.

    Attributes:
        function: label of the function.
        began: when the call that caused it began, or the compile itself.
        ended: when it ended.
        outcome: one of `catalog.OUTCOMES`.
        cause: why the function was recompiled; `None` if it was not.
        first: whether no function of this name has been compiled before.
        looked_up: whether the persistent cache was checked.
        phases: its phases.
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
    """
    On whose behalf a compile runs.

    Attributes:
        context: that of the first request, or of whatever was current.
        links: the other requests that wait for it.
        clock: converts times of the first.
    """

    context: Context
    links: Sequence[Link]
    clock: Clock


class CompileSpan(NamedTuple):
    """
    The span of a compile in progress.

    Attributes:
        payer: on whose behalf it runs.
        began: when the call that caused it began.
        first: whether no function of its name has been compiled before.
        phases: its phases so far.
    """

    payer: Payer
    began: float
    first: bool
    phases: list[CompilePhase]
