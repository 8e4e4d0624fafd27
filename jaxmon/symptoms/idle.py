"""There is nothing to do, or other processes do it."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.facts.walltime import Period
from jaxmon.symptoms.stalls import is_long
from jaxmon.symptoms.symptom import Finding, part


_SLACK = 2.0  # seconds: a call is noticed that late
_IS_WORK_DUE = (
    "It waits for work. If some is due, find the thread that should give it: "
    "`jaxmon explain --stacks`."
)


def idle(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    """Say that there was nothing to do."""
    now, idled = snapshot.time.now, period.of("idle")
    if now.work and is_long(now, snapshot.limits):
        idled -= min(now.seconds, idled)  # another finding is about that
    advice = _IS_WORK_DUE if now.work else ""
    for took, text, action in (
        (idled, "The program was idle for", advice),
        (divided(snapshot, period), "The program waited for other processes for", ""),
    ):
        if took >= snapshot.limits.time_worth * period.seconds:
            yield Finding("idle", "", f"{text} {part(took, period)}.", (), action)


def divided(snapshot: Snapshot, period: Period) -> float:
    """Return how long other processes did the work: it has called nothing since."""
    time, waits = snapshot.time, [of for of in period.places if of.divided]
    took = sum(of.seconds for of in waits if of.state == "data_wait")
    computes = period.share("eager") >= snapshot.limits.time_worth
    called = time.call_age is not None and time.call_age < took - _SLACK
    return 0.0 if computes or called or time.now.asleep else took
