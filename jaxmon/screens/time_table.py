"""The section of a report on where the time goes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from jaxmon.facts.process import Snapshot
from jaxmon.facts.reader import from_json
from jaxmon.facts.walltime import IDLE_SECONDS, Period
from jaxmon.host.formats.layout import (
    INDENT,
    UNKNOWN,
    Column,
    duration,
    ending,
    share,
    shortened,
    wrapped,
)
from jaxmon.screens.section import Section


STATES = {
    "compile": "compiling",
    "data_wait": "waiting for data",
    "device": "running jitted functions",
    "fetch": "waiting for results",
    "transfer": "copying to the device",
    "eager": "operations outside of jit",
    "python": "Python",
    "startup": "starting up",
    "gc": "collecting garbage",
    "gil": "waiting for Python",
    "blocked": "blocked outside of JAX",
    "idle": "idle",
}
"""What is displayed for each state, in the order of equal times."""
_OF_STACKS = {
    "item": "waiting for an item of a queue",
    "join": "waiting for a thread to end",
    "make": STATES["transfer"],
}

_TITLE = "WHERE THE TIME GOES"
_WORTH = 0.005
_MOST_ROWS = 9
# An activity that takes more than this is what the program does.
_MOST_OF_THE_TIME = 0.5


def _shown(snapshot: Snapshot) -> Period:
    """Return the period, with all of a wait that goes on: after a while it is idle."""
    period, now = snapshot.time.period, snapshot.time.now
    idle, wait = period.states.get(_IDLE), period.states.get(now.state)
    at = [of for of in period.places if (of.state, of.place) == (_IDLE, now.place)]
    if now.state == _IDLE or not (idle and wait and at):
        return period
    moved = min(sum(of.seconds for of in at), max(now.seconds - IDLE_SECONDS, 0.0))
    states = {
        now.state: wait.replace(seconds=wait.seconds + moved),
        _IDLE: idle.replace(seconds=idle.seconds - moved),
    }
    return period.replace(states={**period.states, **states})


def time_table(snapshot: Snapshot, *, most: int = _MOST_ROWS) -> Section:
    """Return what the time goes into, most first."""
    period = _shown(snapshot)
    if not period.settled:
        return Section(_TITLE)
    layout = [
        Column("STATE", 27, right=False),
        Column("TIME", 12),
        Column("SHARE", 8),
        Column("±", 6),
        Column("", 2),
        Column("MOST OFTEN AT", right=False, cut=ending),
    ]
    lately = snapshot.time.period is snapshot.time.lately
    about = f": {'the last ' if lately else ''}{duration(period.seconds)}"
    if now := _now(snapshot):
        about += f"; now {now}"
    rows = [row for seconds, row in _rows(period) if seconds >= _WORTH * period.seconds]
    return Section(_TITLE, about, layout, rows[:most])


def time_parts(snapshot: Snapshot) -> list[float]:
    """Return the parts of the time that the rows of the table are, from 0 to 1."""
    period = _shown(snapshot)
    return [seconds / period.seconds for seconds, _ in _rows(period)]


def _rows(period: Period) -> list[tuple[float, list[str]]]:
    activities = {
        name: seconds
        for name, seconds in period.activities.items()
        if seconds < _MOST_OF_THE_TIME * period.seconds
    }

    def row(name: str, took: float, *others: str) -> tuple[float, list[str]]:
        return took, [name, duration(took), share(took, period.seconds), *others]

    found = [row(name, took, "", "", "") for name, took in activities.items()]
    for state, name in STATES.items():
        if (spent := period.states.get(state)) is None:
            continue
        places = [place for place in period.places if place.state == state]
        lines = [place for place in places if place.activity not in activities]
        elsewhere = sum(
            place.seconds for place in places if place.activity in activities
        )
        # A program that `python -c` began, as of a worker process, has no file.
        lines = [place for place in lines if not place.place.startswith("<string>:")]
        top = max(lines, key=lambda place: place.seconds, default=None)
        calls = "" if top is None else top.caller * (state == "eager")
        where = calls or ("" if top is None else top.place or top.function)
        error = share(spent.error_seconds, period.seconds)
        seconds = max(spent.seconds - elsewhere, 0.0)
        found.append(row(name, seconds, error, "", where or UNKNOWN))
    return sorted(found, key=lambda item: -item[0])


def _now(snapshot: Snapshot) -> str:
    now = snapshot.time.now
    if now.state not in STATES:
        return ""
    text = STATES[now.state]
    if now.seconds >= 1:
        text += f" for {duration(now.seconds)}"
    return text


_WORTH_SAYING = 0.05
_IDLE = "idle"


def doing(snapshot: Snapshot) -> str:
    """Return which line takes more lately than usual, or else most; may be empty."""
    recent = snapshot.time.recent
    if not recent.settled:
        return ""
    lately, usual = _parts(recent), _parts(snapshot.time.since_start)
    if not lately:
        return ""
    growth = {key: part - usual.get(key, 0.0) for key, part in lately.items()}
    (state, place), grown = max(growth.items(), key=lambda item: item[1])
    if grown < _WORTH_SAYING:
        state, place = max(lately, key=lambda key: lately[key])
    if (part := lately[state, place]) < _WORTH_SAYING:
        return ""
    there = [of for of in recent.places if (of.state, of.place) == (state, place)]
    functions = {of.function for of in there}
    what = f" {functions.pop()}" if state == "compile" and len(functions) == 1 else ""
    what = f"{STATES[state]}{what}".rstrip()
    return f"Lately, {share(part, 1)} of the time goes to {place} ({what})."


def _parts(period: Period) -> dict[tuple[str, str], float]:
    """Return the part of *period* that each line takes, by what it does there."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for place in period.places:
        # What the program marks is expected.
        if place.place and place.state in STATES and place.state != _IDLE:
            found[place.state, place.place] += 0.0 if place.activity else place.seconds
    return {key: seconds / period.seconds for key, seconds in found.items()}


@dataclass(frozen=True, slots=True)
class Thread:
    """
    A thread: what it is doing, in which line of the program, which jitted function it
    calls, and its stack, innermost line first.
    """

    name: str = ""
    ident: int = 0
    native_id: int | None = None
    main: bool = False
    daemon: bool = False
    state: str = ""
    place: str = ""
    function: str = ""
    lock: bool = False
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stacks:
    """The content of ``/debug/stacks``; *failed* are helpers of the program."""

    threads: tuple[Thread, ...] = ()
    failed: tuple[str, ...] = ()
    left_out: int = 0


def stacks(document: object, width: int) -> list[str]:
    """Return the stacks in *document*; threads with equal stacks are shown once."""
    found = from_json(Stacks, document)
    groups: dict[tuple[str, ...], list[Thread]] = {}
    for thread in found.threads:
        groups.setdefault(thread.stack, []).append(thread)
    lines = []
    for stack, threads in groups.items():
        lines += ["", shortened(_heading(threads), width)]
        lines += [shortened(f"{INDENT}{line}", width) for line in stack]
    for number, text in enumerate(found.failed):
        lines += [*([] if number else [""]), *wrapped(text, width, rest=INDENT)]
    if found.left_out:
        lines += ["", f"and {found.left_out} further threads"]
    return lines[1:]


def _heading(threads: list[Thread]) -> str:
    first = threads[0]
    number = f" ({first.native_id})" if first.native_id is not None else ""
    name = f"{first.name or 'a thread of native code'}{number}"
    more = f" and {len(threads) - 1} more" if len(threads) > 1 else ""
    state = {**STATES, **_OF_STACKS}.get(first.state, first.state)
    place = f"at {first.place}" if first.place else ""
    if first.state == "python":  # whether it runs, or waits, a stack does not say
        state = "acquiring a lock" if first.lock else ""
    state = f"{state} ({first.function})" if state and first.function else state
    doing = ", ".join(filter(None, (state, place)))
    return f"{name}{more}{doing and f': {doing}'}"
