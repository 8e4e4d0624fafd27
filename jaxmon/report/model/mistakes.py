"""What is wrong in the source, slower than before, or failed."""

from __future__ import annotations

from dataclasses import dataclass

from jaxmon.report.model.places import place


@dataclass(frozen=True, slots=True)
class TraceMistake:
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


@dataclass(frozen=True, slots=True)
class Tracing:
    """What is wrong in the source of jitted functions."""

    mistakes: tuple[TraceMistake, ...] = ()


@dataclass(frozen=True, slots=True)
class Slower:
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


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of all functions, and the paths of their reports in JSON."""

    oom_reports: tuple[str, ...] = ()

    @property
    def readable_reports(self) -> list[str]:
        """The paths of the text reports next to the JSON ones."""
        return [
            f"{one.removesuffix('.json')}.txt" if one.endswith(".json") else one
            for one in self.oom_reports
            if one
        ]
