"""Recompiles: counted by cause, and recorded with all differences."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.families import active, by_value
from jaxmon.agent.functions import UNKNOWN, Function
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Part
from jaxmon.exposition.families import Family


if TYPE_CHECKING:
    from jaxmon.agent.jaxlink.transformed import Transformed
    from jaxmon.agent.recompiles.comparison import Comparison, PendingCause


SITE = "causes"


class Recompiles(Part):
    """
    Determines recompile causes; ``unknown`` if it cannot.

    What compares compiles is loaded at the first one: many programs import JAX and
    never compile.
    """

    name = "recompiles"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._table = context.table
        # Two threads that compile first may both make one; all use the first of them.
        self._comparisons: list[Comparison] = []

    def attach(self, hooks: Hooks) -> None:
        """Observe through the hooks for misses and compiles."""
        hooks.derive(SITE, "compiles", "misses")

    def collect(self) -> list[Family]:
        """
        Return the recompiles of each function.

        User functions have every cause from the start, at 0, so that a rate covers the
        first recompile. JAX's own functions recompile by design and have only the
        causes that occurred.
        """
        return [
            by_value(
                catalog.RECOMPILES,
                (
                    (
                        one,
                        () if one.internal or one.name == UNKNOWN else catalog.CAUSES,
                        one.recompiles,
                    )
                    for one in active(self._table)
                ),
            )
        ]

    @property
    def comparison(self) -> Comparison:
        """Compares compiles."""
        if not self._comparisons:
            from jaxmon.agent.recompiles.comparison import Comparison  # noqa: PLC0415

            self._comparisons.append(Comparison(self._context, SITE))
        return self._comparisons[0]

    def find_cause(
        self, function: Function, frame: FrameType, below: FrameType
    ) -> tuple[Jitted, PendingCause] | None:
        """
        Return the jitted function that is compiled for the call of *function* served by
        *frame*, and why; `None` if unknown. See `Comparison.find_cause`.
        """
        try:
            comparison = self.comparison
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._context.guard.failed(SITE, stays_on=True)
            return None
        return comparison.find_cause(function, frame, below)

    def transformed(self, frame: FrameType) -> Transformed | None:
        """
        Return the transformed function whose program is compiled, called by *frame*,
        `None` if something else is.
        """
        try:
            comparison = self.comparison
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._context.guard.failed(SITE, stays_on=True)
            return None
        return comparison.transformed(frame)

    def owner_of(self, found: Transformed) -> Function | None:
        """Return the function whose program is compiled outside of its call."""
        return self.comparison.owner_of(found)

    def find_transformed_cause(
        self, function: Function, found: Transformed, frame: FrameType
    ) -> PendingCause | None:
        """
        Return why *found*, a program of *function*, is compiled; see
        `Comparison.find_transformed_cause`.
        """
        return self.comparison.find_transformed_cause(function, found, frame)

    def record(
        self, function: Function, pending: PendingCause, *, seconds: float
    ) -> str | None:
        """
        Record a compile that a call of *function* waited *seconds* for, with what
        `find_cause` returned. Return the cause, `None` if it is no recompile.
        """
        return self.comparison.record(function, pending, seconds=seconds)
