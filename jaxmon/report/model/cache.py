"""What is compiled already: the persistent cache, and recorded signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason why the persistent cache misses."""

    reason: str = ""
    message: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Requests:
    """How often the persistent cache had a program, and how often not."""

    hit: int = 0
    miss: int = 0


@dataclass(frozen=True, slots=True)
class Cache:
    """
    The persistent compilation cache.

    Attributes:
        saved_seconds: compile time of hits, each rounded down to whole seconds, less
            the time to retrieve them; negative if that took longer.
    """

    enabled: bool | None = None
    directory: str = ""
    requests: Requests = field(default_factory=Requests)
    writes: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    saved_seconds: float = 0.0
    size_bytes: float | None = None
    entries: int | None = None
    obstacles: tuple[Obstacle, ...] = ()


@dataclass(frozen=True, slots=True)
class Signatures:
    """
    What functions were compiled for.

    Attributes:
        recorded: signatures that another process can compile ahead.
        omitted: compiles whose signature cannot be recorded.
        warmed: signatures that this process was warmed up with.
    """

    recorded: int = 0
    omitted: int = 0
    warmed: int = 0
