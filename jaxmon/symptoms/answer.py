"""
Whether users, or a training, are all right, in one sentence with its reasons.

The numbers of the last minute decide, of what seldom happens those of ten, by the
limits of findings and alerts; so a fault that is over is none any more. Findings add
what only they can see. A fault is failing where its alert pages, and degraded where it
is a ticket, or not due yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from jaxmon import catalog
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import Answer, FindingSummary, Reason, State
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import ago, amount, clean, counted, duration, share
from jaxmon.limits import Limits
from jaxmon.symptoms.alert import PAGE, TICKET
from jaxmon.symptoms.findings import GENERAL, SYMPTOMS, rank
from jaxmon.symptoms.reason import findings, period, reason, verdicts
from jaxmon.symptoms.stalls import LOAD_LATER
from jaxmon.symptoms.steps import named
from jaxmon.symptoms.symptom import Urgency
from jaxmon.symptoms.unmarked import forked_text, unmarked_text


STATES: tuple[State, ...] = ("failing", "degraded", "fine", "unknown")
"""The worst first."""

# Seconds without a look after which it is not known what was meanwhile.
_PAUSE = 30.0
# Seconds without a step after which a rate would hide that, and from which a request in
# progress is shown.
_LONG = 5.0

_RECOMPILES = ("recompile", "recompiles", "evicted")
_NO_PROCESS = "Not known: no instrumented process runs here."
_NO_MARKS = "Not known: no program here marks its requests or steps."
_MARK = (
    "Mark the loop of a script or a training by jaxmon.steps(loader), requests that "
    'users wait for by @jaxmon.request("predict"), jaxmon.asgi, jaxmon.wsgi or '
    "jaxmon.grpc."
)
_MARK_LOOP = "Mark the loop to have its steps watched: jaxmon.steps(loader)."
_OF_USERS, _OF_TRAINING = "Are users all right?", "Is the training making progress?"


class Onsets:
    """
    Since when symptoms are there, for one who looks again and again.

    When those began that are there at the first look, or after a pause, is not known.
    """

    def __init__(self) -> None:
        self._latest = -inf
        self._since: dict[tuple[str, str], float | None] = {}

    def note(self, reasons: Iterable[Reason], time: float) -> None:
        """Note that there are *reasons* at this Unix time."""
        earlier, watched = self._since, 0 <= time - self._latest < _PAUSE
        self._since = {
            key: earlier.get(key, time) if watched else None
            for reason in reasons
            for key in [(reason.kind, reason.subject)]
        }
        self._latest = time

    def follows(self, reason: Reason, limits: Limits) -> str:
        """Return since when *reason* is, and when its alert follows, if known."""
        wait = SYMPTOMS[reason.kind].wait
        since = self._since[reason.kind, reason.subject]
        if not wait or since is None:
            return ""
        lasted, whole = self._latest - since, seconds_in(getattr(limits, wait))
        if lasted >= whole:
            return ""
        alert = "page" if reason.state == "failing" else "ticket"
        return f"; since {duration(lasted)}, a {alert} follows at {duration(whole)}"


def answer(facts: HostFacts, onsets: Onsets | None = None) -> Answer:
    """Return whether all is well; *onsets* are those of earlier looks."""
    found, question = _answer(facts, onsets), Answer().question
    # Of the routes, probes may be all that a trainer has.
    if any(not catalog.is_probe(of.route) for of in facts.requests):
        question = _OF_USERS
    elif facts.loops:
        question = _OF_TRAINING
    return found.replace(question=question)


def _answer(facts: HostFacts, onsets: Onsets | None) -> Answer:
    # Some judge several symptoms.
    judges = dict.fromkeys(of.reason for of in SYMPTOMS.values() if of.reason)
    reasons = [found for judge in judges for found in judge(facts)]
    reasons = [reason.replace(because=_because(reason, facts)) for reason in reasons]
    reasons = _with_findings(reasons, facts)
    if onsets is not None:
        onsets.note(reasons, facts.now.time)
        reasons = [
            reason.replace(
                text=f"{reason.text[:-1]}{onsets.follows(reason, facts.limits)}."
            )
            for reason in reasons
        ]
    reasons.sort(key=lambda reason: _place(reason, facts))
    marked = bool(facts.requests or facts.loops)
    runs = any(agent.up for agent in facts.agents)
    advice = _MARK if runs and not marked else ""
    if advice and all(agent.calling.loop for agent in facts.agents):
        advice = _MARK_LOOP
    if reasons:
        first, rest = reasons[0], len(reasons) - 1
        lead = "No" if first.state == "failing" else "Not quite"
        more = f" And {counted(rest, 'more reason')}." if rest else ""
        text = f"{lead}: {first.text}{more}"
        return Answer(first.state, text, tuple(reasons), "")
    if not runs:  # what ended processes counted is about none of its users
        return Answer("unknown", _NO_PROCESS, (), "")
    if not marked and (forked := forked_text(facts)):
        return Answer("unknown", f"Not known: {forked}", (), LOAD_LATER)
    if not marked:
        text = " ".join((_NO_MARKS, *unmarked_text(facts)))
        return Answer("unknown", text, (), advice)
    return Answer("fine", _fine(facts), (), "")


def _place(about: Reason, facts: HostFacts) -> tuple[bool, bool, Urgency, bool, float]:
    every = findings(facts, about, about.kind)
    seconds = max((finding.seconds for finding in every), default=0.0)
    return rank(about.kind, seconds, fails=about.state == "failing")


def _because(about: Reason, facts: HostFacts) -> str:
    explain = SYMPTOMS[about.kind].because
    causes = explain(facts, about) if explain else verdicts(facts, about, about.kind)
    return next((cause for cause in causes if cause and cause not in about.text), "")


def _with_findings(reasons: Sequence[Reason], facts: HostFacts) -> list[Reason]:
    """Add what only findings know; a cause stands above what follows, or below it."""
    found = list(_of_findings(facts, reasons))
    above = {(of.state, of.text) for of in found}
    kept = [
        of.replace(because="") if (of.state, of.because) in above else of
        for of in reasons
    ]
    below = {of.because for of in kept}
    return [*kept, *(of for of in found if of.text not in below)]


def _of_findings(facts: HostFacts, reasons: Iterable[Reason]) -> Iterator[Reason]:
    """Yield what only the findings know, each once for all processes."""
    # A program that stands somewhere is what a loop that is stuck says.
    covered = {
        (reason.kind, "" if reason.kind == "stalled" else reason.subject)
        for reason in reasons
    }
    covered |= {("callers_left", subject) for _, subject in covered if subject}
    found: dict[tuple[str, str], Reason] = {}
    marked = facts.requests or facts.loops
    for worker, process in facts.verdict.processes.items():
        for finding in process.findings or ():
            topic, subject = finding.topic, finding.subject
            # Of what is marked, the numbers say what that costs.
            costs = not marked and _takes_most(finding, process.observed_seconds or inf)
            keys = {(topic, subject), (topic, "")}
            if keys & covered or not (finding.severity or costs):
                continue
            if (about := found.get((topic, subject))) is None:
                severity = PAGE if finding.severity == PAGE else TICKET
                about = reason(topic, severity, finding.verdict, (), subject)
                evidence = [*finding.evidence, finding.where]
                new = (of for of in evidence if of and of not in about.text)
                about = about.replace(because=next(new, ""))
            found[topic, subject] = about.replace(workers=(*about.workers, worker))
    yield from found.values()


def _fine(facts: HostFacts) -> str:
    """Return what goes on while nothing is wrong, since when if not for a minute."""
    parts = []
    times = [route.rate_seconds for route in facts.requests if route.rate]
    times += [loop.rate_seconds for loop in facts.loops if loop.rate]
    times = times or [facts.recent.seconds(agent.worker) for agent in facts.agents]
    lately = period(max(filter(None, times), default=None), rates=True)
    since = "" if lately == "minute" else f", in the last {lately}"
    # What a process did that a new sidecar has read once is not known.
    up = {agent.worker for agent in facts.agents if agent.up}
    if any(facts.recent.seconds(worker) is None for worker in up):
        since += ", as far as known"
    # What orchestrators ask is no request of users, but all that some programs have.
    users = [of for of in facts.requests if not catalog.is_probe(of.route)]
    routes = users or facts.requests
    finished = sum(route.rate or 0.0 for route in routes)
    waiting = list(_unfinished(facts))
    if finished > 0:
        parts.append(f"{amount(finished)} requests a second, and none fails")
        if any(route.recent_failed for route in routes):
            parts[-1] = parts[-1].replace("none fails", "hardly any fails")
        refused = sum(route.recent_client_errors or 0.0 for route in routes)
        if refused >= facts.limits.failed_requests:
            parts[-1] += f", but for {counted(refused, 'client error')}"
        names = dict.fromkeys(of for agent in facts.agents for of in agent.recognised)
        if names:
            parts[-1] += f" (of {' and '.join(names)}; recognised, not marked)"
    running = [loop for loop in facts.loops if loop.age is not None]
    if len(running) == 1 and running[0].rate:
        loop, age = running[0], running[0].age or 0.0
        rate = amount(loop.rate or 0)
        steps = "step" if rate == "1" else "steps"
        pauses = age > max(_LONG, facts.limits.late_step_times * (loop.mean or 0.0))
        parts.append(
            f"the last step of {named(loop)} was {ago(age)}"
            if pauses
            else f"{rate} {steps} a second in {named(loop)}"
        )
    elif running:
        parts.append(f"{counted(len(running), 'loop')} at work")
    elif ended := [loop for loop in facts.loops if loop.rate]:
        loop = max(ended, key=lambda ended_loop: ended_loop.steps)
        parts.append(f"{named(loop)} ended after {counted(loop.steps, 'step')}")
    if not parts:
        text = "finished request" if waiting else "request"
        text += " but probes" * any(route.rate for route in facts.requests)
        parts = [f"no {text} and no step in the last {lately}"]
        since = ", as far as known"
    return f"Yes{since}: {'; '.join([*parts, *waiting])}.{_recompiled(facts)}"


def _unfinished(facts: HostFacts) -> Iterator[str]:
    for route in facts.requests:
        if route.in_progress and (route.oldest or 0.0) >= _LONG:
            text = f"{counted(route.in_progress, 'request')} to {clean(route.route)}"
            text += f" in progress, the oldest for {duration(route.oldest or 0.0)}"
            yield text


def _takes_most(finding: FindingSummary, observed: float) -> bool:
    """Return whether a fault, not merely where the time goes, takes most of it."""
    fault = finding.urgency in {"failure", "time"} and finding.topic not in GENERAL
    return fault and 2 * finding.seconds > observed


def _recompiled(facts: HostFacts) -> str:
    """Return what recompiles most of a process's time, before that is a ticket."""
    for process in facts.verdict.processes.values():
        for finding in process.findings or ():
            observed = process.observed_seconds or inf
            if finding.topic in _RECOMPILES and _takes_most(finding, observed):
                part = share(finding.seconds, observed)
                sentence = finding.verdict.partition(". ")[0]
                return f" But recompiles take {part} of the time: {sentence}."
    return ""
