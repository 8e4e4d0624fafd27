"""What happened in a process: events, recompiles, warnings, errors, slowdowns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmon.facts.memory import place
from jaxmon.facts.record import NOTHING, Fact


STATIC_FIELD = "static field "
"""How a difference begins that is in no array of an argument, nor in its structure."""
MADE_ANEW = ", made anew"
"""How it ends if a function was made once more by the same line, ..."""
ANOTHER = (
    " (a different object: compared by identity; define __eq__ and __hash__ by value)"
)
"""... or an object with the same content."""


class EventFact(Fact):
    """One thing that happened."""

    number: int = 0
    time: float = 0.0
    kind: str = ""
    function: str = ""
    message: str = ""
    details: Mapping[str, Any] = NOTHING
    trace_id: str = ""


class Difference(Fact):
    """
    Description of how a call differs from those that the function was compiled for.
    """

    text: str = ""


class Recompile(Fact):
    """
    One recompile, its cause and its differences, but for those *omitted*; *place* is
    the line of the program that jits or calls the function, *trace_id* that of the
    request that waited, if it has a trace. There were so many *calls* until then.
    """

    time: float = 0.0
    function: str = ""
    cause: str = "unknown"
    differences: tuple[Difference, ...] = ()
    omitted: int = 0
    seconds: float | None = None
    place: str = ""
    calls: int = 0
    trace_id: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The differences as text."""
        return tuple(
            difference.text for difference in self.differences if difference.text
        )


class LateCompiles(Fact):
    """
    Compiles of a function after its process was ready.

    Attributes:
        loaded: how many of them were loaded from the persistent cache.
        seconds: that their calls took together.
        requests: that waited for them.
        latest: Unix time of the last one.
    """

    name: str = ""
    internal: bool = False
    count: int = 0
    loaded: int = 0
    seconds: float = 0.0
    requests: int = 0
    latest: float = 0.0


class WarmedFunction(Fact):
    """
    What a warm-up made of a function, and what of it was used since it was ready.

    Attributes:
        signatures: how many were warmed up.
        calls: of the function since, exactly; absent if they are not counted.
        used: how many signatures were used, exactly if `jaxmon.warmup` has ``uses``.
        unused: how many were not; it is not known of the others.
        unused_signatures: what is peculiar to these, for the first of them.
        seconds: that the warm-up spent on these.
    """

    name: str = ""
    signatures: int = 0
    calls: int | None = None
    used: int = 0
    unused: int = 0
    unused_signatures: tuple[str, ...] = ()
    seconds: float = 0.0


class ReadyProcess(Fact):
    """
    Since when a process is ready for requests, and what it compiled since.

    Attributes:
        since: Unix time; 0 if it is not, or does not say so.
        announced: whether it called `jaxmon.ready`; else it was warmed up.
        warmed: what `jaxmon.warmup` made.
        where: the line that called it.
    """

    since: float = 0.0
    announced: bool = False
    compiles: tuple[LateCompiles, ...] = ()
    warmed: tuple[WarmedFunction, ...] = ()
    where: str = ""


class Warned(Fact):
    """What JAX warned of, by kind, function and line; *text* is that of the first."""

    kind: str = ""
    function: str = ""
    where: str = ""
    text: str = ""
    count: int = 0


class TraceMistake(Fact):
    """
    A mistake in a jitted function, from its source.

    Attributes:
        kind: ``frozen``, ``leaked``, ``printed`` or ``dropped``.
        text: the call or the target of the assignment.
        within: name of the Python function that contains it.
        functions: the jitted functions that run it.
    """

    kind: str = ""
    file: str = ""
    line: int = 0
    text: str = ""
    within: str = ""
    functions: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        return place(self.file, self.line)


class Tracing(Fact):
    """What is wrong in the source of jitted functions."""

    mistakes: tuple[TraceMistake, ...] = ()


class Slower(Fact):
    """
    A program of a function, or a loop, that is slower than before.

    Attributes:
        what: ``function`` or ``loop``.
        shapes: of the program's arguments.
        against: ``earlier`` in this run, or a ``past_run``.
        since: Unix time of the first slow time, or of the end of the past run.
        calls: how often it has been slow.
        crowded: whether other processes hold the processors that are its device.
        beside: what else happened then.
        changed: what differs between the runs, such as flags.
    """

    what: str = ""
    name: str = ""
    shapes: str = ""
    against: str = ""
    settled_seconds: float = 0.0
    recent_seconds: float = 0.0
    since: float = 0.0
    calls: float = 0.0
    crowded: bool = False
    beside: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Errors(Fact):
    """Errors of all functions, and the paths of their reports in JSON."""

    oom_reports: tuple[str, ...] = ()

    @property
    def readable_reports(self) -> list[str]:
        """The paths of the text reports next to the JSON ones."""
        return [
            f"{path.removesuffix('.json')}.txt" if path.endswith(".json") else path
            for path in self.oom_reports
            if path
        ]


class Draws(Fact):
    """
    A line of the program that draws random numbers outside of jitted functions: how
    often, and how many *samples*, the latest, had the *same* key, over so many draws.
    """

    place: str = ""
    draws: int = 0
    samples: int = 0
    same: int = 0
