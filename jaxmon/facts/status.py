"""
The status of a host, or of one process, in JSON types.

Seconds and bytes throughout, ratios from 0 to 1, `None` for unknown values. ``recent``
is the last minute, or since a process started if that is less; totals are since the
processes started. Text in it comes from programs and is not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from jaxmon.facts.reading import Reading
from jaxmon.facts.recent import Recent
from jaxmon.limits import Limits


State = Literal["failing", "degraded", "fine", "unknown"]
"""Whether users are all right, the worst first; ``unknown`` if nothing is marked."""


class Reason(TypedDict):
    """
    Why users are not all right, in one sentence; ``workers`` are the processes.

    ``kind`` is the name of a symptom; `jaxmon.symptoms.table` has them all.
    ``because`` is the likely cause in one sentence, with its line if that is known, and
    empty without one. ``subject`` is the route, the loop or what else it is about.
    """

    state: State
    kind: str
    subject: str
    text: str
    because: str
    workers: list[str]


class Answer(TypedDict):
    """
    Whether users are all right.

    ``text`` is one sentence; ``reasons`` are all that is wrong, the worst first;
    ``advice`` says what to mark in the program if nothing is known.
    """

    state: State
    text: str
    reasons: list[Reason]
    advice: str


class Latency(TypedDict):
    """Quantiles of the latency of successful requests; ``count`` is how many."""

    count: float
    p50: float | None
    p95: float | None
    p99: float | None


class RequestSummary(TypedDict):
    """
    The requests of one route in all processes.

    ``rate``, ``error_ratio``, ``cold_ratio`` and the latencies are recent: ``latency``
    of all requests, ``warm`` of those that waited for no compile, ``cold`` of the
    others, `None` without any.
    ``usual_p50`` and ``usual_p95`` are those of warm requests before. ``oldest`` is the
    age of the oldest request in progress, in the process ``oldest_worker``.
    """

    route: str
    workers: list[str]
    total: float
    failed: float
    client_errors: float
    recent_seconds: float | None
    recent: float | None
    recent_failed: float | None
    rate: float | None
    error_ratio: float | None
    cold_ratio: float | None
    latency: Latency | None
    warm: Latency | None
    cold: Latency | None
    usual_p50: float | None
    usual_p95: float | None
    in_progress: float | None
    oldest: float | None
    oldest_worker: str


class QueueSummary(TypedDict):
    """A queue: items waiting now, in all processes that have it."""

    queue: str
    workers: list[str]
    depth: float


class BatchSummary(TypedDict):
    """The batches of a route; ``fill`` and ``rate`` are recent."""

    route: str
    workers: list[str]
    total: float
    rate: float | None
    fill: float | None


class LoopSummary(TypedDict):
    """
    The steps of the loops of one name in all processes.

    ``rate`` is that of the slowest process, ``mean`` is what a step takes, ``p50`` and
    ``p95`` are of step times, ``data_wait_ratio`` is the fraction of the steps spent
    waiting for data, ``goodput`` that of the wall time spent in steps; all recent.
    ``usual`` is the mean before. ``age`` is the time since the last step of the process
    ``age_worker``, the longest; `None` if no such loop runs.
    """

    loop: str
    workers: list[str]
    steps: float
    rate: float | None
    p50: float | None
    p95: float | None
    mean: float | None
    usual: float | None
    data_wait_ratio: float | None
    goodput: float | None
    age: float | None
    age_worker: str


class ErrorSummary(TypedDict):
    """Errors of one function and kind, in all processes."""

    function: str
    kind: str
    workers: list[str]
    count: float


class Totals(TypedDict):
    """
    Calls and compiles.

    ``hits`` and ``hit_rate`` are `None`, and ``calls`` is 0, if calls are not counted:
    functions of JAX itself, or the call layer is off. ``compiles`` were built,
    ``loads`` came from the persistent cache, ``failed_compiles`` did neither;
    ``compile_seconds`` adds up all phases but loading. ``errors`` are those of jitted
    functions and uncaught ones; failed requests have their own total.
    """

    calls: float
    hits: float | None
    misses: float
    hit_rate: float | None
    compiles: float
    loads: float
    failed_compiles: float
    recompiles: float
    compile_seconds: float
    errors: float


class FunctionSummary(Totals):
    """
    A function, summed over workers; ``causes`` are those of its recompiles, and
    ``internal`` is whether it is JAX's own. Functions without activity are not listed.
    """

    name: str
    internal: bool
    causes: dict[str, float]


class AgentSummary(TypedDict):
    """
    An instrumented process. An unresponsive one has only worker and ``up``; one that
    ``died`` ended without finishing, and none has its slot yet.

    ``findings`` are those of ``jaxmon explain --json``, `None` if unknown; ``verdict``
    is what it prints if nothing is to fix, else empty; ``trouble`` says why the
    findings are unknown, empty if they have not been read yet; ``notes`` say why some
    may be missing or wrong. ``observed_seconds`` is what they are about. ``pid`` and
    ``program``, its command line, are known with the findings only, as is ``doing``,
    where its time goes lately, in a sentence.
    """

    worker: str
    up: bool
    died: bool
    jax: str | None
    platform: str | None
    started: float | None
    age: float | None
    resident_bytes: float | None
    compiles_in_progress: float | None
    compile_oldest: float | None
    pid: int | None
    program: str
    observed_seconds: float | None
    findings: list[dict[str, Any]] | None
    verdict: str
    trouble: str
    notes: list[str]
    doing: str


class FindingsSummary(TypedDict):
    """
    The findings of all processes.

    ``shared`` are those that several processes have in common, with a list of these as
    ``workers``; ``age`` is in seconds, `None` if nothing was read; ``trouble`` says
    why there are none; ``runbooks`` is where the runbooks are.
    """

    shared: list[dict[str, Any]]
    age: float | None
    trouble: str
    runbooks: str


class AcceleratorSummary(TypedDict):
    """
    A device as seen by its driver, for all processes together; ``up`` is `None` if it
    is unknown whether it responds to the driver.
    """

    uuid: str
    index: str
    model: str
    up: bool | None
    utilization: float | None
    memory_used: float | None
    memory_size: float | None
    temperature: float | None
    power: float | None
    power_limit: float | None


class DeviceSummary(TypedDict):
    """A device as seen by JAX in one process; ``uuid`` is empty if unknown."""

    worker: str
    device: str
    platform: str
    kind: str
    uuid: str
    memory_in_use: float | None
    memory_limit: float | None
    live_arrays: float | None
    live_array_bytes: float | None


class CollectorSummary(TypedDict):
    """A collector of the sidecar; ``absent`` is normal on a host without its source."""

    name: str
    success: bool
    polled: bool
    age: float | None
    duration: float | None
    reason: str
    message: str
    absent: bool
    errors: dict[str, int]


class Summary(TypedDict):
    """
    Everything that a screen shows.

    ``functions`` are the program's first, then JAX's own, by compile time; those of
    more than 500 are omitted. ``limits`` are those by which it is judged that are not
    the defaults. ``whole`` is whether it is of all processes of a host, or
    of one. ``run_dir`` is where the sidecar looks for agents.
    """

    version: str
    time: float
    whole: bool
    run_dir: str
    limits: dict[str, Any]
    answer: Answer
    requests: list[RequestSummary]
    queues: list[QueueSummary]
    batches: list[BatchSummary]
    loops: list[LoopSummary]
    errors: list[ErrorSummary]
    totals: Totals
    functions: list[FunctionSummary]
    functions_omitted: int
    agents: list[AgentSummary]
    findings: FindingsSummary
    accelerators: list[AcceleratorSummary]
    devices: list[DeviceSummary]
    collectors: list[CollectorSummary]


class ProcessVerdict(NamedTuple):
    """
    What is wrong with one process.

    Args:
        pid: of the process.
        program: its command line.
        observed_seconds: since its agent was started.
        findings: as in ``jaxmon explain --json``, `None` if unknown.
        verdict: what is said if nothing is to fix, else ``""``.
        trouble: why the findings are unknown, as the predicate of a sentence.
        notes: why findings may be missing or wrong, in sentences.
        doing: where its time goes lately, in a sentence; empty if unknown.
    """

    pid: int | None = None
    program: str = ""
    observed_seconds: float | None = None
    findings: list[dict[str, Any]] | None = None
    verdict: str = ""
    trouble: str = ""
    notes: Sequence[str] = ()
    doing: str = ""


class HostVerdict(NamedTuple):
    """
    What is wrong with the processes of a host.

    Args:
        processes: by worker.
        shared: the findings that several processes have in common, with a list of
            these as ``workers``.
        trouble: why there are none.
        age: seconds since the agents were queried; `None` if they were not.
    """

    processes: Mapping[str, ProcessVerdict] = {}
    shared: list[dict[str, Any]] = []  # noqa: RUF012 - never changed
    trouble: str = ""
    age: float | None = None

    def of(self, worker: str) -> HostVerdict:
        """Return what is wrong with the process *worker* alone."""
        known = self.processes.get(worker)
        alone = {} if known is None else {worker: known}
        return self._replace(processes=alone, shared=[])

    def current(self, uptimes: Mapping[str, float]) -> HostVerdict:
        """
        Return what is wrong with those processes that ran when the agents were queried:
        others, by their *uptimes*, are successors that are not judged yet.
        """
        age = self.age or 0.0
        gone = {worker for worker in self.processes if uptimes.get(worker, age) < age}
        return self._replace(
            processes={
                worker: one
                for worker, one in self.processes.items()
                if worker not in gone
            },
            shared=[one for one in self.shared if gone.isdisjoint(one["workers"])],
        )


UNREAD = HostVerdict()
"""Before anything was read."""


class HostFacts(NamedTuple):
    """What is known of the processes of a host, and the limits to judge by."""

    now: Reading
    recent: Recent
    requests: Sequence[RequestSummary]
    loops: Sequence[LoopSummary]
    agents: Sequence[AgentSummary]
    devices: Sequence[DeviceSummary]
    accelerators: Sequence[AcceleratorSummary]
    verdict: HostVerdict
    limits: Limits
