"""What processes report of programs that they keep, load or warm up."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts.functions import Folded, Obstacle, Requests
from jaxmon.facts.record import NOTHING, Fact


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
