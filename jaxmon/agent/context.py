"""What every part of an agent is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.guard import Guard
from jaxmon.exposition.families import Family
from jaxmon.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """
    What the parts of one agent share.

    Attributes:
        jax: the module; typed as anything, since its private parts differ by release.
        settings: the settings in force.
        guard: contains failures of our own code.
        table: the functions and their figures.
        events: what happened, in words.
    """

    jax: Any
    settings: Settings
    guard: Guard
    table: FunctionTable
    events: EventLog = field(default_factory=EventLog)


class Part(Protocol):
    """Something that observes, and has figures of its own."""

    def start(self) -> None:
        """Start what runs beside the program. Raises nothing."""
        ...

    def stop(self) -> None:
        """Stop it and forget what it held. Harmless when repeated."""
        ...

    def collect(self) -> list[Family]:
        """Return the figures as they are now; quick, any thread."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """
        Return what a person who looks into this process wants to know, figures
        included. JSON types only; milliseconds at most, any thread.
        """
        ...


def context_of(jax: ModuleType, settings: Settings) -> Context:
    """Return a fresh context for one agent."""
    return Context(jax, settings, Guard(), FunctionTable(settings.max_functions))
