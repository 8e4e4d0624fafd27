"""Ranks that make a job slower, in words and as JSON types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxmon.host.formats.layout import ago, counted, duration, share
from jaxmon.job import words
from jaxmon.job.model import SlowKind, Slowness, Straggler
from jaxmon.job.stragglers import FASTER_BEFORE
from jaxmon.job.waiting import grouped, numbers_of


_MOST_SHOWN, _MOST_FORMER = 5, 3

_PHRASES: Mapping[SlowKind, words.Phrases] = {
    SlowKind.DATA: words.Phrases(
        "waits for data",
        "Look at what its loader reads, and at the host that it runs on.",
    ),
    SlowKind.PYTHON: words.Phrases(
        "runs Python", "What one process does between steps, all others wait for."
    ),
    SlowKind.GIL: words.Phrases(
        "waits for the GIL, which another thread holds,",
        "Move the work of that thread to a process of its own.",
    ),
    SlowKind.BLOCKED: words.Phrases(
        "is blocked outside of JAX", "What one process waits for, all others do."
    ),
    SlowKind.COMPILE: words.Phrases(
        "compiles",
        "`jaxmon explain` on its host shows why it compiles again and again.",
    ),
    SlowKind.TRANSFER: words.Phrases(
        "copies to its devices",
        "Look at the PCIe link and the NUMA node of its devices.",
    ),
    SlowKind.HOST: words.Phrases(
        "cannot run",
        "Other processes take its processors, or something stops it again and again.",
    ),
    SlowKind.COMPUTE: words.Phrases(
        "runs programs of its own on its devices",
        "`jaxmon explain` on its host shows how long each of them takes.",
    ),
}


def lines(slowness: Slowness, width: int) -> Iterator[str]:
    """Yield which ranks make a job slower, nothing if none do."""
    for text in _summary(slowness):
        yield from words.point(text, width)
    alike = grouped(
        slowness.stragglers, lambda of: (of.kind, of.place, of.activity, of.function)
    )
    groups = list(alike.values())
    for some in groups[:_MOST_SHOWN]:
        yield from words.point(_sentence(some), width)
        yield from words.advice_lines(_PHRASES[some[0].kind].advice, width)
    for line in words.rest(groups, _MOST_SHOWN, "further group"):
        yield f"{line} of stragglers"
    for straggler in slowness.former[:_MOST_FORMER]:
        yield from words.point(_former_sentence(straggler), width)


def _summary(slowness: Slowness) -> Iterator[str]:
    if slowness.stragglers:
        yield _headline(slowness)
    named = {straggler.rank.index for straggler in slowness.stragglers}
    others = [
        throttled for throttled in slowness.throttled if throttled[0].index not in named
    ]
    if others:
        reasons = sorted({reason for _, found in others for reason in found})
        ranks = words.numbers(numbers_of(rank for rank, _ in others))
        yield (
            f"{ranks}: GPUs throttled ({', '.join(reasons)}), unlike those "
            "of most ranks. If their part of a program takes longer for that, all "
            "wait; the time of each rank does not show it."
        )


def _headline(slowness: Slowness) -> str:
    """
    Return because of which ranks the job is slower, and what part of a step the others
    wait. How long a step would take without that is not known: while they wait, their
    loaders and devices do what would take its time otherwise.
    """
    found = words.numbers(
        numbers_of(straggler.rank for straggler in slowness.stragglers)
    )
    step, lost = slowness.step, slowness.lost
    if lost <= 0 or lost >= step:
        return f"stragglers: {found}"
    return (
        f"slower because of {found}: a step takes {duration(step)}, for "
        f"{share(lost, step)} of which the others wait"
    )


def _sentence(some: Sequence[Straggler]) -> str:
    first = some[0]
    what = _PHRASES[first.kind].text(len(some))
    most = "up to " if len(some) > 1 else ""
    where = f" at {first.place}" if first.place else ""
    activity = f", in the activity {first.activity}" if first.activity else ""
    function = f", most of all {words.short(first.function)}," if first.function else ""
    text = (
        f"{_who(some)} {what}{function}{where}{activity} for {most}"
        f"{duration(first.spent)} of each step, the median rank for "
        f"{duration(first.median)}"
    )
    parts = [text, _since(first)]
    throttled = sorted({reason for of in some for reason in of.throttled})
    xids = sorted({xid for of in some for xid in of.xids})
    if throttled:
        parts.append(f"GPUs throttled: {', '.join(throttled)}")
    if xids:
        parts.append(f"Xid errors within an hour: {', '.join(xids)}")
    return "; ".join(parts)


def _who(some: Sequence[Straggler]) -> str:
    rank = some[0].rank
    named = words.numbers(numbers_of(straggler.rank for straggler in some))
    hosts = {straggler.rank.host for straggler in some}
    if len(some) == 1:
        return f"{named} ({rank.host}, pid {rank.pid})"
    place = rank.host if len(hosts) == 1 else counted(len(hosts), "host")
    return f"{named} (on {place})"


def _since(straggler: Straggler) -> str:
    text = f"for {_about(straggler.seconds)}"
    if straggler.always:
        return f"{text}, as long as is known"
    past = straggler.times_past
    if past is None or not FASTER_BEFORE <= past < math.inf:
        return f"{text} at least"
    return (
        f"{text}; before, its own part of a step took {duration(straggler.busy / past)}"
    )


def _former_sentence(straggler: Straggler) -> str:
    return (
        f"{_who([straggler])} was slow for {_about(straggler.seconds)}, until "
        f"{ago(straggler.ended_seconds)} ({straggler.kind.value})"
    )


def document(slowness: Slowness | None) -> dict[str, Any]:
    """Return *slowness*; of each list, at most a thousand."""
    if slowness is None:
        return {"compared": False}
    return {
        "compared": True,
        "verdict": _headline(slowness) if slowness.stragglers else "",
        "step_seconds": slowness.step,
        "lost_seconds": slowness.lost,
        **{
            name: [*map(_straggler_document, found[: words.MOST_NUMBERS])]
            for name, found in words.chosen(slowness, "stragglers former").items()
        },
        "throttled": [
            {"rank": rank.index, "reasons": reasons}
            for rank, reasons in slowness.throttled[: words.MOST_NUMBERS]
        ],
    }


def _straggler_document(straggler: Straggler) -> dict[str, Any]:
    return words.identity(straggler.rank) | {
        "kind": straggler.kind.value,
        "verdict": _former_sentence(straggler)
        if straggler.ended_seconds
        else _sentence([straggler]),
        "action": _PHRASES[straggler.kind].advice,
        "where": straggler.place,
        **words.chosen(straggler, "activity function"),
        "others_wait_ratio": straggler.ratio,
        "seconds_of_step": straggler.spent,
        "median_seconds_of_step": straggler.median,
        "own_seconds_of_step": straggler.busy,
        "times_the_median": _finite(straggler.times_median),
        "times_its_past": _finite(straggler.times_past),
        "seconds": straggler.seconds,
        "since_the_start": straggler.always,
        "ended_seconds": straggler.ended_seconds or None,
        **words.chosen(straggler, "throttled xids"),
    }


def _about(seconds: float) -> str:
    return duration(round(seconds)).replace(".0 s", " s")


def _finite(number: float | None) -> float | None:
    return None if number is None or math.isinf(number) else number
