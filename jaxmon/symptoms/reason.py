"""Why users are not all right: as its alert has it, failing or degraded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import FindingSummary, ProcessVerdict, Reason, State
from jaxmon.host.formats.layout import clean, duration
from jaxmon.symptoms.alert import PAGE, TICKET, Severity


_MOST_LISTED = 4
# What is called a minute: by how much it may differ, of counts and of rates.
_ABOUT, _ABOUT_RATES = (55.0, 65.0), (50.0, 90.0)


def reason(
    name: str, severity: Severity, text: str, workers: Iterable[str], subject: str = ""
) -> Reason:
    """
    Return that the processes *workers* have the symptom *name*, with a *subject* such
    as a route or a loop. What pages is failing.
    """
    state: State = "failing" if severity == PAGE else "degraded"
    return Reason(state, name, subject, text, "", tuple(workers))


def due(
    text: str, age: float, after: float, severity: Severity
) -> tuple[Severity, str]:
    """
    Return the severity of what has lasted for *age* seconds, and *text* as a sentence
    that says when its alert follows, if it does not fire yet: *after* so many seconds.
    """
    if age > after:
        return severity, f"{text}."
    return TICKET, f"{text}; a {severity} follows at {duration(after)}."


def listed(noun: str, names: Sequence[str]) -> str:
    """Return ``workers 1, 2 and 7 more``."""
    if len(names) == 1:
        return f"{noun} {clean(names[0])}"
    shown = ", ".join(map(clean, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"{noun}s {shown}" + (f" and {more} more" if more > 0 else "")


def period(seconds: float | None, *, rates: bool = False) -> str:
    """Return what the last so many *seconds* are called, in which there are *rates*."""
    least, most = _ABOUT_RATES if rates else _ABOUT
    if seconds is None or least <= seconds <= most:
        return "minute"
    return duration(round(seconds)).replace(".0 s", " s")


def findings(facts: HostFacts, about: Reason, topic: str) -> list[FindingSummary]:
    """Return findings of *topic*: first on the same route, then the most expensive."""
    every = (finding for of in processes(facts, about) for finding in of.findings or ())
    found = [finding for finding in every if finding.topic == topic]
    found.sort(key=lambda finding: (finding.subject != about.subject, -finding.seconds))
    return found


def verdicts(facts: HostFacts, about: Reason, *topics: str) -> Iterator[str]:
    """Yield what findings of *topics* say on the processes that *about* is about."""
    for topic in topics:
        yield from map(sentence, findings(facts, about, topic))


def doing(facts: HostFacts, about: Reason) -> Iterator[str]:
    """Yield where the time of these processes goes lately."""
    yield from (process.doing for process in processes(facts, about))


def said_or_doing(*topics: str) -> Callable[[HostFacts, Reason], Iterator[str]]:
    """Return what explains a reason by findings of *topics*, else by what goes on."""

    def explain(facts: HostFacts, about: Reason) -> Iterator[str]:
        yield from verdicts(facts, about, *topics)
        yield from doing(facts, about)

    return explain


def processes(facts: HostFacts, about: Reason) -> list[ProcessVerdict]:
    """Return what is wrong with the processes that *about* is about."""
    verdicts = facts.verdict.processes
    return [verdicts[worker] for worker in about.workers if worker in verdicts]


def sentence(finding: FindingSummary) -> str:
    """Return the cause that *finding* names."""
    text, where = finding.verdict, finding.where
    return f"{text} At {where}." if where and where not in text else text
