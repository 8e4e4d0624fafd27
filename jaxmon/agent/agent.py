"""The public agent handle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jaxmon.exposition.families import Family
from jaxmon.settings import Settings


if TYPE_CHECKING:
    from jaxmon.agent.checks.determinism import Determinism
    from jaxmon.agent.memory.profile import MemoryProfile
    from jaxmon.agent.runtime import Runtime


class Agent:
    """
    What `jaxmon.instrument` returns.

    One that is switched off observes nothing, and everything that it can be asked has
    an answer, without JAX.

    Attributes:
        settings: the settings in force.
    """

    def __init__(self, settings: Settings, runtime: Runtime | None = None) -> None:
        self.settings = settings
        self._runtime = runtime

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<jaxmon.Agent {state} url={self.url!r} socket={self.socket!r}>"

    @property
    def running(self) -> bool:
        """Whether it observes."""
        return self._runtime is not None and self._runtime.running

    @property
    def url(self) -> str | None:
        """Where the metrics are, `None` when no TCP port is open."""
        return None if self._runtime is None else self._runtime.serving.url

    @property
    def socket(self) -> str | None:
        """Path of the Unix socket, `None` when there is none."""
        return None if self._runtime is None else self._runtime.serving.socket

    @property
    def determinism(self) -> Determinism:
        """Where the outcomes of checks are kept."""
        from jaxmon.agent.checks.determinism import Determinism  # noqa: PLC0415

        found = None if self._runtime is None else self._runtime.part(Determinism)
        if found is None:
            from jaxmon.agent.context import context_of  # noqa: PLC0415

            found = Determinism(context_of(None, self.settings))
        return found

    def refresh(self) -> None:
        """
        Look at device memory, live arrays and who holds them now, not at the next
        interval.

        Costs about 2 µs for each live array. What fails is counted, not raised.
        """
        if self._runtime is not None:
            self._runtime.refresh()

    def memory(self) -> MemoryProfile:
        """
        Return live memory by the source line of the program that allocated it.

        Two of them tell what grew in between: ``later.growth_since(earlier)``. Costs
        about 1 µs for each live array, with the interpreter lock held; allocates
        nothing on a device. Empty if the agent is disabled.

        Raises:
            ProfileError: JAX's memory profile cannot be read.
        """
        from jaxmon.agent.memory.lines import Allocations  # noqa: PLC0415
        from jaxmon.agent.memory.profile import MemoryProfile  # noqa: PLC0415

        found = None if self._runtime is None else self._runtime.part(Allocations)
        return MemoryProfile(time.time(), ()) if found is None else found.profile()

    def collect(self) -> list[Family]:
        """
        Return every family of the page. Any thread; about 20 µs for each function.
        """
        return [] if self._runtime is None else self._runtime.collect()


def runtime_of(agent: Agent) -> Runtime | None:
    """Return what works behind *agent*, `None` where it is switched off."""
    return agent._runtime  # noqa: SLF001 - of the same module
