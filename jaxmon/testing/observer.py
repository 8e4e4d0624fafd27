"""The agent used by budgets: the running one, or a private one and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxmon.agent import Agent
from jaxmon.agent.agent import instrument, running, uninstrument
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.options import Options


# It serves no endpoint and polls nothing. Each setting is given, so that the
# environment of the tests has no say.
SILENT: Options = {
    "enabled": True,
    "host": "127.0.0.1",
    "port": None,
    "socket": False,
    "run_dir": None,
    "calls": False,
    "max_functions": 10_000,
    "jax_functions": True,
    "few_buckets": "",
    "memory_interval": 0,
    "memory_lines_interval": 0,
    "leak_window": 600,
    "programs": False,
    "peak_flops": 0,
    "peak_bandwidth": 0,
    "signatures": False,
    "expect_warmup": False,
    "sample_rate": 0,
    "run": "",
    "attempt": None,
    "run_state": None,
    "run_interval": 10,
    "history": False,
    "time_interval": 0,
    "transfers": True,
    "nonfinite": False,
    "shadow_interval": 0,
    "shadow_memory": 256 * 1024 * 1024,
    "event_values": True,
    "log_events": False,
    "traces": False,
    "traces_wait": 0,
    "report": False,
    "report_dir": None,
    "summary_dir": None,
    "figures_dir": None,
    "device_figures": False,
    "profile_gpu": False,
    "otlp": False,
    "serverless": False,
    "otlp_names": "served",
}


class BudgetObserver:
    """
    Provides the running agent, or a private one while needed.

    Budgets may overlap, in one thread or in several: the last one stops the agent.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._private: Agent | None = None
        self._users = 0

    def take(self) -> Agent:
        """Return a running agent; return it with `give_back`."""
        with self._lock:
            agent = running()
            if agent is None:
                agent = self._private = instrument(**SILENT)
                self._users = 0
            if agent is self._private:
                self._users += 1
            return agent

    def give_back(self, agent: Agent) -> None:
        """Stop *agent* if it is ours and not in use elsewhere."""
        with self._lock:
            if agent is not self._private:
                return
            self._users -= 1
            if self._users:
                return
            self._private = None
            if running() is agent:
                uninstrument()


OBSERVER = BudgetObserver()
