"""Adapters: metric families from other packages, as parts of an agent."""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Explanation, Part
from jaxmon.exposition.families import Family
from jaxmon.indicators import recorder
from jaxmon.indicators.figures import Indicators
from jaxmon.resources.container import ContainerFamilies
from jaxmon.resources.process import ProcessFamilies


class Markers(Part):
    """The program's own markers. The last part to attach, the first to detach."""

    name = "indicators"

    def __init__(self, figures: Indicators) -> None:
        self.figures = figures

    def attach(self, hooks: Hooks) -> None:
        """Connect the markers to the statistics."""
        del hooks
        recorder.attach(self.figures)

    def collect(self) -> Iterable[Family]:
        """Return requests, steps and other markers."""
        return self.figures.collect()

    def explain(self) -> Explanation:
        """Return requests by route, steps by loop, and queues."""
        figures = self.figures
        return Explanation(
            {
                "requests": figures.explain_requests,
                "steps": figures.loops.explain,
                "queues": figures.queues.explain,
            }
        )

    def stop(self) -> None:
        """Disconnect the markers."""
        self.abandon()

    def abandon(self) -> None:
        """Disconnect the markers."""
        recorder.detach(self.figures)


class Process(Part):
    """Metrics of the process."""

    name = "process"

    def __init__(self) -> None:
        self._figures = ProcessFamilies()

    def collect(self) -> Iterable[Family]:
        """Return the current values."""
        return self._figures.collect()


class Container(Part):
    """Metrics of the process's container."""

    name = "container"

    def __init__(self) -> None:
        self._figures = ContainerFamilies()

    def collect(self) -> Iterable[Family]:
        """Return the current values."""
        return self._figures.collect()
