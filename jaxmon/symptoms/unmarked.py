"""What is known of programs that mark neither requests nor steps."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.record import summed
from jaxmon.facts.status import CallRate
from jaxmon.host.formats.layout import amount, duration
from jaxmon.symptoms.reason import listed, period
from jaxmon.symptoms.stalls import is_long


# A loop in which a program spends so much of its time is what it does, unless it waits
# for work for as much as the second.
_MOST_OF_THE_TIME, _IDLE = 0.9, 0.05
# Calls a second, and the part of all calls, that are worth a word.
_AGAIN_AND_AGAIN, _MOST_OF_THE_CALLS, _SEVERAL = 0.1, 0.5, 2
# Seconds after which a program that called before is said to call nothing.
_NO_CALL = 10.0
# At least so many, if as many calls were due meanwhile, by the usual rate.
_SOON, _MISSED = 3.0, 10
_MOST_PROCESSES = 2
FORKED = "forked this process after JAX had started. "
"""What a note says of a process whose children are not observed."""


def calling(snapshot: Snapshot) -> CallRate:
    """
    Return what a program that marks nothing calls most, and in which loop, as far as
    looks and counted calls say; nothing of one that marks something.
    """
    time, rates = snapshot.time, snapshot.time.rates
    if snapshot.steps or snapshot.requests:
        return CallRate()
    late = min(max(_MISSED / (sum(rates.values()) or inf), _SOON), _NO_CALL)
    if time.call_age is not None and time.call_age >= late:
        # A call that lasts, or those of what was compiled ahead of time.
        seen = inf if time.jax_age is None else time.jax_age
        if time.now.function or max(time.now.seconds, seen) < late:
            return CallRate()
        only = time.now.called[0] if len(time.now.called) == 1 else ""
        waits = time.now.work and not is_long(time.now, snapshot.limits)
        return CallRate(only, age=time.call_age, place=time.now.place if waits else "")
    packaged = {of.name for of in snapshot.functions if of.package}
    users = {name: rates[name] for name in rates if name not in packaged}
    if max(users.values(), default=0.0) >= _AGAIN_AND_AGAIN:
        rates = users  # what libraries call meanwhile is a part of that
    function = max(rates, key=rates.__getitem__, default="")
    rate = rates.get(function, 0.0)
    is_most = rate >= _MOST_OF_THE_CALLS * sum(rates.values())
    # Of a single call, which may be in progress, there is no rate.
    is_often = rate >= max(_AGAIN_AND_AGAIN, _SEVERAL / (time.rates_seconds or inf))
    if not (is_most and is_often):
        return CallRate()
    place = time.since_start.calls(function) if function in packaged else ""
    loop = _loop(snapshot, function)
    earlier = _earlier(snapshot, function, rate) if loop else 0.0
    return CallRate(
        function, rate, loop, time.rates_seconds, place=place, earlier=earlier
    )


def _earlier(snapshot: Snapshot, function: str, rate: float) -> float:
    """
    Return about how many calls a second there were before those that a *rate* is of,
    once the program had started and compiled; 0 unless a call then took far less time.
    """
    time, lately = snapshot.time, snapshot.time.rates_seconds or inf
    calls = sum(of.calls or 0 for of in snapshot.functions if of.name == function)
    began = time.since_start.of("startup", "compile")
    before = time.since_start.seconds - began - lately
    earlier = (calls - rate * lately) / before if before > lately else 0.0
    return earlier if earlier >= snapshot.limits.slowdown * rate else 0.0


def _loop(snapshot: Snapshot, function: str) -> str:
    """
    Return the line of the loop that the program has lately been in, and that looks have
    found to call *function*; empty if there is none.
    """
    recent = snapshot.time.recent
    spent = summed((place.loop, place.seconds) for place in recent.places)
    loop = max(spent, key=spent.__getitem__, default="")
    # What is done once before a loop is no part of what is done again and again.
    before = sum(
        place.seconds
        for place in recent.places
        if not place.loop and place.state in {"startup", "compile"}
    )
    stays = spent.get(loop, 0.0) >= _MOST_OF_THE_TIME * (recent.seconds - before)
    if not recent.settled or not stays or recent.share("idle") > _IDLE:
        return ""
    # Looks seldom find short calls, and the first one may be before the loop.
    found = {
        place.loop
        for place in recent.places
        if place.function == function and place.state != "compile"
    }
    return loop if (found or {snapshot.time.loops.get(function, "")}) == {loop} else ""


def call_text(found: CallRate) -> str:
    """Return *found* in a sentence; empty if it is."""
    if found.age is not None:
        lead = f"{found.function}: n" if found.function else "N"
        waits = f"; waits for work at {found.place}" if found.place else ""
        return f"{lead}o call for {duration(found.age)}{waits}."
    if not found.function:
        return ""
    loop = f", in a repeating loop at {found.loop} (recognised, not marked)"
    seconds = period(found.seconds, rates=True)
    lately = f" in the last {seconds}" if found.seconds else ""
    called = f", called at {found.place}" if found.place else ""
    text = f"{found.function}{called}: {amount(found.rate)} calls a second{lately}"
    before = f"; before, about {amount(found.earlier)}" if found.earlier else ""
    return f"{text}{loop if found.loop else ''}{before}."


def forked_text(facts: HostFacts) -> str:
    """Return that processes that run have forked, if all have, and call nothing."""
    up = [agent for agent in facts.agents if agent.up]
    if not up or any(of.calling.rate or FORKED not in str(of.notes) for of in up):
        return ""
    forked = (
        f"{listed('worker', [of.worker for of in up])} forked after JAX had started"
    )
    return f"what {forked} is not observed, and JAX may hang in it."


def unmarked_text(facts: HostFacts) -> Iterator[str]:
    """Yield what processes do that mark nothing, those with most calls first."""
    agents = sorted(facts.agents, key=lambda agent: -agent.calling.rate)
    for agent in agents[:_MOST_PROCESSES]:
        lead = f"Worker {agent.worker}: " if len(agents) > 1 else ""
        if text := " ".join(filter(None, (call_text(agent.calling), agent.doing))):
            yield f"{lead}{text}"
