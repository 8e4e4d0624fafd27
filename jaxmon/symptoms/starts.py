"""Starts and ends of processes: deployments, warm-ups, crash loops, runs that died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from jaxmon import catalog, promql
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import AgentSummary, Reason
from jaxmon.host.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, counter, eq, events, gauge, gauge_over, re
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
from jaxmon.symptoms.symptom import NO_SCREEN, RULES_ONLY, Symptom


DEPLOY_ALERT = "JaxmonDeployInProgress"
YOUNG = f"job:{catalog.UPTIME_SECONDS.name}:young_ratio"
"""Recorded fraction of a job's processes that started within ``deploy_window``."""


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


def young_ratio(limits: SiteLimits) -> Expr:
    """Return the fraction of each job's processes that are young."""
    recent = young(limits.deploy_window, limits)
    return promql.ratio(recent, gauge(catalog.RUNTIME_INFO).max(*PROCESS).count("job"))


def young(within: str, limits: SiteLimits) -> Expr:
    """
    Return how many processes of each job are younger than *within*, unless they restart
    so often within an hour that they count as a crash loop.
    """
    # By their own clocks; and only agents have runtime information: a new sidecar is no
    # new process.
    age = gauge(catalog.UPTIME_SECONDS).and_(gauge(catalog.RUNTIME_INFO), *PROCESS)
    recent = (age < durations.seconds(within)).count("job")
    changes = promql.gauge_changes(
        catalog.PROCESS_START_TIME_SECONDS, limits.duration("1h")
    )
    return recent.unless(changes.max("job") > limits.deploy_restarts)


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
    return Alert(
        expr=failed.sum("job") > 0,
        description=(
            "Signatures of a service fail to warm up; requests wait for their compiles."
        ),
        summary=(
            f"{COUNT} signatures of job {{{{ $labels.job }}}} failed to warm up in "
            f"{window}."
        ),
    )


def crashed(facts: HostFacts) -> Iterator[Reason]:
    """Yield processes that ended without finishing, apart those that mark nothing."""
    died_in = facts.now.of(catalog.AGENT_DIED).items()
    marked = {worker for (worker, name), value in died_in if name and value}
    for route in facts.requests:
        marked.update(route.workers)
    for loop in facts.loops:
        marked.update(loop.workers)
    died = [agent for agent in facts.agents if agent.died]
    for name, severity, some in (
        ("crashed", PAGE, [agent for agent in died if agent.worker in marked]),
        ("program_crashed", TICKET, [a for a in died if a.worker not in marked]),
    ):
        if some:
            workers = [agent.worker for agent in some]
            yield reason(name, severity, _how_crashed(some), workers)


def _how_crashed(died: Sequence[AgentSummary]) -> str:
    """Return which processes crashed, and of the latest, how, if that is known."""
    text = f"{listed('worker', [agent.worker for agent in died])} crashed"
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
    Yield pages for a loop whose process ended without finishing, and for each expected
    run that has fewer processes than it should.
    """
    by, loops = (*PROCESS, "loop"), re("loop", ".+")
    died = gauge(catalog.AGENT_DIED, loops).max(*by) > 0
    # A job that starts again with fewer processes leaves slots that no one takes.
    lived = gauge_over(catalog.AGENT_DIED, "min", limits.died_within, loops)
    yield Alert(
        expr=died.and_(lived.max(*by).equals(0)),
        for_=limits.died_for,
        severity=PAGE,
        description="A training process ended without finishing, and none replaced it.",
        summary=(A_PROCESS + "ended in the middle of loop {{ $labels.loop }}."),
    )
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
        yield Alert(
            expr=count < run.processes,
            for_=limits.died_for,
            severity=PAGE,
            description="A run that is expected to run has lost processes.",
            summary=(f"{{{{ $value }}}} of {run.processes} processes run of {what}."),
            labels=run.match,
        )


def _crash_loop(limits: Limits) -> Alert:
    window = limits.crash_window
    crashes = counter(catalog.AGENT_CRASHES)
    # Without a sidecar, what is seen is that another process responds.
    changes = promql.gauge_changes(catalog.PROCESS_START_TIME_SECONDS, window)
    agents = gauge(catalog.RUNTIME_INFO)
    seen = changes.and_(agents, *PROCESS).unless(crashes.total(), *PROCESS)
    often = crashes.rise(window).or_(seen).max(*PROCESS) >= limits.crash_starts
    steps, requests = (
        counter(metric).highest(window).max(*PROCESS) > 0
        for metric in (catalog.STEPS, catalog.REQUESTS)
    )
    return Alert(
        expr=often.unless(steps).unless(requests),
        severity=PAGE,
        keep_for=limits.died_for,
        description="A process keeps crashing before its first step or request.",
        summary=(
            A_PROCESS + f"crashed {COUNT} times in {window}, without a step or request."
        ),
    )


SYMPTOMS = (
    Symptom(
        *("deploy", "", "Processes have just started."),
        rule=(DEPLOY_ALERT, _deploy_in_progress),
        missing=RULES_ONLY,
    ),
    Symptom(
        *("not_ready", "F1", "A process does not become ready."),
        rule=("JaxmonNotReady", _not_ready),
        missing=NO_SCREEN,
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
        *("crash_loop", "F8", "A process crashes again and again."),
        rule=("JaxmonCrashLoop", _crash_loop),
        missing=NO_SCREEN,
    ),
)
