"""
The status of a host, or of one process: the content of ``/api/summary``.

Seconds and bytes throughout, ratios from 0 to 1, `None` for unknown values. ``recent``
is the last minute, or since a process started if that is less; totals are since the
processes started, those of ended processes of their slots included. Text in it comes
from programs and is not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jaxmon.facts.process import JobRank
from jaxmon.facts.record import NOTHING, Fact


State = Literal["failing", "degraded", "fine", "unknown"]
"""Whether users are all right, the worst first; ``unknown`` if nothing is marked."""


class Reason(Fact):
    """
    Why users are not all right, in one sentence; ``workers`` are the processes.

    ``kind`` is the name of a symptom; `jaxmon.symptoms.findings` has them all.
    ``because`` is the likely cause in one sentence, with its line if that is known, and
    empty without one. ``subject`` is the route, the loop or what else it is about.
    """

    state: State = "unknown"
    kind: str = ""
    subject: str = ""
    text: str = ""
    because: str = ""
    workers: tuple[str, ...] = ()


class Answer(Fact):
    """
    Whether users are all right, or what else there is: the ``question``.

    ``text`` answers it in one sentence; ``reasons`` are all that is wrong, the worst
    first; ``advice`` says what to change in the program if nothing is known.
    """

    state: State = "unknown"
    text: str = ""
    reasons: tuple[Reason, ...] = ()
    advice: str = ""
    question: str = "Is everything all right?"


class Latency(Fact):
    """Quantiles of the latency of successful requests; ``count`` is how many."""

    count: float = 0.0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class RequestSummary(Fact):
    """
    The requests of one route in all processes.

    ``rate``, of the last ``rate_seconds``, ``error_ratio``, ``cold_ratio`` and the
    latencies are recent: ``latency`` of all requests, ``warm`` of those that waited for
    no compile, ``cold`` of the others, `None` without any; ``cold_total`` is how many
    did since the start.
    ``usual_p50`` and ``usual_p95`` are those of the ``usual_count`` warm requests
    before. ``oldest`` is the age of the oldest request in progress, in the process
    ``oldest_worker``.
    """

    route: str = ""
    workers: tuple[str, ...] = ()
    total: float = 0.0
    failed: float = 0.0
    client_errors: float = 0.0
    cold_total: float = 0.0
    recent_seconds: float | None = None
    recent: float | None = None
    recent_failed: float | None = None
    recent_client_errors: float | None = None
    rate: float | None = None
    rate_seconds: float | None = None
    error_ratio: float | None = None
    cold_ratio: float | None = None
    latency: Latency | None = None
    warm: Latency | None = None
    cold: Latency | None = None
    usual_p50: float | None = None
    usual_p95: float | None = None
    usual_count: float = 0.0
    in_progress: float | None = None
    oldest: float | None = None
    oldest_worker: str = ""


class QueueSummary(Fact):
    """A queue: items waiting now, in all processes that have it."""

    queue: str = ""
    workers: tuple[str, ...] = ()
    depth: float = 0.0


class BatchSummary(Fact):
    """The batches of a route; ``fill`` and ``rate`` are recent."""

    route: str = ""
    workers: tuple[str, ...] = ()
    total: float = 0.0
    rate: float | None = None
    fill: float | None = None


class LoopSummary(Fact):
    """
    The steps of the loops of one name in all processes.

    ``rate`` is that of the slowest process in its last ``rate_seconds``, ``mean`` is
    what a step takes, ``p50`` and ``p95`` are of step times, ``data_wait_ratio`` is the
    fraction of the steps spent waiting for data, ``goodput`` that of the wall time
    spent in steps; all recent. ``usual`` is the mean before. ``age`` is the time since
    the last step of the process ``age_worker``, the longest; `None` if no such loop
    runs.
    """

    loop: str = ""
    workers: tuple[str, ...] = ()
    steps: float = 0.0
    rate: float | None = None
    rate_seconds: float | None = None
    p50: float | None = None
    p95: float | None = None
    mean: float | None = None
    usual: float | None = None
    data_wait_ratio: float | None = None
    goodput: float | None = None
    age: float | None = None
    age_worker: str = ""


class ErrorSummary(Fact):
    """Errors of one function and kind, in all processes."""

    function: str = ""
    kind: str = ""
    workers: tuple[str, ...] = ()
    count: float = 0.0


class Totals(Fact):
    """
    Calls and compiles.

    ``hits`` and ``hit_rate`` are `None`, and ``calls`` is 0, if calls are not counted:
    functions of JAX itself, or the call layer is off. ``compiles`` were built,
    ``loads`` came from the persistent cache, ``failed_compiles`` did neither;
    ``compile_seconds`` adds up all phases but loading. ``errors`` are those of jitted
    functions and uncaught ones; failed requests have their own total.
    """

    calls: float = 0.0
    hits: float | None = None
    misses: float = 0.0
    hit_rate: float | None = None
    compiles: float = 0.0
    loads: float = 0.0
    failed_compiles: float = 0.0
    recompiles: float = 0.0
    compile_seconds: float = 0.0
    errors: float = 0.0


class FunctionSummary(Totals):
    """
    A function, summed over workers; ``causes`` are those of its recompiles, and
    ``internal`` is whether it is JAX's own. Functions without activity are not listed.
    """

    name: str = ""
    internal: bool = False
    causes: Mapping[str, float] = NOTHING


class FindingSummary(Fact):
    """
    A finding, and what those of its topic have in common; that may be empty.

    Attributes:
        severity: ``page`` or ``ticket``, if by itself it makes users not all right.
        urgency: ``failure``, ``time``, ``hint`` or ``note``.
    """

    topic: str = ""
    subject: str = ""
    verdict: str = ""
    evidence: tuple[str, ...] = ()
    action: str = ""
    where: str = ""
    seconds: float = 0.0
    severity: str = ""
    urgency: str = ""
    metric: str = ""
    panel: str = ""
    runbook: str = ""


class SharedFinding(FindingSummary):
    """A finding that several processes have in common, the ``workers``."""

    workers: tuple[str, ...] = ()


class CallRate(Fact):
    """
    The jitted ``function`` that a process calls most, if it marks nothing, and its
    ``rate``: calls a second within the last ``seconds``. ``loop`` is the line of the
    loop that does so again and again, if one is recognised from samples; ``earlier`` is
    about its rate before, if that was far higher. ``age`` is how long ago the latest
    call was, if that is long; then there is no rate, and ``place`` is where the program
    waits for work. Else it is the line that calls a function of a library.
    """

    function: str = ""
    rate: float = 0.0
    loop: str = ""
    seconds: float | None = None
    age: float | None = None
    place: str = ""
    earlier: float = 0.0


class ProcessVerdict(Fact):
    """
    What is wrong with one process.

    ``findings`` are those of ``jaxmon explain --json``, `None` if unknown; ``verdict``
    is what it prints if nothing is to fix, else empty; ``trouble`` says why the
    findings are unknown, as the predicate of a sentence, empty if they have not been
    read yet; ``notes`` say why some may be missing or wrong. ``observed_seconds`` is
    what they are about. ``release`` is the program's. ``pid``, ``program``, its command
    line, and ``rank``, which process of its job it is, are known with the findings
    only, as is ``doing``, where its time goes lately, in a sentence.
    ``crashed_seconds`` is how long ago an exception ended it, `None` if none did, and
    ``ended_seconds`` how long ago it ended without finishing, if it did;
    ``unrecorded`` is whether it ended without a record: killed, or stopped by a signal.
    ``repeated`` says how processes before it in its slot failed in a row, or one was
    killed, if so.
    ``calling`` is what it calls, if it marks nothing, and ``recognised`` are the
    frameworks whose requests are counted without a mark.
    """

    pid: int | None = None
    program: str = ""
    observed_seconds: float | None = None
    findings: tuple[FindingSummary, ...] | None = None
    verdict: str = ""
    trouble: str = ""
    notes: tuple[str, ...] = ()
    doing: str = ""
    crashed_seconds: float | None = None
    ended_seconds: float | None = None
    unrecorded: bool = False
    repeated: str = ""
    calling: CallRate = CallRate()
    recognised: tuple[str, ...] = ()
    release: str = ""
    rank: JobRank = JobRank()


class AgentSummary(ProcessVerdict):
    """
    An instrumented process. An unresponsive one has only worker and ``up``; one that
    ``died`` ended without finishing, and none has its slot yet.
    """

    worker: str = ""
    up: bool = False
    died: bool = False
    jax: str | None = None
    platform: str | None = None
    started: float | None = None
    age: float | None = None
    resident_bytes: float | None = None
    compiles_in_progress: float | None = None
    compile_oldest: float | None = None


class FindingsSummary(Fact):
    """
    The findings of all processes.

    ``shared`` are those that several have in common; ``age`` is in seconds, `None` if
    nothing was read; ``trouble`` says why there are none; ``runbooks`` is where the
    runbooks are.
    """

    shared: tuple[SharedFinding, ...] = ()
    age: float | None = None
    trouble: str = ""
    runbooks: str = ""


class AcceleratorSummary(Fact):
    """
    A device as seen by its driver, for all processes together; ``up`` is `None` if it
    is unknown whether it responds to the driver.
    """

    uuid: str = ""
    index: str = ""
    model: str = ""
    up: bool | None = None
    utilization: float | None = None
    memory_used: float | None = None
    memory_size: float | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None


class DeviceSummary(Fact):
    """A device as seen by JAX in one process; ``uuid`` is empty if unknown."""

    worker: str = ""
    device: str = ""
    platform: str = ""
    kind: str = ""
    uuid: str = ""
    memory_in_use: float | None = None
    memory_limit: float | None = None
    live_arrays: float | None = None
    live_array_bytes: float | None = None


class CollectorSummary(Fact):
    """A collector of the sidecar; ``absent`` is normal on a host without its source."""

    name: str = ""
    success: bool = False
    polled: bool = False
    age: float | None = None
    duration: float | None = None
    reason: str = ""
    message: str = ""
    absent: bool = False
    errors: Mapping[str, int] = NOTHING


class Summary(Fact):
    """
    Everything that a screen shows.

    ``functions`` are the program's first, then JAX's own, by compile time; those of
    more than 500 are omitted. ``limits`` are those by which it is judged that are not
    the defaults. ``whole`` is whether it is of all processes of a host, or
    of one. ``run_dir`` is where the sidecar looks for agents.
    """

    version: str = ""
    time: float = 0.0
    whole: bool = False
    run_dir: str = ""
    limits: Mapping[str, Any] = NOTHING
    answer: Answer = Answer()
    requests: tuple[RequestSummary, ...] = ()
    queues: tuple[QueueSummary, ...] = ()
    batches: tuple[BatchSummary, ...] = ()
    loops: tuple[LoopSummary, ...] = ()
    errors: tuple[ErrorSummary, ...] = ()
    totals: Totals = Totals()
    functions: tuple[FunctionSummary, ...] = ()
    functions_omitted: int = 0
    agents: tuple[AgentSummary, ...] = ()
    findings: FindingsSummary = FindingsSummary()
    accelerators: tuple[AcceleratorSummary, ...] = ()
    devices: tuple[DeviceSummary, ...] = ()
    collectors: tuple[CollectorSummary, ...] = ()


class HostVerdict(Fact):
    """
    What is wrong with the ``processes`` of a host, by worker; the rest is as in
    `FindingsSummary`.
    """

    processes: Mapping[str, ProcessVerdict] = NOTHING
    shared: tuple[SharedFinding, ...] = ()
    trouble: str = ""
    age: float | None = None

    def of(self, worker: str) -> HostVerdict:
        """Return what is wrong with the process *worker* alone."""
        verdict = self.processes.get(worker)
        alone = {} if verdict is None else {worker: verdict}
        return self.replace(processes=alone, shared=())

    def current(self, uptimes: Mapping[str, float]) -> HostVerdict:
        """
        Return what is wrong with those processes that ran when the agents were queried:
        others, by their *uptimes*, are successors that are not judged yet.
        """
        age = self.age or 0.0
        replaced = {
            worker for worker in self.processes if uptimes.get(worker, age) < age
        }
        return self.replace(
            processes={
                worker: verdict
                for worker, verdict in self.processes.items()
                if worker not in replaced
            },
            shared=tuple(o for o in self.shared if replaced.isdisjoint(o.workers)),
        )


UNREAD = HostVerdict()
"""Before anything was read."""
