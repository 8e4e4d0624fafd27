"""Families from outside the agent's packages, as parts of an agent."""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Part
from jaxmon.exposition.families import Family
from jaxmon.indicators import recorder
from jaxmon.indicators.figures import Indicators
from jaxmon.resources.container import ContainerFamilies
from jaxmon.resources.process import ProcessFamilies


class Marks(Part):
    """What the program says about itself; the last to attach, the first to leave."""

    name = "indicators"

    def __init__(self, figures: Indicators) -> None:
        self.figures = figures

    def attach(self, hooks: Hooks) -> None:
        """Let marks write to the figures."""
        del hooks
        recorder.attach(self.figures)

    def collect(self) -> Iterable[Family]:
        """Return requests, steps and the like."""
        return self.figures.collect()

    def stop(self) -> None:
        """Let marks write nowhere."""
        self.abandon()

    def abandon(self) -> None:
        """Let marks write nowhere."""
        recorder.detach(self.figures)


class Process(Part):
    """Figures of the process."""

    name = "process"

    def __init__(self) -> None:
        self._figures = ProcessFamilies()

    def collect(self) -> Iterable[Family]:
        """Return them as they are now."""
        return self._figures.collect()


class Container(Part):
    """Figures of the container that it runs in."""

    name = "container"

    def __init__(self) -> None:
        self._figures = ContainerFamilies()

    def collect(self) -> Iterable[Family]:
        """Return them as they are now."""
        return self._figures.collect()
