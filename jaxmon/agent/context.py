"""The state shared by the parts of an agent."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.call_sites import CallSites
from jaxmon.agent.observers import Observers
from jaxmon.agent.registry import Registry
from jaxmon.agent.scheduler import Scheduler
from jaxmon.settings import Settings


class Context(NamedTuple):
    """
    State shared by the parts of an agent.

    Attributes:
        jax: the module; typed as `Any` because its private parts differ by release.
        settings: the settings in effect.
        guard: contains failures of our own code.
        scheduler: has the threads on which parts work.
        table: the functions and their statistics.
        registry: the live jitted objects that run them.
        events: the event log.
        observers: callbacks by which parts notify each other.
        sites: the places in the program that call jitted functions.
    """

    jax: Any
    settings: Settings
    guard: Guard
    scheduler: Scheduler
    table: FunctionTable
    registry: Registry
    events: EventLog
    observers: Observers
    sites: CallSites


def context_of(jax: Any, settings: Settings) -> Context:
    """Return a new context for one agent."""
    guard = Guard()
    return Context(
        jax,
        settings,
        guard,
        Scheduler(guard),
        FunctionTable(settings.max_functions),
        Registry(),
        EventLog(),
        Observers(),
        CallSites(),
    )
