"""The agent of this process: at most one."""

from __future__ import annotations

import os

from jaxmon.agent.agent import Agent, runtime_of
from jaxmon.threads import RLock


class Slot:
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

    def watch_forks(self) -> None:
        """Make forked children abandon the parent's agent."""
        # Python cannot remove a fork handler, so there is only ever one.
        if not self._watches_forks:
            self._watches_forks = True
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        agent, self.agent = self.agent, None
        self.lock = RLock()
        runtime = None if agent is None else runtime_of(agent)
        if runtime is not None:
            runtime.abandon()


slot = Slot()
"""The slot of this process."""


def running() -> Agent | None:
    """Return this process's running agent, if any."""
    agent = slot.agent
    return agent if agent is not None and agent.running else None
