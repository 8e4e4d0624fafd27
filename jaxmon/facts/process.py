"""Everything that one agent reports."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts import events as happened
from jaxmon.facts import marked
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.memory import Allocations, Memory, Transfers
from jaxmon.facts.reader import from_json, mapping, sifted
from jaxmon.facts.record import NOTHING, Fact
from jaxmon.facts.run import RunRecord
from jaxmon.facts.walltime import Period, WallTime
from jaxmon.limits import Limits


class JobRank(Fact):
    """
    Which process of a job of several this is.

    Attributes:
        index: its number, from 0; `None` if it is in none, or has not joined it yet.
        count: of the processes of the job.
    """

    index: int | None = None
    count: int | None = None

    def __str__(self) -> str:
        """Return ``rank 1 of 2``, empty if it is in no job."""
        return "" if self.index is None else f"rank {self.index} of {self.count or '?'}"


class Process(Fact):
    """
    The process being reported on.

    Attributes:
        rank: which of its job.
        started: Unix time when jaxmon was started there.
        observed_seconds: since then.
        now: Unix time of the report.
        release: of the program, by the setting of that name.
        url: of its metrics; empty if it serves none by TCP.
        debugging: settings of JAX that are on and meant for debugging, each with the
            line of the program that sets it, if it is known.
        forked: whether it was forked from a process that had initialised the devices,
            so that it lacks the threads of JAX.
    """

    pid: int | None = None
    program: str = ""
    rank: JobRank = JobRank()
    started: float = 0.0
    now: float = 0.0
    observed_seconds: float = 0.0
    jaxmon: str = ""
    jax: str = ""
    python: str = ""
    release: str = ""
    url: str = ""
    debugging: Mapping[str, str] = NOTHING
    forked: bool = False


class Environment(Fact):
    """
    What a process runs with, as ``/debug/environment`` has it.

    Attributes:
        versions: what its speed depends on besides the program, by name.
        packages: versions of what is installed.
    """

    versions: Mapping[str, str] = NOTHING
    packages: Mapping[str, str] = NOTHING


class Exports(Fact):
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


class Snapshot(Fact):
    """
    Everything that one agent reports, in that *schema*.

    Attributes:
        recognised: frameworks whose requests are counted without a mark.
        run_doubts: why the record of the run is not kept.
        problems: why facts are missing, by the part of the agent that observes them.
        events: from ``/debug/events``, and *recompiles* those of them that are.
        implausible: fields whose numbers were impossible, and dropped.
        limits: by which all this is to be judged.
    """

    schema: int = 0
    process: Process = Process()
    functions: tuple[FunctionFact, ...] = ()
    functions_left_out: int = 0
    compiling: happened.Compiling = happened.Compiling()
    requests: tuple[marked.RouteFacts, ...] = ()
    recognised: tuple[str, ...] = ()
    steps: tuple[marked.Loop, ...] = ()
    checkpoints: tuple[marked.Checkpoints, ...] = ()
    queues: tuple[marked.QueueFacts, ...] = ()
    memory: Memory = Memory()
    allocations: Allocations = Allocations()
    cache: happened.Cache = happened.Cache()
    signatures: happened.Signatures = happened.Signatures()
    ready: happened.ReadyProcess = happened.ReadyProcess()
    transfers: Transfers = Transfers()
    tracing: happened.Tracing = happened.Tracing()
    draws: tuple[happened.Draws, ...] = ()
    errors: happened.Errors = happened.Errors()
    values: tuple[marked.Quantity, ...] = ()
    slower: tuple[happened.Slower, ...] = ()
    warnings: tuple[happened.Warned, ...] = ()
    time: WallTime = WallTime()
    run: RunRecord = RunRecord()
    run_doubts: tuple[str, ...] = ()
    usual: marked.Usual = marked.Usual()
    charts: Mapping[str, marked.Series] = NOTHING
    exports: Exports = Exports()
    hooks: Mapping[str, bool] = NOTHING
    internal_errors: Mapping[str, int] = NOTHING
    problems: Mapping[str, str] = NOTHING
    events: tuple[happened.EventFact, ...] = ()
    recompiles: tuple[happened.Recompile, ...] = ()
    implausible: tuple[str, ...] = ()
    limits: Limits = Limits()

    by_name = ("functions", "requests", "steps", "checkpoints", "queues", "values")

    @property
    def users(self) -> list[FunctionFact]:
        """The functions of the program, not JAX's own."""
        return [function for function in self.functions if not function.internal]

    @property
    def device_seconds(self) -> float:
        """Seconds that the device computed all functions."""
        return sum(function.device_seconds for function in self.functions)

    @property
    def spans(self) -> bool:
        """Whether functions run on devices of other processes: they may wait there."""
        here = max(len(self.memory.devices), 1)
        return any((of.program.devices or 1) > here for of in self.functions)

    def busy_seconds(self, period: Period) -> float:
        """
        Return for how long the device computed in *period*, as far as known: mean
        execution time times calls of each function, in proportion.
        """
        since_start = self.time.since_start.seconds
        if since_start <= 0:
            return 0.0
        return min(self.device_seconds * period.seconds / since_start, period.seconds)

    def saves_blocked(self, period: Period) -> float:
        """
        Return for how long saves of checkpoints blocked the program in *period*, or
        waited for an earlier one, in proportion.
        """
        blocked = sum(
            saves.count * (saves.mean_seconds or 0.0)
            for saves in self.checkpoints
            if saves.name in {"blocking", "wait"}
        )
        return blocked * period.seconds / max(self.time.since_start.seconds, 1e-9)

    @property
    def compile_time(self) -> float:
        """Seconds that the compiles of all functions together took."""
        return sum(function.compile_time for function in self.functions)

    @property
    def load_time(self) -> float:
        """Seconds of loading programs from the persistent cache."""
        return sum(function.load_time for function in self.functions)

    def of_kind(self, kind: str) -> list[happened.EventFact]:
        """Return the events of *kind*, oldest first."""
        return [event for event in self.events if event.kind == kind]


def read(
    overview: object, events: object = None, limits: Limits | None = None
) -> Snapshot:
    """
    Return the content of ``/debug/overview`` and ``/debug/events``, functions by
    compile time, to be judged by *limits* or the defaults. An agent gives the snapshot
    of its own process instead of the overview.
    """
    occurred = mapping(events).get("events")
    document = {**mapping(overview), "events": occurred, "implausible": ()}
    found, implausible = sifted(Snapshot, document)
    recompiles = (
        from_json(happened.Recompile, {**of.details, **vars(of)})
        for of in found.of_kind("recompile")
    )
    functions = sorted(found.functions, key=_importance)
    return found.replace(
        implausible=implausible,
        limits=limits or Limits(),
        functions=tuple(functions),
        recompiles=tuple(recompiles),
    )


def _importance(function: FunctionFact) -> tuple[float, int]:
    return -function.compile_time, -(function.calls or function.misses)
