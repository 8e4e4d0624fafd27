"""The agent used by budgets: the running one, or a private one."""

from __future__ import annotations

from jaxmon.agent import Agent
from jaxmon.agent.agent import running
from jaxmon.agent.start import instrument, uninstrument
from jaxmon.testing.silent import SILENT
from jaxmon.threads import RLock


class Observer:
    """
    Provides the running agent, or a private one while needed.

    Budgets may overlap, in one thread or in several: the last one stops the agent.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._own: Agent | None = None
        self._users = 0

    def take(self) -> Agent:
        """
        Return a running agent; return it with `give_back`.

        Raises:
            JaxmonError: JAX is not installed.
        """
        with self._lock:
            agent = running()
            if agent is None:
                agent = self._own = instrument(**SILENT)
                self._users = 0
            if agent is self._own:
                self._users += 1
            return agent

    def give_back(self, agent: Agent) -> None:
        """Stop *agent* if it is ours and not in use elsewhere."""
        with self._lock:
            if agent is not self._own:
                return
            self._users -= 1
            if self._users:
                return
            self._own = None
            if running() is agent:
                uninstrument()


OBSERVER = Observer()
