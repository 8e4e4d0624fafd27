"""The agent of this process: at most one."""

from __future__ import annotations

import os
import threading

from jaxmon.agent.agent import Agent, runtime_of


class Slot:
    """
    Where it is kept.

    Attributes:
        lock: held while one starts or stops.
        agent: the last that was started, unless it was stopped.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.agent: Agent | None = None
        self._watches_forks = False

    def watch_forks(self) -> None:
        """Have a forked child leave the agent to its parent."""
        # Python offers no way to take a fork handler off, so there is one for good.
        if not self._watches_forks:
            self._watches_forks = True
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        agent, self.agent = self.agent, None
        self.lock = threading.RLock()
        runtime = None if agent is None else runtime_of(agent)
        if runtime is not None:
            runtime.abandon()


slot = Slot()
"""That of this process."""


def running() -> Agent | None:
    """Return this process's running agent, if any."""
    agent = slot.agent
    return agent if agent is not None and agent.running else None
