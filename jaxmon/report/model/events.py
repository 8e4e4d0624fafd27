"""What happened in a process: events, recompiles, warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    number: int = 0
    time: float = 0.0
    kind: str = ""
    function: str = ""
    message: str = ""
    details: Json = field(default_factory=dict)
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """
    Description of how a call differs from those that the function was compiled for.
    """

    text: str = ""


@dataclass(frozen=True, slots=True)
class Recompile:
    """
    One recompile, its cause and its differences, but for those *omitted*; *place* is
    the line of the program that jits or calls the function, *trace_id* that of the
    request that waited, if it has a trace.
    """

    time: float = 0.0
    function: str = ""
    cause: str = "unknown"
    differences: tuple[Difference, ...] = ()
    omitted: int = 0
    seconds: float | None = None
    place: str = ""
    trace_id: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The differences as text."""
        return tuple(one.text for one in self.differences if one.text)


@dataclass(frozen=True, slots=True)
class Warned:
    """What JAX warned of, by kind, function and line; *text* is that of the first."""

    kind: str = ""
    function: str = ""
    where: str = ""
    text: str = ""
    count: int = 0
