"""What users hold: an agent, whether it runs or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jaxmon.agent.context import Context
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.guard import Guard
from jaxmon.exposition.families import Family
from jaxmon.settings import Settings


if TYPE_CHECKING:
    from jaxmon.agent.checks.determinism import Determinism
    from jaxmon.agent.jaxlink.hooks import Hooks
    from jaxmon.agent.memory.profile import MemoryProfile
    from jaxmon.agent.parts import Parts
    from jaxmon.agent.reports.overview import Overview
    from jaxmon.agent.reports.profile import Profiler
    from jaxmon.indicators.figures import Indicators
    from jaxmon.resources.container import ContainerFamilies
    from jaxmon.resources.process import ProcessFamilies


class Agent:
    """
    What `jaxmon.instrument` returns.

    As it is here it is switched off: it observes nothing, and everything that it can be
    asked has an answer, without JAX. One that runs is a `RunningAgent`.

    Attributes:
        settings: the settings in force.
        url: where the metrics are, `None` when no TCP port is open.
        running: whether it observes.
    """

    if TYPE_CHECKING:  # what only one that runs has; for our own tests and tools
        _container: ContainerFamilies
        _hooks: Hooks
        _indicators: Indicators
        _overview: Overview
        _parts: Parts
        _process: ProcessFamilies
        _profiler: Profiler

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.url: str | None = None
        self.running = False
        self._guard = Guard()
        self._table = FunctionTable(settings.max_functions)
        self._context = Context(None, settings, self._guard, self._table)

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<jaxmon.Agent {state} url={self.url!r} socket={self.socket!r}>"

    @property
    def socket(self) -> str | None:
        """Path of the Unix socket, `None` when there is none."""
        return None

    @property
    def determinism(self) -> Determinism:
        """Where the outcomes of checks are kept."""
        from jaxmon.agent.checks.determinism import Determinism  # noqa: PLC0415

        return Determinism(self._context)

    def start(self) -> None:
        """Attach the hooks and serve. Nothing that goes wrong in serving is raised."""

    def stop(self) -> None:
        """
        Detach the hooks, stop threads, close sockets and unlink their files.

        Harmless when repeated.
        """

    def abandon(self) -> None:
        """Leave everything to the parent process; called in a forked child."""

    def refresh(self) -> None:
        """
        Look at device memory, live arrays and who holds them now, not at the next
        interval.

        Costs about 2 µs for each live array. What fails is counted, not raised.
        """

    def memory(self) -> MemoryProfile:
        """
        Return live memory by the source line of the program that allocated it.

        Two of them tell what grew in between: ``later.growth_since(earlier)``. Costs
        about 1 µs for each live array, with the interpreter lock held; allocates
        nothing on a device. Empty where the agent is switched off.

        Raises:
            ProfileError: JAX's memory profile cannot be read.
        """
        from jaxmon.agent.memory.profile import MemoryProfile  # noqa: PLC0415

        return MemoryProfile(time.time(), ())

    def collect(self) -> list[Family]:
        """
        Return every family of the page. Any thread; about 20 µs for each function.
        """
        return []
