"""Who records what the program says about itself: the agent, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jaxmon.exposition.families import Family
from jaxmon.indicators.depths import Depths
from jaxmon.indicators.fills import Fills
from jaxmon.indicators.loops import Loops
from jaxmon.indicators.routes import Routes
from jaxmon.indicators.timeline import Timeline


class Guard(Protocol):
    """Contains what goes wrong in our own code."""

    def on(self, site: str) -> bool:
        """Tell whether *site* may still run."""
        ...

    def failed(
        self, site: str, *, stays_on: bool = False, theirs: bool = False
    ) -> None:
        """
        Take note of the exception being handled at *site*, which may be switched off
        by it unless it *stays_on*. Raises what is the program's own; *theirs*: code of
        the program was called on purpose.
        """
        ...


class Indicators:
    """
    The figures of one agent.

    Args:
        limit: most values of each label that the program chooses.
        guard: what contains our failures.
        on_error: told of each exception that leaves a request, an activity or the
            source of a loop; must not raise.
    """

    def __init__(
        self, limit: int, guard: Guard, *, on_error: Callable[[BaseException], None]
    ) -> None:
        self.routes = Routes(limit)
        self.loops = Loops(limit)
        self.timeline = Timeline(limit)
        self.fills = Fills(self.routes.labels)
        self.depths = Depths(limit, guard)
        self.guard = guard
        self.on_error = on_error

    def collect(self) -> list[Family]:
        """Return every family of what the program says about itself. Any thread."""
        return [
            *self.routes.collect(),
            *self.loops.collect(),
            *self.timeline.collect(),
            *self.fills.collect(),
            *self.depths.collect(),
        ]

    def overflow(self) -> dict[str, int]:
        """Return by label how often a value did not fit."""
        labels = {
            "route": self.routes.labels,
            "loop": self.loops.labels,
            "item": self.loops.item_labels,
            "activity": self.timeline.labels,
            "queue": self.depths.labels,
        }
        return {name: one.overflow for name, one in labels.items()}


class _Current:
    recorder: Indicators | None = None


_current = _Current()


def recorder() -> Indicators | None:
    """Return who records now."""
    return _current.recorder


def report(error: BaseException) -> None:
    """Tell the agent of an exception that left what is marked."""
    if _current.recorder is not None:
        _current.recorder.on_error(error)


def attach(indicators: Indicators) -> None:
    """Let *indicators* record from now on."""
    _current.recorder = indicators


def detach(indicators: Indicators) -> None:
    """Let nobody record, if it is *indicators* that does."""
    if _current.recorder is indicators:
        _current.recorder = None
