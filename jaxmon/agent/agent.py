"""The public agent handle, and the agent of this process: at most one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jaxmon import interrupts
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family
from jaxmon.settings import Settings
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.agent.checks.determinism import DeterminismPart
    from jaxmon.agent.memory.profile import MemoryProfile
    from jaxmon.agent.runtime import Runtime


# A fork waits so long at most while a part is being loaded, which takes milliseconds.
_LOAD_SECONDS = 5.0


class Agent:
    """
    What `jaxmon.instrument` returns.

    A disabled agent observes nothing; all its methods still work, without JAX.
    """

    def __init__(self, settings: Settings, runtime: Runtime | None = None) -> None:
        self.settings = settings
        self._runtime = runtime

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<jaxmon.Agent {state} url={self.url!r} socket={self.socket!r}>"

    @property
    def running(self) -> bool:
        """Whether the agent is observing."""
        return self._runtime is not None and self._runtime.running

    @property
    def url(self) -> str | None:
        """URL of the metrics, `None` if no TCP port is open."""
        return None if self._runtime is None else self._runtime.serving.url

    @property
    def socket(self) -> str | None:
        """Path of the Unix socket, `None` if there is none."""
        return None if self._runtime is None else self._runtime.serving.socket

    @property
    def determinism(self) -> DeterminismPart:
        """Results of determinism and gradient checks."""
        from jaxmon.agent.checks.determinism import DeterminismPart  # noqa: PLC0415

        found = None if self._runtime is None else self._runtime.part(DeterminismPart)
        if found is None:
            from jaxmon.agent.context import context_of  # noqa: PLC0415

            found = DeterminismPart(context_of(None, self.settings))
        return found

    def refresh(self) -> None:
        """
        Take a snapshot of device memory and live arrays now, ahead of the next
        interval.

        Costs about 2 µs per live array. Failures are counted, not raised.
        """
        if self._runtime is not None:
            self._runtime.refresh()

    def memory(self) -> MemoryProfile:
        """
        Return live memory by the source line of the program that allocated it.

        Compare two profiles with ``later.growth_since(earlier)``. Costs about 1 µs per
        live array, holding the GIL; allocates nothing on a device. Empty if the agent
        is disabled.

        Raises:
            ProfileError: JAX's memory profile cannot be read.
        """
        from jaxmon.agent.memory.lines import MemoryLines  # noqa: PLC0415
        from jaxmon.agent.memory.profile import MemoryProfile  # noqa: PLC0415

        found = None if self._runtime is None else self._runtime.part(MemoryLines)
        return MemoryProfile(wall_time(), ()) if found is None else found.profile()

    def collect(self) -> list[Family]:
        """Return all metric families. Thread-safe; about 20 µs per function."""
        return [] if self._runtime is None else self._runtime.collect()


def runtime_of(agent: Agent) -> Runtime | None:
    """Return the runtime behind *agent*, `None` if the agent is disabled."""
    return agent._runtime  # noqa: SLF001 - of the same module


class AgentSlot:
    """
    Holds the agent of this process.

    Attributes:
        lock: held while an agent starts or stops.
        agent: the agent started last, unless it has been stopped.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self.agent: Agent | None = None
        self._watches_forks = False
        self._loading = RLock()

    def watch_forks(self) -> None:
        """Make forked children abandon the parent's agent."""
        # Python cannot remove a fork handler, so there is only ever one.
        if not self._watches_forks:
            self._watches_forks = True
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork_in_parent,
                after_in_child=self._after_fork,
            )

    def _before_fork(self) -> None:
        """Wait until no part is being loaded: see `jaxmon.agent.part.Loading`."""
        runtime = None if self.agent is None else runtime_of(self.agent)
        if runtime is not None:
            self._loading = runtime.loading
            self._loading.acquire(timeout=_LOAD_SECONDS)

    def _after_fork_in_parent(self) -> None:
        try:
            self._loading.release()
        except RuntimeError as error:  # the part took longer to load
            interrupts.pass_on(error)

    def _after_fork(self) -> None:
        agent, self.agent = self.agent, None
        self.lock = RLock()
        runtime = None if agent is None else runtime_of(agent)
        if runtime is not None:
            runtime.abandon()


slot = AgentSlot()
"""The slot of this process."""


def running() -> Agent | None:
    """Return this process's running agent, if any."""
    agent = slot.agent
    return agent if agent is not None and agent.running else None
