"""What every part of an agent is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.guard import Guard
from jaxmon.agent.observers import Observers
from jaxmon.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """
    State shared by the parts of an agent.

    Attributes:
        jax: the module; typed as anything, since its private parts differ by release.
        settings: the settings in force.
        guard: contains failures of our own code.
        table: the functions and their figures.
        events: what happened, in words.
        observers: who is told of what.
    """

    jax: Any
    settings: Settings
    guard: Guard
    table: FunctionTable
    events: EventLog = field(default_factory=EventLog)
    observers: Observers = field(default_factory=Observers)


def context_of(jax: ModuleType | None, settings: Settings) -> Context:
    """Return a fresh context for one agent."""
    return Context(jax, settings, Guard(), FunctionTable(settings.max_functions))
