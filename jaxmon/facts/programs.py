"""What a process reports of its loaded programs: compiles, and equations by line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmon.facts import SCHEMA
from jaxmon.facts.contents import Captured, Unrolled
from jaxmon.facts.functions import Program
from jaxmon.facts.reader import from_json
from jaxmon.facts.record import NOTHING, Fact
from jaxmon.host.formats import json_text


CALLS = frozenset(
    (
        *("jit", "pjit", "closed_call", "core_call", "custom_jvp_call"),
        *("custom_vjp_call", "custom_vjp_call_jaxpr", "checkpoint", "remat2"),
    )
)
"""Primitives that only have equations inside."""


class TracedLine(Fact):
    """A *line* of *file*, as the interpreter knows it, in a *function*."""

    file: str = ""
    line: int = 0
    function: str = ""


class EquationStack(Fact):
    """
    Equations that the same *calls* traced, the outermost first; *count* is the sum of
    *primitives*.
    """

    calls: tuple[TracedLine, ...] = ()
    count: int = 0
    primitives: Mapping[str, int] = NOTHING


class CompiledProgram(Fact):
    """
    A loaded program; `None` is unknown.

    Attributes:
        place: where its function is defined.
        finished: Unix time at which it was compiled or loaded.
        loaded: whether it came from the persistent cache.
        trace_seconds: what its compile took to trace, *lower_seconds* to lower, and
            *xla_seconds* in XLA, or to load.
        analysis: what XLA said of it.
        equations: as traced, with those inside of others, each once per call that
            contains it, however often it runs; *unknown* says why none are known.
        uncounted: whether there are more equations than were counted.
        stacks: the largest; equations of others are only in the sum.
        captured: arrays from around the function, if they are large.
        unrolled: the loop of Python that is most of it, if one is.
    """

    function: str = ""
    place: str = ""
    finished: float = 0.0
    loaded: bool | None = None
    trace_seconds: float | None = None
    lower_seconds: float | None = None
    xla_seconds: float | None = None
    analysis: Program = Program()
    equations: int | None = None
    unknown: str = ""
    uncounted: bool = False
    stacks: tuple[EquationStack, ...] = ()
    captured: Captured | None = None
    unrolled: Unrolled | None = None

    @property
    def seconds(self) -> float | None:
        """What its compile took, as far as that is known."""
        phases = (self.trace_seconds, self.lower_seconds, self.xla_seconds)
        seen = [seconds for seconds in phases if seconds is not None]
        return sum(seen) if seen else None


class CompiledPrograms(Fact):
    """The newest programs of the user's functions, and how many are *omitted*."""

    schema: int = SCHEMA
    programs: tuple[CompiledProgram, ...] = ()
    omitted: int = 0


def read(document: Any) -> CompiledPrograms:
    """Return a response of ``/debug/programs``. Raises `ValueError`: a later one."""
    json_text.require_schema(document, SCHEMA)
    return from_json(CompiledPrograms, document)
