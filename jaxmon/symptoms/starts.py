"""Starts and ends of processes: deployments, warm-ups, crash loops, runs that died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from jaxmon import catalog, promql
from jaxmon.facts.marked import RouteFacts
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.record import summed
from jaxmon.facts.status import AgentSummary, Reason
from jaxmon.host.formats import durations
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration, share, share_of_time
from jaxmon.limits import Limits
from jaxmon.promql import Expr, RecordedSeries, eq, events, gauge, gauge_over, re
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import (
    A_PROCESS,
    COUNT,
    INFO,
    PAGE,
    PROCESS,
    TICKET,
    Alert,
    SiteLimits,
)
from jaxmon.symptoms.reason import listed, processes, reason
from jaxmon.symptoms.recompiles import recompiles
from jaxmon.symptoms.symptom import HINT, NO_SCREEN, RULES_ONLY, Finding, Symptom


DEPLOY_ALERT = "JaxmonDeployInProgress"
YOUNG = f"job:{catalog.UPTIME_SECONDS.name}:young_ratio"
"""Recorded fraction of a job's processes that started within ``deploy_window``."""
_MOST_ROUTES = 3


def cold_requests(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect compiles on requests that a warm-up would have avoided: the next replica has
    the same ones. Not of a function that keeps recompiling: what it will be called with
    is not known.
    """
    made, late = snapshot.signatures, snapshot.ready.compiles
    if not made.recorded or made.warmed or late or any(recompiles(snapshot)):
        return
    routes = [(_waited(route), _cold(route), route.name) for route in snapshot.requests]
    waited = sum(seconds for seconds, _, _ in routes)
    observed = snapshot.process.observed_seconds
    limits = snapshot.limits
    if waited < max(seconds_in(limits.slow_start), limits.time_part * observed):
        return
    slow = [route for route in sorted(routes, reverse=True) if route[0]]
    count = sum(number for _, number, _ in slow)
    to = f" to {slow[0][2]}" if len(slow) == 1 else f", most to {slow[0][2]},"
    yield Finding(
        "cold_requests",
        "",
        f"{counted(count, 'request')}{to} waited about {duration(waited)} for "
        "compiles that a warm-up would have avoided.",
        tuple(
            f"{name}: {counted(number, 'request')}, {duration(seconds)}"
            for seconds, number, name in slow[:_MOST_ROUTES]
        ),
        "What they waited for is recorded, "
        f"{counted(made.recorded, 'signature')}: write it to a file with `jaxmon "
        "signatures export`, and let the next process compile it before it serves "
        "(docs/persistent-cache.md#warm-starts).",
        # Several requests may wait for the same compile.
        seconds=min(waited, snapshot.compile_time),
    )


def _cold(route: RouteFacts) -> int:
    return sum(part.count for part in route.finished if part.start == "cold")


def _waited(route: RouteFacts) -> float:
    """Return how much longer cold requests took than warm ones, 0 if unknown."""
    usual = [
        part.p50_seconds
        for part in route.finished
        if (part.outcome, part.start) == ("success", "warm")
    ]
    if not usual or usual[0] is None:
        return 0.0
    return sum(
        part.count * max((part.mean_seconds or 0.0) - usual[0], 0.0)
        for part in route.finished
        if part.start == "cold"
    )


def _warmed_in_vain(snapshot: Snapshot) -> Iterator[Finding]:
    ready, limits = snapshot.ready, snapshot.limits
    age = snapshot.process.now - ready.since if ready.since else 0.0
    idle = [function for function in ready.warmed if function.unused]
    took = sum(function.seconds for function in idle)
    settled = age >= seconds_in(limits.after_ready_window)
    if not settled or took < seconds_in(limits.recompile_noticed):
        return
    count = sum(function.unused for function in idle)
    idle.sort(key=lambda function: -function.seconds)
    yield Finding(
        "warmed_in_vain",
        "",
        f"A warm-up took {duration(took)} for {counted(count, 'signature')} that no "
        f"call has used in the {duration(age)} since the process is ready.",
        tuple(
            f"{function.name}, {function.unused} of {function.signatures}: "
            f"{'; '.join(function.unused_signatures[:_MOST_ROUTES])}"
            for function in idle[:_MOST_ROUTES]
        ),
        "Leave them out if that was usual traffic: `jaxmon signatures export --used` "
        "writes a file without them.",
        where=ready.where,
        seconds=took,
    )


def _deploy_in_progress(limits: SiteLimits) -> Alert:
    """
    Inhibit compile tickets of a job while a share of its processes is young.

    One replica of many that restarts is no deployment, and what goes on for longer than
    an hour is none.
    """
    share, hour = promql.recorded(YOUNG, labels=("job",)), limits.duration("1h")
    least = limits.deploy_share
    ended = (promql.recorded_over("min", share, durations.seconds(hour)) >= least).and_(
        share.offset(hour)
    )
    return Alert(
        expr=(share >= least).unless(ended),
        severity=INFO,
        description=(
            "Processes of a job started recently; their compiles are expected, and "
            "compile tickets are held back."
        ),
        summary=(
            "{{ $value | humanizePercentage }} of the processes of job "
            f"{{{{ $labels.job }}}} started within the last {limits.deploy_window}."
        ),
    )


def young_ratio(limits: SiteLimits) -> RecordedSeries:
    """Return how the fraction of each job's processes that are young is recorded."""
    within = limits.deploy_window
    ratio = promql.ratio(young(within, limits), recorded.running())
    sentence = f"Fraction of the processes of a job that are younger than {within}."
    return RecordedSeries(YOUNG, ratio, sentence)


def young(within: str, limits: SiteLimits) -> Expr:
    """
    Return how many processes of each job are younger than *within*, unless they restart
    so often within an hour that they count as a crash loop.
    """
    hour, began = limits.duration("1h"), catalog.PROCESS_START_TIME_SECONDS
    starts = promql.gauge_changes(began, hour).max("job") > 0
    starts = starts.record(
        *("job", began, f"changes{hour}"),
        f"How often the process of a job that starts most did so within {hour}.",
    )
    return recorded.young(within).unless(starts > limits.deploy_restarts)


def _not_ready(limits: Limits) -> Alert:
    waiting = gauge(catalog.READY).max(*PROCESS).equals(0)
    return Alert(
        expr=waiting,
        for_=limits.not_ready_for,
        description=(
            "A process is still not ready for requests: its warm-up is slow, or never "
            "began."
        ),
        summary=(A_PROCESS + f"has not been ready for {limits.not_ready_for}."),
    )


def _warmup_failed(limits: Limits) -> Alert:
    window = limits.warmup_window
    failed = events.WARMUPS.within(window, eq("result", "failed"))
    failed = failed.sum("job").record(
        *("job", catalog.WARMUP_SIGNATURES, f"failed{window}"),
        f"Signatures that failed to warm up within {window}.",
    )
    return Alert(
        expr=failed > 0,
        description=(
            "Signatures of a service fail to warm up; requests wait for their compiles."
        ),
        summary=(
            f"{COUNT} signatures of job {{{{ $labels.job }}}} failed to warm up in "
            f"{window}."
        ),
    )


def crashed(facts: HostFacts) -> Iterator[Reason]:
    """Yield processes that ended without finishing, and those that replace some."""
    died_in = facts.now.of(catalog.AGENT_DIED).items()
    marked = {worker for (worker, name), value in died_in if name and value}
    for route in facts.requests:
        marked.update(route.workers)
    for loop in facts.loops:
        marked.update(loop.workers)
    died = [a for a in facts.agents if a.died and not _is_past(a, facts)]
    for name, severity, some in (
        ("crashed", PAGE, [agent for agent in died if agent.worker in marked]),
        ("program_crashed", TICKET, [a for a in died if a.worker not in marked]),
    ):
        if some:
            workers = [agent.worker for agent in some]
            yield reason(name, severity, _how_crashed(some), workers)
    for of in facts.agents:
        if of.up and of.repeated:
            text = f"worker {of.worker} {of.repeated}"
            yield reason("ended_in_a_row", TICKET, text, [of.worker], of.worker)


def _is_past(agent: AgentSummary, facts: HostFacts) -> bool:
    """
    Return whether all that runs now began after *agent* ended: another program, or the
    same on fewer processes; or so many of its program as have ended. Its loops must go
    on there.
    """
    ended = agent.ended_seconds or 0.0
    up = {of.worker: of.age for of in facts.agents if of.up}
    later = [worker for worker, age in up.items() if age is not None and age < ended]
    same = [of for of in facts.agents if of.program and of.program == agent.program]
    replaced = sum(of.worker in later for of in same) >= sum(of.died for of in same) > 0
    began_later = len(later) == len(up) or replaced
    died_in = facts.now.of(catalog.AGENT_DIED).items()
    left = {name for (worker, name), value in died_in if worker == agent.worker}
    left -= {"", *(loop.loop for loop in facts.loops if up.keys() & {*loop.workers})}
    return bool(up) and began_later and not left


def _how_crashed(died: Sequence[AgentSummary]) -> str:
    did = "ended" if any(agent.unrecorded for agent in died) else "crashed"
    text = f"{listed('worker', [agent.worker for agent in died])} {did}"
    latest = min(died, key=_seconds_since_crash).verdict
    if not latest:
        return f"{text}."
    return latest if len(died) == 1 else f"{text}; one of them: {latest}"


def _seconds_since_crash(agent: AgentSummary) -> tuple[bool, float]:
    seconds = agent.crashed_seconds
    return not agent.verdict, inf if seconds is None else seconds


def _why_crashed(facts: HostFacts, about: Reason) -> Iterator[str]:
    yield from (process.verdict for process in processes(facts, about))


def _training_died(limits: SiteLimits) -> Iterator[Alert]:
    """
    Yield a page for loops that nothing runs any more, or not all processes of a run, a
    ticket for each process, and a page for each expected run that lacks processes.
    """
    by, loops = (*PROCESS, "loop"), re("loop", ".+")
    died = gauge(catalog.AGENT_DIED, loops).max(*by) > 0
    # A job that starts again with fewer processes leaves slots that no one takes.
    lived = gauge_over(catalog.AGENT_DIED, "min", limits.died_within, loops)
    died = died.and_(lived.max(*by).equals(0)).record(
        *("worker", catalog.AGENT_DIED, "unfinished"),
        "Processes that ended in the middle of a loop, and none replaced them.",
    )
    # Runs of one process each go on without this one; ranks of a run do not.
    alone = gauge(catalog.PROCESS_COUNT).max(*PROCESS).equals(1)
    others = gauge(catalog.STEP_AGE_SECONDS).max(*by).and_(alone, *PROCESS)
    others = others.max("job", "loop").record(
        *("loop", catalog.STEP_AGE_SECONDS, "alone"),
        "Loops that run in processes that are no ranks of a job.",
    )
    ended = "ended in the middle of loop {{ $labels.loop }}"
    lost = recorded.lost_loops(limits.died_seen)
    unfinished = died.count("job", "loop").unless(others)
    unfinished = unfinished.or_(lost).record(
        *("loop", catalog.AGENT_DIED, "ended"),
        "Processes of a loop that ended in the middle of it.",
    )
    for severity, expr, who in (
        (PAGE, unfinished, COUNT + _OF_JOB),
        (TICKET, died > 0, A_PROCESS),
    ):
        # It may be the first that is known of the same outage.
        paged = recorded.paged("JaxmonTrainingDied", limits)
        yield Alert(
            expr=expr.unless(paged, "job") if severity == PAGE else expr,
            for_=limits.died_for,
            # A restart that fails as well is the same outage.
            keep_for=limits.died_seen if severity == PAGE else "",
            severity=severity,
            description="A training process ended, and none replaced it.",
            summary=f"{who}{ended}.",
        )
    finished = recorded.over(limits.finished_within, limits.died_seen)
    for run in limits.runs:
        match = tuple(eq(label, value) for label, value in run.match)
        # Some of its labels are the site's.
        labels = (*catalog.RUNTIME_INFO.labels, *dict(run.match))
        agents = gauge(catalog.RUNTIME_INFO._replace(labels=labels), *match)
        # A sum over nothing is nothing: a run that is gone altogether counts as 0.
        count = (
            agents.max(*PROCESS).count().or_(promql.call("vector", promql.number(0)))
        )
        what = ", ".join(f"{label} {value}" for label, value in run.match)
        # Its loops page themselves if they end in the middle.
        broken = lost.where(*match).latest(limits.died_within).count()
        over = count.equals(0).and_(finished.where(*match).count().or_(broken))
        yield Alert(
            expr=(count < run.processes).unless(over),
            for_=limits.died_for,
            severity=PAGE,
            description="A run that is expected to run has lost processes.",
            summary=(f"{{{{ $value }}}} of {run.processes} processes run of {what}."),
            labels=run.match,
        )


_OF_JOB = " processes of job {{ $labels.job }} "


def _crash_loop(limits: SiteLimits) -> Iterator[Alert]:
    """
    Yield a page if most processes of a job crash in vain, a ticket for each, one for
    each that crashes often, and one for services of which several crash.
    """
    window, often = limits.crash_window, limits.crash_starts
    crashing = recorded.crashes(window) >= often
    many = crashing.count("job").record(
        *("job", catalog.AGENT_CRASHES, f"processes{window}"),
        f"Processes of a job that crash again and again within {window}.",
    )
    # Of a job whose processes all crash, none may be there at the moment.
    others = recorded.running() * limits.crash_share >= many
    most = many.unless(others).record(
        *("job", catalog.AGENT_CRASHES, f"most{window}"),
        "How many these are, if they are most processes of the job.",
    )
    before, hour = "before a step or request", limits.duration("1h")
    crashed = recorded.crashed(hour)
    # Those of a run page by themselves.
    serving = gauge_over(catalog.REQUESTS_IN_PROGRESS, "last", hour).max("job")
    several = crashed.count("job").and_(serving) >= limits.crashed_processes
    again = (crashed >= limits.crashes).unless(crashing)
    yield Alert(
        expr=again.and_(serving, "job"),
        description="A process keeps crashing.",
        summary=f"{A_PROCESS}crashed {COUNT} times within {hour}.",
        labels=(("crashes", "often"),),
    )
    yield Alert(
        expr=several,
        description="Processes of a service crash, one after the other.",
        summary=f"{COUNT}{_OF_JOB}crashed within {hour}.",
        labels=(("crashes", "in_turn"),),
    )
    for severity, expr, summary in (
        (PAGE, most > 0, f"{COUNT}{_OF_JOB}keep crashing {before}."),
        (TICKET, crashing, f"{A_PROCESS}crashed {COUNT} times in {window}, {before}."),
    ):
        yield Alert(
            expr=expr,
            severity=severity,
            keep_for=limits.died_for,
            description="A process keeps crashing before its first step or request.",
            summary=summary,
        )


def _processes(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect waits for processes that are started anew, as a pool for each batch."""
    period, limits = snapshot.time.period, snapshot.limits
    started, most = snapshot.time.processes, snapshot.time.processes_at_once
    waits = [of for of in period.places if of.state == "blocked" and of.divided]
    spent = summed((of.place, of.seconds) for of in waits)
    took, where = sum(spent.values()), max(spent, key=spent.__getitem__, default="")
    again = started >= limits.processes_again * max(most, 1)
    if again and period.settled and period.is_worth(took, "blocked", limits.time_worth):
        part = share_of_time(took, period.seconds)
        yield Finding(
            "processes",
            where,
            f"The program waited {duration(took)}, {part}, for processes that it "
            f"starts anew: {started:,} so far, up to {most:,} at once; "
            f"{share(spent[where], took)} of it at {where}.",
            (),
            "Start them once, before the loop, and keep them: each starts Python anew, "
            "and imports its modules.",
            where=where,
        )


SYMPTOMS = (
    Symptom(
        *("processes", "", "Processes are started again and again.", HINT, _processes),
        *(catalog.WALL_SECONDS, "Debug: Where the time goes"),
        missing="only the process knows its children",
    ),
    Symptom(
        *("deploy", "", "Processes have just started."),
        rule=(DEPLOY_ALERT, _deploy_in_progress),
        missing=RULES_ONLY,
    ),
    Symptom(
        *("not_ready", "F1", "A process does not become ready."),
        rule=("JaxmonWarmupFailed", _not_ready),
        missing=NO_SCREEN,
    ),
    Symptom(
        *("warmed_in_vain", "F1", "A warm-up compiles what is never used.", HINT),
        finding=_warmed_in_vain,
        missing="it delays starts, and requests do not wait for it",
        other_runbook="JaxmonWarmupFailed",
    ),
    Symptom(
        *("warmup_failed", "F1", "Signatures fail to warm up."),
        rule=("JaxmonWarmupFailed", _warmup_failed),
        missing=NO_SCREEN,
    ),
    Symptom(
        *("crashed", "F8", "A training process died."),
        reason=crashed,
        because=_why_crashed,
        rule=("JaxmonTrainingDied", _training_died),
        wait="died_for",
    ),
    Symptom(
        *("program_crashed", "F8", "A program that marks nothing crashed."),
        reason=crashed,
        because=_why_crashed,
        missing="its exit code says it to what started it",
        other_runbook="JaxmonTrainingDied",
    ),
    Symptom(
        *(
            "ended_in_a_row",
            "F8",
            "A process replaces one that was killed, or several.",
        ),
        reason=crashed,
        missing="JaxmonCrashLoop counts crashes, by limits of its own",
        other_runbook="JaxmonCrashLoop",
    ),
    Symptom(
        *("crash_loop", "F8", "A process crashes again and again."),
        rule=("JaxmonCrashLoop", _crash_loop),
        missing=NO_SCREEN,
    ),
)
