"""
What happened in a process: events, recompiles, warnings, errors, slowdowns; programs
that it keeps, loads or warms up; its reports on memory that ran out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmon.facts.contents import Folded
from jaxmon.facts.functions import Obstacle, Program, Requests
from jaxmon.facts.memory import Allocations, Arrays, Device, HostMemory, Placed
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
        return tuple(of.text for of in self.differences if of.text)


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
        quiet: Unix time of the last compile before the first five minutes without; 0 if
            there were none. It may have been ready from then on.
        compiled: compiles since then, up to 100.
        warmed: what `jaxmon.warmup` made.
        where: the line that called it.
    """

    since: float = 0.0
    announced: bool = False
    quiet: float = 0.0
    compiled: int = 0
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


class TraceMistake(Placed):
    """
    A mistake in a jitted function, from its source.

    Attributes:
        kind: ``frozen``, ``leaked``, ``printed`` or ``dropped``.
        text: the call or the target of the assignment.
        within: name of the Python function that contains it.
        functions: the jitted functions that run it.
    """

    kind: str = ""
    text: str = ""
    within: str = ""
    functions: tuple[str, ...] = ()


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


class Cache(Fact):
    """
    The persistent compilation cache.

    Attributes:
        functions: the requests for programs of each function.
        saved_seconds: compile time of hits, each rounded down to whole seconds, less
            the time to retrieve them; negative if that took longer.
    """

    enabled: bool | None = None
    directory: str | None = ""
    requests: Requests = Requests()
    functions: Mapping[str, Requests] = NOTHING
    writes: int = 0
    errors: Mapping[str, int] = NOTHING
    saved_seconds: float = 0.0
    size_bytes: float | None = None
    entries: int | None = None
    obstacles: tuple[Obstacle, ...] = ()


class Signatures(Fact):
    """
    What functions were compiled for.

    Attributes:
        recorded: signatures that another process can compile ahead.
        omitted: compiles whose signature cannot be recorded.
        warmed: signatures that this process was warmed up with.
        failed: those that it could not be warmed up with.
    """

    recorded: int = 0
    omitted: int = 0
    warmed: int = 0
    failed: int = 0


class Compiling(Fact):
    """
    Compiles that are running.

    Attributes:
        function: that of the oldest, which XLA has had for *oldest_seconds*.
        equations: of its program, of which *most* come from the line *where*; 0 before
            it has taken some seconds, and where that is not known.
        folded: what it does with constants, which XLA may be computing.
    """

    count: int = 0
    oldest_seconds: float = 0.0
    function: str = ""
    equations: int = 0
    most: int = 0
    where: str = ""
    folded: Folded | None = None


class FailedAllocation(Fact):
    """
    The data of an error for its report. Holds no reference to the error.

    Attributes:
        function: label of the function that failed.
        kind: one of `catalog.ERROR_KINDS`.
        type: class of the exception, and *message*, its first lines.
        text: the whole message, truncated.
        stage: how far the call had come, if known.
        where: ``file:line`` of the user's program, if known.
    """

    function: str = ""
    kind: str = ""
    type: str = ""
    message: str = ""
    text: str = ""
    stage: str | None = None
    where: str | None = None
    time: float = 0.0


class LiveArrays(Fact):
    """
    The arrays of all devices, `None` if unknown; sizes are of those *added_up*, as far
    as time allowed, without the *offloaded_bytes*, which are in the host's memory.
    """

    arrays: int | None = None
    added_up: int = 0
    bytes: float = 0.0
    offloaded_bytes: int = 0
    by_dtype: Mapping[str, Arrays] = NOTHING


class OomReport(Fact):
    """
    An out-of-memory report.

    Attributes:
        failures_without_report: those since the report before.
        lines: those that hold most memory, now or in the last snapshot.
        asked: the program that probably requested memory, by its function.
        programs: the largest ones, likewise.
        unavailable: why there is nothing in a section.
    """

    format: str = "jaxmon-oom-2"
    time: str = ""
    program: str | None = None
    pid: int = 0
    versions: Mapping[str, str | None] = NOTHING
    failure: FailedAllocation = FailedAllocation()
    failures_without_report: int = 0
    devices: tuple[Device, ...] = ()
    host: HostMemory = HostMemory()
    live_arrays: LiveArrays = LiveArrays()
    lines: Allocations = Allocations()
    asked: Mapping[str, Program] = NOTHING
    programs: Mapping[str, Program] = NOTHING
    compiles: tuple[EventFact, ...] = ()
    recompiles: tuple[EventFact, ...] = ()
    leaks: tuple[EventFact, ...] = ()
    advice: tuple[str, ...] = ()
    unavailable: Mapping[str, str] = NOTHING

    def without(self, name: str, why: str) -> OomReport:
        """Return a copy with nothing in the section *name*."""
        empty = {name: getattr(OomReport, name)}
        return self.replace(**empty, unavailable={**self.unavailable, name: why})
