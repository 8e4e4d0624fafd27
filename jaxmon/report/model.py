"""
What an agent told, typed, and what to say to it. All text in it is harmless for a
terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias


Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Process:
    """
    Whose report it is.

    Attributes:
        observed: seconds since jaxmon was started there.
        now: Unix time of the report.
    """

    pid: int | None = None
    program: str = ""
    observed: float = 0.0
    now: float = 0.0
    jax: str = ""
    jaxmon: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class Function:
    """
    The figures of one function; calls and hits are `None` where they are not counted.

    Attributes:
        not_repeated: why `shadow_interval` leaves it out, in a word.
    """

    name: str
    internal: bool = False
    calls: int | None = None
    hits: int | None = None
    misses: int = 0
    compiles: Mapping[str, int] = field(default_factory=dict)
    recompiles: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    program: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[str, float] = field(default_factory=dict)
    numerics: Mapping[str, float] = field(default_factory=dict)
    determinism: Mapping[str, float] = field(default_factory=dict)
    not_repeated: str = ""

    @property
    def lost(self) -> float:
        """Seconds lost to tracing, lowering, compiling and loading."""
        return sum(self.phases.values())

    @property
    def built(self) -> int:
        """Programs built or loaded, and attempts at it."""
        return sum(self.compiles.values())


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    number: int
    time: float
    kind: str
    function: str
    message: str
    details: Json


@dataclass(frozen=True, slots=True)
class Recompile:
    """One recompile: its cause, and differences in words; ``omitted`` are not told."""

    time: float
    function: str
    cause: str
    differences: tuple[str, ...]
    omitted: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the persistent cache cannot hit."""

    reason: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class Cache:
    """The persistent compilation cache."""

    enabled: bool | None = None
    directory: str = ""
    hits: int = 0
    misses: int = 0
    writes: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    saved: float = 0.0
    bytes: float | None = None
    entries: int | None = None
    obstacles: tuple[Obstacle, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """A device and its memory in bytes; `None` where JAX does not tell."""

    name: str
    kind: str
    in_use: float | None
    peak: float | None
    limit: float | None
    live_arrays: int | None
    live_bytes: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """A source line that holds device memory."""

    place: str
    function: str
    bytes: float
    arrays: int
    growth: float


@dataclass(frozen=True, slots=True)
class Looks:
    """
    When memory was looked at, line by line.

    Attributes:
        last: Unix time.
        seconds: from the first look to the last one, in which lines grew.
    """

    last: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Leak:
    """Device memory that kept growing, and the lines that hold it."""

    device: str
    growth: float
    seconds: float
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A source line that moves data between host and device."""

    place: str
    direction: str
    how: str
    count: int
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one agent told, in pages of that *schema*."""

    schema: int = 0
    process: Process = field(default_factory=Process)
    functions: tuple[Function, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    events: tuple[Event, ...] = ()
    cache: Cache = field(default_factory=Cache)
    devices: tuple[Device, ...] = ()
    lines: tuple[Line, ...] = ()
    looks: Looks | None = None
    leaks: tuple[Leak, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    oom_reports: tuple[str, ...] = ()
    compiling: int = 0
    compiling_seconds: float = 0.0
    hooks_off: tuple[str, ...] = ()
    failures: Mapping[str, int] = field(default_factory=dict)
    functions_left_out: int = 0

    @property
    def lost(self) -> float:
        """Seconds that all functions together lost to compiles."""
        return sum(one.lost for one in self.functions)

    def of_kind(self, kind: str) -> list[Event]:
        """Return the events of *kind*, oldest first."""
        return [one for one in self.events if one.kind == kind]


@dataclass(frozen=True, slots=True)
class Advice:
    """
    One thing to change.

    Attributes:
        topic: of the rule, for programs that read it.
        subject: the function, device or line; may be empty.
        finding: what is wrong, with the figures.
        evidence: lines that show it.
        action: what to do about it.
    """

    topic: str
    subject: str
    finding: str
    evidence: tuple[str, ...]
    action: str

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON types."""
        return {**asdict(self), "evidence": list(self.evidence)}
