"""Everything that one agent reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jaxmon import disclosure
from jaxmon.facts.events import Errors, Event, Recompile, Slower, Tracing, Warned
from jaxmon.facts.functions import Cache, Function, Signatures
from jaxmon.facts.marked import Checkpoints, Loop, Quantity, Queue, Route, Series, Usual
from jaxmon.facts.memory import Allocations, Memory, Transfers
from jaxmon.facts.reader import from_json, mapping, sifted
from jaxmon.facts.run import RunRecord
from jaxmon.facts.walltime import WallTime
from jaxmon.limits import Limits


@dataclass(frozen=True, slots=True)
class Process:
    """
    The process being reported on.

    Attributes:
        started: Unix time when jaxmon was started there.
        observed_seconds: since then.
        now: Unix time of the report.
    """

    pid: int | None = None
    program: str = ""
    started: float = 0.0
    observed_seconds: float = 0.0
    now: float = 0.0
    jax: str = ""
    jaxmon: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class Compiling:
    """Compiles that are running."""

    count: int = 0
    oldest_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Exports:
    """
    What did not arrive at receivers of OTLP.

    Attributes:
        failed_in_a_row: the latest exports of metrics, if they failed.
        failing_seconds: since the first of these.
        spans_dropped: since the process started.
    """

    failed_in_a_row: int = 0
    failing_seconds: float = 0.0
    spans_dropped: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one agent reports, in that *schema*."""

    schema: int = 0
    process: Process = field(default_factory=Process)
    compiling: Compiling = field(default_factory=Compiling)
    functions: tuple[Function, ...] = ()
    functions_left_out: int = 0
    requests: tuple[Route, ...] = ()
    steps: tuple[Loop, ...] = ()
    checkpoints: tuple[Checkpoints, ...] = ()
    queues: tuple[Queue, ...] = ()
    memory: Memory = field(default_factory=Memory)
    allocations: Allocations = field(default_factory=Allocations)
    cache: Cache = field(default_factory=Cache)
    signatures: Signatures = field(default_factory=Signatures)
    transfers: Transfers = field(default_factory=Transfers)
    tracing: Tracing = field(default_factory=Tracing)
    time: WallTime = field(default_factory=WallTime)
    run: RunRecord = field(default_factory=RunRecord)
    run_doubts: tuple[str, ...] = ()
    errors: Errors = field(default_factory=Errors)
    values: tuple[Quantity, ...] = ()
    slower: tuple[Slower, ...] = ()
    warnings: tuple[Warned, ...] = ()
    usual: Usual = field(default_factory=Usual)
    charts: Mapping[str, Series] = field(default_factory=dict)
    exports: Exports = field(default_factory=Exports)
    hooks: Mapping[str, bool] = field(default_factory=dict)
    internal_errors: Mapping[str, int] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    implausible: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits, metadata={"added": True})

    @property
    def compile_time(self) -> float:
        """Seconds that the compiles of all functions together took."""
        return sum(one.compile_time for one in self.functions)

    @property
    def load_time(self) -> float:
        """Seconds of loading programs from the persistent cache."""
        return sum(one.load_time for one in self.functions)

    def of_kind(self, kind: str) -> list[Event]:
        """Return the events of *kind*, oldest first."""
        return [one for one in self.events if one.kind == kind]


def read(
    overview: object, events: object = None, limits: Limits | None = None
) -> Snapshot:
    """
    Return the content of ``/debug/overview`` and ``/debug/events``, functions by
    compile time, to be judged by *limits* or the defaults.
    """
    happened = mapping(events).get("events")
    document = {**mapping(overview), "events": happened, "implausible": ()}
    found, implausible = sifted(Snapshot, document)
    recompiles = (
        from_json(
            Recompile,
            {
                **e.details,
                "time": e.time,
                "function": e.function,
                "trace_id": e.trace_id,
            },
        )
        for e in found.of_kind("recompile")
    )
    functions = sorted(found.functions, key=_importance)
    # An older agent gives all of it.
    program = disclosure.command(found.process.program.split(" "))
    return replace(
        found,
        process=replace(found.process, program=program),
        implausible=implausible,
        limits=limits or Limits(),
        functions=tuple(functions),
        recompiles=tuple(recompiles),
    )


def _importance(function: Function) -> tuple[float, int]:
    return -function.compile_time, -(function.calls or function.misses)
