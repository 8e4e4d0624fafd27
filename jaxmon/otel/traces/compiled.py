"""What spans of compiles are made of. Loads no OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link

    from jaxmon.otel.traces.clock import Clock


class Phase(NamedTuple):
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
    phases: Sequence[Phase]


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
    phases: list[Phase]
