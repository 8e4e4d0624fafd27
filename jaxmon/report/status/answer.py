"""
Whether users are all right, in one sentence with its reasons.

The numbers of the last minute decide, by the limits of findings and alerts; so a fault
that is over is none any more. Findings add what only they can see. A fault is failing
where its alert pages, and degraded where it is a ticket, or not due yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jaxmon import catalog
from jaxmon.formats.durations import seconds as seconds_in
from jaxmon.formats.layout import amount, clean, counted, duration, share, size
from jaxmon.limits import Limits
from jaxmon.report.findings.errors import many_fail
from jaxmon.report.findings.serving import hangs
from jaxmon.report.findings.values import is_training_loss
from jaxmon.report.status.because import explained
from jaxmon.report.status.model import (
    AcceleratorSummary,
    AgentSummary,
    Answer,
    DeviceSummary,
    LoopSummary,
    Reason,
    ReasonKind,
    RequestSummary,
    State,
)
from jaxmon.report.status.reading import Reading, in_order
from jaxmon.report.status.recent import Recent
from jaxmon.report.status.verdicts import HostVerdict


STATES: tuple[State, ...] = ("failing", "degraded", "fine", "unknown")
"""The worst first."""

_MOST_LISTED = 4
# What is called a minute.
_MINUTE_LEAST, _MINUTE_MOST = 50.0, 90.0

# Findings that cost users something now, and those that only say what happened or is
# about to; the numbers of the last minute say the rest.
_NOW = ("stalled", "nonfinite", "nonfinite_value", "diverging")
_SOON = (
    *("oom", "leak", "queue", "error", "determinism", "gradients"),
    *("frozen_value", "dropped_update", "leaked_tracer"),
)

_NO_PROCESS = "Not known: no instrumented process runs here."
_NO_MARKS = "Not known: no program here marks its requests or steps."
_MARK = (
    'Mark what users wait for: @jaxmon.request("predict"), the middleware of '
    "jaxmon.asgi or jaxmon.wsgi, or the interceptor of jaxmon.grpc for requests; "
    "jaxmon.steps(loader) for a training loop."
)


_Judgement: TypeAlias = "tuple[State, str] | None"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the processes, besides the findings."""

    now: Reading
    recent: Recent
    requests: Sequence[RequestSummary]
    loops: Sequence[LoopSummary]
    agents: Sequence[AgentSummary]
    devices: Sequence[DeviceSummary]
    accelerators: Sequence[AcceleratorSummary]
    limits: Limits


def answer(known: Known, verdict: HostVerdict) -> Answer:
    """Return whether users are all right."""
    reasons = [one for rule in _RULES for one in rule(known)]
    reasons += _of_findings(known, verdict, {one["text"] for one in reasons})
    reasons = explained(reasons, verdict, known.now)
    reasons.sort(key=lambda one: STATES.index(one["state"]))
    marked = bool(known.requests or known.loops)
    advice = "" if marked or not known.agents else _MARK
    if reasons:
        first, rest = reasons[0], len(reasons) - 1
        lead = "No" if first["state"] == "failing" else "Not quite"
        more = f" And {counted(rest, 'more reason')}." if rest else ""
        text = f"{lead}: {first['text']}{more}"
        return Answer(state=first["state"], text=text, reasons=reasons, advice=advice)
    if not marked:
        text = _NO_MARKS if known.agents else _NO_PROCESS
        return Answer(state="unknown", text=text, reasons=[], advice=advice)
    return Answer(state="fine", text=_fine(known), reasons=[], advice="")


def _fine(known: Known) -> str:
    """Return what goes on while nothing is wrong."""
    said = []
    rates = [one["rate"] for one in known.requests if one["rate"] is not None]
    if rates and sum(rates) > 0:
        said.append(f"{amount(sum(rates))} requests a second, and none fails")
        if any(one["recent_failed"] for one in known.requests):
            said[-1] = f"{amount(sum(rates))} requests a second, and hardly any fails"
    running = [one for one in known.loops if one["age"] is not None]
    if len(running) == 1 and running[0]["rate"]:
        loop = running[0]
        rate = amount(loop["rate"] or 0)
        steps = "step" if rate == "1" else "steps"
        said.append(f"{rate} {steps} a second in {_named(loop)}")
    elif running:
        said.append(f"{counted(len(running), 'loop')} at work")
    elif ended := [one for one in known.loops if one["rate"]]:
        loop = max(ended, key=lambda one: one["steps"])
        said.append(f"{_named(loop)} ended after {counted(loop['steps'], 'step')}")
    if not said:
        return "Yes, as far as known: no request and no step in the last minute."
    return f"Yes: {'; '.join(said)}."


def _requests(known: Known) -> Iterator[Reason]:
    """Yield routes whose requests fail, hang, wait for compiles, or are slow."""
    for one in known.requests:
        # What ended processes counted is not about those that respond now.
        inherited = any(map(known.now.inherited, one["workers"]))
        for kind, rule in _OF_ROUTE:
            if inherited and rule is _failed:
                continue
            if (reason := rule(one, known.limits)) is not None:
                state, text = reason
                yield _reason(kind, state, text, one["workers"], one["route"])
                break


def _failing(one: RequestSummary, limits: Limits) -> _Judgement:
    route = clean(one["route"])
    failed, finished = one["recent_failed"], one["recent"]
    if failed and finished:
        period = _period(one["recent_seconds"])
        described = f"{failed:,.0f} of {counted(finished, 'request')} to {route} failed"
        text = f"{described} in the last {period}."
        if many_fail(failed, finished, limits):
            return "failing", text
        if failed == finished:
            return "degraded", text
    return None


def _failed(one: RequestSummary, limits: Limits) -> _Judgement:
    """Judge by all that was counted, where no request came in the last minute."""
    route, finished = clean(one["route"]), one["recent"]
    if finished or not many_fail(one["failed"], one["total"], limits):
        return None
    described = (
        f"{one['failed']:,.0f} of {counted(one['total'], 'request')} to {route} failed"
    )
    if finished is None:
        return "failing", f"{described} since the start."
    return "degraded", f"{described}; none has come in the last minute."


def _stuck(one: RequestSummary, limits: Limits) -> _Judgement:
    oldest, waiting = one["oldest"], one["in_progress"]
    # Of a process that has just started, what it did until they began to hang.
    warm = one["warm"]
    enough = warm is not None and warm["count"] >= limits.requests_judged
    usual = one["usual_p95"] or (warm["p95"] if warm and enough else None)
    if oldest is None or not waiting:
        return None
    described = f"{counted(waiting, 'request')} in progress, the oldest for"
    late = max(
        seconds_in(limits.unanswered_after), limits.unanswered_times * (usual or 0.0)
    )
    if not one["recent"] and oldest >= late:
        lead = f"no request to {clean(one['route'])} finishes"
        text = f"{lead}: {described} {duration(oldest)}"
        return _paged(text, oldest, limits.hang_after)
    if usual and hangs(oldest, usual, limits):
        lead = f"requests to {clean(one['route'])} hang"
        return "degraded", (
            f"{lead}: {described} {duration(oldest)}; "
            f"95 % of warm requests take up to {duration(usual)}."
        )
    return None


def _waiting(one: RequestSummary, limits: Limits) -> _Judgement:
    part, cold = one["cold_ratio"], one["cold"]
    if part is None or cold is None or cold["count"] <= limits.cold_requests:
        return None
    if part <= limits.cold_share or cold["p95"] is None:
        return None
    return "degraded", (
        f"{share(part, 1)} of the requests to {clean(one['route'])} wait for a "
        f"compile, and take up to {duration(cold['p95'])}."
    )


def _slow(one: RequestSummary, limits: Limits) -> _Judgement:
    # Quantiles are estimates: by a bound between two buckets, they may seem to double.
    warm = one["warm"]
    if warm is None or warm["count"] < limits.requests_judged:
        return None
    # What has been slow for long is a part of the usual p95 before it is of the median.
    for part, now, usual in (
        ("95 % take", warm["p95"], one["usual_p95"]),
        ("half of them take", warm["p50"], one["usual_p50"]),
    ):
        if not usual or not now:
            continue
        if now >= max(limits.slow_requests * usual, usual + limits.slow_requests_by):
            return "degraded", (
                f"warm requests to {clean(one['route'])} are slow: {part} up to "
                f"{duration(now)}, before {duration(usual)}."
            )
    return None


def _loops(known: Known) -> Iterator[Reason]:
    """
    Yield loops that do not get on, or slower than before: of the last minute there is
    the mean only, and users wait for that.
    """
    limits = known.limits
    least = seconds_in(limits.late_step)
    for one in known.loops:
        age, usual, mean = one["age"], one["usual"], one["mean"]
        if age is None:
            continue
        late = max(least, limits.late_step_times * (usual or mean or 0.0))
        if age >= late and not _excused(known, one["age_worker"]):
            text = f"{_named(one)} is stuck: its last step was {duration(age)} ago"
            state, text = _paged(text, age, limits.stalled_after, late)
            stuck = [one["age_worker"]]
            yield _reason("loop_stuck", state, text, stuck, one["loop"])
        elif usual and mean and mean >= limits.slowdown * usual and one["rate"]:
            text = (
                f"{_named(one)} is slow: a step takes {duration(mean)}, before "
                f"{duration(usual)}."
            )
            yield _reason("loop_slow", "degraded", text, one["workers"], one["loop"])


def _excused(known: Known, worker: str) -> bool:
    """Return whether a process compiles, or is busy with an activity that it marks."""
    if known.now.of(catalog.COMPILES_IN_PROGRESS).get((worker,)):
        return True
    running = known.now.of(catalog.ACTIVITY_RUNNING_SECONDS)
    return any(value and key[0] == worker for key, value in running.items())


def _values(known: Known) -> Iterator[Reason]:
    """Yield values that are not finite any more."""
    found: dict[tuple[str, str, State], list[str]] = {}
    limits = known.limits
    for (worker, name), run in known.now.of(catalog.VALUE_NONFINITE_RUN).items():
        is_loss = is_training_loss(name)
        if run >= limits.nonfinite_losses if is_loss else run > limits.nonfinite_values:
            state: State = "failing" if is_loss else "degraded"
            key = name, f"the logged {clean(name)} is", state
            found.setdefault(key, []).append(worker)
    for (worker, name), outputs in known.now.of(catalog.NONFINITE_OUTPUTS).items():
        if outputs:
            key = name, f"outputs of {clean(name)} are", "degraded"
            found.setdefault(key, []).append(worker)
    for (name, what, state), workers in found.items():
        text = f"{what} NaN or infinite."
        yield _reason("nonfinite", state, text, in_order(workers), name)


def _processes(known: Known) -> Iterator[Reason]:
    """Yield processes that died, do not respond, or compile forever."""
    died = [one["worker"] for one in known.agents if one["died"]]
    if died:
        text = f"{_listed('worker', died)} crashed."
        yield _reason("crashed", "failing", text, died)
    silent = [
        one["worker"] for one in known.agents if not one["up"] and not one["died"]
    ]
    if silent:
        does = "do" if len(silent) > 1 else "does"
        text = f"{_listed('worker', silent)} {does} not respond."
        yield _reason("silent", "degraded", text, silent)
    for one in known.agents:
        age = one["compile_oldest"] or 0.0
        if age > seconds_in(known.limits.stuck_after):
            yield _reason(
                "compile_stuck",
                "degraded",
                f"a compile has been running for {duration(age)}.",
                [one["worker"]],
            )


def _memory(known: Known) -> Iterator[Reason]:
    """Yield devices and hosts whose memory is about to run out."""
    for one in known.devices:
        used, limit = one["memory_in_use"], one["memory_limit"]
        if used is not None and limit and used / limit > known.limits.device_memory:
            yield _reason(
                "device_memory",
                "degraded",
                f"device {one['device']} is about to run out of memory: "
                f"{share(used, limit)} of {size(limit)} in use.",
                [one["worker"]],
            )
    for key, left in known.now.of(catalog.HOST_MEMORY_AVAILABLE_BYTES).items():
        whole = known.now.of(catalog.HOST_MEMORY_SIZE_BYTES).get(key)
        if whole and left < known.limits.host_memory_left * whole:
            text = f"the host is about to run out of memory: {size(left)} are left."
            yield _reason("host_memory", "degraded", text, [])


def _accelerators(known: Known) -> Iterator[Reason]:
    """Yield accelerators that are lost."""
    lost = [one["index"] for one in known.accelerators if one["up"] is False]
    if lost:
        does = "do" if len(lost) > 1 else "does"
        text = f"{_listed('accelerator', lost)} {does} not respond to the driver."
        yield _reason("accelerator", "failing", text, [])


def _checkpoints(known: Known) -> Iterator[Reason]:
    """Yield saves and restores of checkpoints that fail."""
    found: dict[str, dict[str, float]] = {}
    failures = known.recent.values(catalog.CHECKPOINT_FAILURES)
    for (worker, operation), failed in failures.items():
        if failed > 0:
            found.setdefault(operation, {})[worker] = failed
    for operation, of in found.items():
        many = counted(sum(of.values()), f"checkpoint {clean(operation)}")
        times = [known.recent.seconds(worker) or 0.0 for worker in of]
        text = f"{many} failed in the last {_period(max(times))}."
        yield _reason("checkpoints", "degraded", text, in_order(of), operation)


def _of_findings(
    known: Known, verdict: HostVerdict, texts: Iterable[str]
) -> Iterator[Reason]:
    """Yield what only the findings know, each once for all processes."""
    marked = {
        worker for one in (*known.loops, *known.requests) for worker in one["workers"]
    }
    found: dict[tuple[str, str], list[str]] = {}
    topics: dict[tuple[str, str], tuple[State, Mapping[str, Any]]] = {}
    for worker, process in verdict.processes.items():
        for one in process.findings or ():
            topic, key = one["topic"], (one["topic"], one["subject"])
            if topic in (*_NOW, *_SOON):
                state = _state_of(topic, one["subject"], marked=worker in marked)
                topics.setdefault(key, (state, one))
                found.setdefault(key, []).append(worker)
    live = " ".join(texts)
    for key, workers in found.items():
        state, finding = topics[key]
        # The numbers say that already.
        described = key[0] in _NOW and key[1] and f" {key[1]} " in live
        if not described and not (key[0] == "stalled" and "is stuck" in live):
            reason = _reason("finding", state, finding["verdict"], workers, key[1])
            evidence = [*finding["evidence"], finding["where"]]
            yield {**reason, "because": next(filter(None, evidence), "")}


def _state_of(topic: str, subject: str, *, marked: bool) -> State:
    """
    Return the state of a program with such a finding. When what is *marked* pages, its
    loops and requests say.
    """
    pages = (
        topic == "diverging"
        or (topic == "stalled" and not marked)
        or (topic == "nonfinite_value" and is_training_loss(subject))
    )
    return "failing" if pages else "degraded"


def _reason(
    kind: ReasonKind,
    state: State,
    text: str,
    workers: Iterable[str],
    subject: str = "",
) -> Reason:
    return Reason(
        state=state,
        kind=kind,
        subject=subject,
        text=text,
        because="",
        workers=list(workers),
    )


def _paged(text: str, age: float, page: str, least: float = 0.0) -> tuple[State, str]:
    """
    Return *text* as a sentence, with its state: an alert pages after *page*, or after
    *least* seconds if that is longer.
    """
    due = max(seconds_in(page), least)
    if age > due:
        return "failing", f"{text}."
    return "degraded", f"{text}; a page follows at {duration(due)}."


def _listed(noun: str, names: Sequence[str]) -> str:
    """Return ``workers 1, 2 and 7 more``."""
    if len(names) == 1:
        return f"{noun} {clean(names[0])}"
    shown = ", ".join(map(clean, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"{noun}s {shown}" + (f" and {more} more" if more > 0 else "")


def _named(loop: LoopSummary) -> str:
    return f"loop {clean(loop['loop'])}"


def _period(seconds: float | None) -> str:
    if seconds is None or _MINUTE_LEAST <= seconds <= _MINUTE_MOST:
        return "minute"
    return duration(round(seconds)).replace(".0 s", " s")


_RouteRule: TypeAlias = Callable[[RequestSummary, Limits], _Judgement]
_OF_ROUTE: tuple[tuple[ReasonKind, _RouteRule], ...] = (
    ("requests_fail", _failing),
    ("requests_fail", _failed),
    ("requests_hang", _stuck),
    ("requests_wait", _waiting),
    ("requests_slow", _slow),
)
_Rule = Callable[[Known], Iterable[Reason]]
_RULES: tuple[_Rule, ...] = (
    _requests,
    _loops,
    _values,
    _processes,
    _memory,
    _accelerators,
    _checkpoints,
)
