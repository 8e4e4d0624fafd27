"""
Content of an agent's debug endpoints as typed data.

Fields have the names used in the JSON, and the code that evaluates and formats reads
nothing else. All text in it is safe to print on a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from jaxmon.report.served import Loop, Queue, Route
from jaxmon.report.typed import from_json, mapping
from jaxmon.report.walltime import WallTime


Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Process:
    """
    The process being reported on.

    Attributes:
        observed_seconds: since jaxmon was started there.
        now: Unix time of the report.
    """

    pid: int | None = None
    program: str = ""
    observed_seconds: float = 0.0
    now: float = 0.0
    jax: str = ""
    jaxmon: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of compiling: how long it took in all."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks of one kind, those that failed."""

    failed: int = 0


@dataclass(frozen=True, slots=True)
class Determinism:
    """
    Whether a function returns the same outputs for the same inputs.

    Attributes:
        not_repeated: reason why `shadow_interval` skips it.
    """

    checks: Checks = field(default_factory=Checks)
    gradient_checks: Checks = field(default_factory=Checks)
    not_repeated: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """
    An output of a function that is not finite, as in `jaxmon.agent.checks.outputs`.

    Attributes:
        name: where it is in what the function returns.
        state: ``nonfinite``, ``infinite`` or ``always_nan``.
        samples: those without a finite value, up to the latest.
        call: number of the first of these calls, and *time*, its Unix time.
        finite_call: number of the last call whose values were finite, and
            *finite_value*, that of a scalar.
        recovered: how often it became finite again.
    """

    name: str = ""
    state: str = ""
    samples: int = 0
    call: int = 0
    time: float = 0.0
    finite_call: int = 0
    finite_value: float | None = None
    recovered: int = 0


@dataclass(frozen=True, slots=True)
class Numerics:
    """Values read from a function's outputs, and its programs in float64."""

    values: int = 0
    nonfinite: int = 0
    float64_programs: int = 0
    outputs: tuple[Output, ...] = ()


@dataclass(frozen=True, slots=True)
class Keys:
    """For how many samples, and calls, a function has had the same PRNG key."""

    samples: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """
    XLA's analysis of a function's latest program; `None` if unknown.

    Attributes:
        programs: number of different programs of the function.
        fingerprint: equal for equal programs, whichever process compiled them.
        finished: Unix time when it was compiled or loaded, 0 if unknown.
        devices: number of devices it runs on, of all processes.
        double: whether it multiplies matrices of float64, or convolves with them.
    """

    programs: int | None = None
    fingerprint: str = ""
    finished: float = 0.0
    devices: int | None = None
    flops: float | None = None
    temporary_bytes: float | None = None
    double: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """Statistics of one function; calls and hits are `None` if not counted."""

    name: str = ""
    internal: bool = False
    calls: int | None = None
    hits: int | None = None
    misses: int = 0
    compiles: Mapping[str, int] = field(default_factory=dict)
    recompiles: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, Phase] = field(default_factory=dict)
    program: Program = field(default_factory=Program)
    samples: Mapping[str, float] = field(default_factory=dict)
    numerics: Numerics = field(default_factory=Numerics)
    determinism: Determinism = field(default_factory=Determinism)
    keys: Keys = field(default_factory=Keys)

    @property
    def compile_time(self) -> float:
        """Seconds of tracing, lowering, compiling and loading."""
        return sum(phase.seconds for phase in self.phases.values())

    @property
    def built(self) -> int:
        """Programs compiled or loaded, including failed attempts."""
        return sum(self.compiles.values())

    @property
    def device_seconds(self) -> float:
        """Seconds that the device computed it: mean execution time times calls."""
        return self.samples.get("execution_mean", 0.0) * (self.calls or 0)

    def recompile_time(self, cause: str) -> float:
        """Seconds of compile time for *cause*, as if all compiles took as long."""
        part = self.recompiles.get(cause, 0) / max(self.built, 1)
        return self.compile_time * min(part, 1.0)


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
    """The persistent compilation cache."""

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


@dataclass(frozen=True, slots=True)
class Device:
    """A device and its memory in bytes; `None` if JAX does not report it."""

    device: str = ""
    kind: str = ""
    in_use: float | None = None
    peak: float | None = None
    limit: float | None = None
    pool: float | None = None
    largest_free_block: float | None = None
    largest_allocation: float | None = None
    live_arrays: int | None = None
    live_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What the devices hold."""

    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A source line that holds device memory."""

    file: str = ""
    line: int = 0
    function: str = ""
    bytes: float = 0.0
    arrays: int = 0
    growth_bytes: float = 0.0

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        return _place(self.file, self.line)


@dataclass(frozen=True, slots=True)
class Leak:
    """
    Device memory that kept growing, and the lines that hold it.

    Attributes:
        full_in_seconds: when it fills the device at that pace; `None` if unknown.
    """

    device: str = ""
    growth_bytes: float = 0.0
    seconds: float = 0.0
    full_in_seconds: float | None = None
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocations:
    """
    Device memory by source line.

    Attributes:
        time: Unix time of the last snapshot, `None` if there was none.
        seconds: from the first to the last snapshot, the period of the growth.
    """

    time: float | None = None
    seconds: float = 0.0
    lines: tuple[Line, ...] = ()
    leaks: tuple[Leak, ...] = ()


@dataclass(frozen=True, slots=True)
class Transfer:
    """A source line that moves data between host and device."""

    file: str = ""
    line: int = 0
    direction: str = ""
    how: str = ""
    count: int = 0
    bytes: float = 0.0
    seconds: float = 0.0

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        return _place(self.file, self.line)


@dataclass(frozen=True, slots=True)
class Transfers:
    """
    What moves between host and device.

    Attributes:
        lines: the source lines that transfer.
        arguments: bytes of NumPy arguments in a call, by function.
    """

    arguments: Mapping[str, float] = field(default_factory=dict)
    lines: tuple[Transfer, ...] = ()


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
        return _place(self.file, self.line)


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


@dataclass(frozen=True, slots=True)
class Warned:
    """What JAX warned of, by kind, function and line; *text* is that of the first."""

    kind: str = ""
    function: str = ""
    where: str = ""
    text: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """
    A value that the program logged.

    Attributes:
        step: of the program, or counted from 1.
        time: Unix time, if known.
        kind: ``nan`` or ``inf``; empty if finite.
        usual: the median before it.
    """

    step: int = 0
    value: float = 0.0
    time: float = 0.0
    kind: str = ""
    usual: float = 0.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """
    A quantity that the program logs, as in `jaxmon.indicators.trend`.

    Attributes:
        count: number of values.
        nonfinite: how many are not finite.
        run: how many of these are the latest.
        since: the first of these.
        latest: the latest finite value.
        spikes: values far above those before them.
        spike: the latest of these.
        first: median of the first values.
        best: lowest median of consecutive values.
        floor: what nine tenths of the latest 50 values exceed.
    """

    name: str = ""
    count: int = 0
    nonfinite: int = 0
    run: int = 0
    since: LoggedValue | None = None
    latest: LoggedValue | None = None
    spikes: int = 0
    spike: LoggedValue | None = None
    first: float | None = None
    best: float | None = None
    floor: float | None = None


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
    queues: tuple[Queue, ...] = ()
    memory: Memory = field(default_factory=Memory)
    allocations: Allocations = field(default_factory=Allocations)
    cache: Cache = field(default_factory=Cache)
    signatures: Signatures = field(default_factory=Signatures)
    transfers: Transfers = field(default_factory=Transfers)
    tracing: Tracing = field(default_factory=Tracing)
    time: WallTime = field(default_factory=WallTime)
    errors: Errors = field(default_factory=Errors)
    values: tuple[Quantity, ...] = ()
    slower: tuple[Slower, ...] = ()
    warnings: tuple[Warned, ...] = ()
    exports: Exports = field(default_factory=Exports)
    hooks: Mapping[str, bool] = field(default_factory=dict)
    internal_errors: Mapping[str, int] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    recompiles: tuple[Recompile, ...] = ()

    @property
    def compile_time(self) -> float:
        """Seconds that the compiles of all functions together took."""
        return sum(one.compile_time for one in self.functions)

    def of_kind(self, kind: str) -> list[Event]:
        """Return the events of *kind*, oldest first."""
        return [one for one in self.events if one.kind == kind]


def read(overview: object, events: object = None) -> Snapshot:
    """
    Return the content of ``/debug/overview`` and ``/debug/events``, functions by
    compile time.
    """
    happened = mapping(events).get("events")
    found = from_json(Snapshot, {**mapping(overview), "events": happened})
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
    return replace(found, functions=tuple(functions), recompiles=tuple(recompiles))


def _importance(function: Function) -> tuple[float, int]:
    return -function.compile_time, -(function.calls or function.misses)


def _place(file: str, line: int) -> str:
    return f"{file}:{line}" if file and line else file
