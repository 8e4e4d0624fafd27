"""Recompiles: counted by cause, and recorded with all differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.functions import UNKNOWN, active, by_value
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Part
from jaxmon.exposition.families import Family


if TYPE_CHECKING:
    from jaxmon.agent.recompiles.finder import CauseFinder


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
        self._finders: list[CauseFinder] = []

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
    def finder(self) -> CauseFinder | None:
        """Finds the causes; `None` if it cannot be loaded."""
        if not self._finders:
            try:
                from jaxmon.agent.recompiles.finder import CauseFinder  # noqa: PLC0415

                self._finders.append(CauseFinder(self._context, SITE))
            except Exception:  # noqa: BLE001 - contained: the compile itself still counts
                self._context.guard.failed(SITE, stays_on=True)
                return None
        return self._finders[0]
