"""
The agent of this process: at most one, started and stopped by the user.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from types import ModuleType
from typing import Unpack

from jaxmon.agent.agent import Agent
from jaxmon.agent.guard import log
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Family
from jaxmon.settings import Options, Settings, load


class _Current:
    """
    The agent of this process.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.agent: Agent | None = None
        self.watches_forks = False


_current = _Current()


class DisabledAgent(Agent):
    """
    What `instrument` returns where jaxmon is switched off; JAX is not even imported.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.url = None
        self._local = None
        self.running = False

    def collect(self) -> list[Family]:
        """
        Return nothing.
        """
        return []

    def refresh(self) -> None:
        """
        Do nothing.
        """


def instrument(**options: Unpack[Options]) -> Agent:
    """
    Start observing JAX in this process and serve what is seen.

    A second call returns the agent that runs already; settings that differ are
    reported and ignored. Settings are described by `jaxmon.settings.Settings`.

    Example:
        >>> import jaxmon
        >>> agent = jaxmon.instrument(port=0)
        >>> print(agent.url)  # doctest: +SKIP
        http://127.0.0.1:40953/metrics

    Raises:
        SettingsError: a setting that cannot be used.
        JaxmonError: JAX is not installed.
    """
    settings = load(options)
    if not settings.enabled:
        return DisabledAgent(settings)
    # First, because the import may start an agent: `jaxmon run` waits for it.
    jax = _jax()
    with _current.lock:
        running = _current.agent
        if running is not None and running.running:
            if options and settings != running.settings:
                log.warning(
                    "jaxmon runs already with %s; %s is ignored. Call "
                    "jaxmon.uninstrument() first to change settings.",
                    running.settings,
                    settings,
                )
            return running
        agent = Agent(jax, settings)
        _watch_forks()
        # Known before it starts, so that a fork meanwhile finds what to abandon.
        _current.agent = agent
        agent.start()
        return agent


def uninstrument() -> None:
    """
    Stop observing and leave attributes, listeners, threads and files as found.

    Harmless when nothing runs. Functions jitted meanwhile keep working.
    """
    with _current.lock:
        agent, _current.agent = _current.agent, None
        if agent is not None:
            agent.stop()


def running() -> Agent | None:
    """
    Return the agent that runs in this process, if one does.
    """
    agent = _current.agent
    return agent if agent is not None and agent.running else None


def _jax() -> ModuleType:
    try:
        return import_module("jax")
    except ImportError as error:
        msg = (
            f"jaxmon.instrument() needs JAX, and importing it failed: {error}. Install "
            "the build for your hardware, or `pip install 'jaxmon[jax]'` to try it out."
        )
        raise JaxmonError(msg) from error


def _watch_forks() -> None:
    # Python offers no way to take a fork handler off, so there is one for good.
    if not _current.watches_forks:
        _current.watches_forks = True
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    agent, _current.agent = _current.agent, None
    _current.lock = threading.RLock()
    if agent is not None:
        agent.abandon()
