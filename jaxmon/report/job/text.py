"""A verdict on jobs as text: as short as possible, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.walltime import Standing
from jaxmon.formats.layout import INDENT, counted, duration, wrapped
from jaxmon.report.job import (
    compiles_text,
    latecomers_text,
    nccl_text,
    skew_text,
    slow_words,
    timeouts_text,
)
from jaxmon.report.job.compiles import wasted
from jaxmon.report.job.model import FAILED, Job, Kind, State, Suspects, Verdict
from jaxmon.report.job.skew import skew
from jaxmon.report.job.words import (
    FIRST,
    NETWORK,
    UNCOUNTED,
    advised,
    behind,
    does,
    how_many,
    numbers,
    waits,
    who,
)


_MOST_JOBS = 20
_MOST_SUSPECTS = 5
_MOST_LINES = 5
_MOST_GONE = 2
_MOST_SILENT = 10
# Of the time after which a job is hung; it may be about to be.
_SOON = 1 / 3
# Installed packages are shown by their name.
_JAX = "jax/"


def lines(verdict: Verdict, width: int) -> list[str]:
    """Return *verdict* in lines of at most *width* columns, some dozens at most."""
    found: list[str] = []
    for job in verdict.jobs[:_MOST_JOBS]:
        found += ["", *_job(job, width)]
    if (left := len(verdict.jobs) - _MOST_JOBS) > 0:
        found += ["", f"and {counted(left, 'further job')}"]
    if not verdict.jobs:
        found += ["", f"No rank of a job on {counted(verdict.answered, 'host')}."]
    missing = any(one.kind is Kind.GONE for job in verdict.jobs for one in job.suspects)
    if missing or not verdict.jobs:
        notes = [*_others(verdict.others), *_failed(verdict.unknown)]
        found += [""] * bool(missing and notes)
        for text in notes:
            found += wrapped(text, width)
    return [*found[1:], *_silent(verdict, width), *_doubted(verdict, width)]


def _others(number: int) -> Iterator[str]:
    if number == 1:
        yield "1 observed process there belongs to no job, or has not joined it yet."
    elif number:
        belong = "belong to no job, or have not joined theirs yet"
        yield f"{number:,} observed processes there {belong}."


def _failed(number: int) -> Iterator[str]:
    if number:
        processes = "1 process" if number == 1 else f"{number:,} processes"
        yield (
            f"{processes} of unknown rank failed there: `jaxmon job post-mortem` shows "
            "how."
        )


def _silent(verdict: Verdict, width: int) -> Iterator[str]:
    silent = verdict.silent
    if not silent:
        return
    hosts = counted(verdict.answered + len(silent), "host")
    yield ""
    yield f"{len(silent):,} of {hosts} did not answer:"
    for target, trouble in silent[:_MOST_SILENT]:
        yield from wrapped(f"{target}: {trouble}", width, first=INDENT, rest=INDENT * 2)
    if (left := len(silent) - _MOST_SILENT) > 0:
        yield f"{INDENT}and {left:,} more"


def _doubted(verdict: Verdict, width: int) -> Iterator[str]:
    if not verdict.doubts:
        return
    yield ""
    yield "Not read, so that the verdict may be wrong:"
    for target, doubt in verdict.doubts[:_MOST_SILENT]:
        yield from wrapped(f"{target}, {doubt}", width, first=INDENT, rest=INDENT * 2)
    if (left := len(verdict.doubts) - _MOST_SILENT) > 0:
        yield f"{INDENT}and {left:,} more"


def headline(job: Job) -> str:
    """Return how *job* is, in one line."""
    size = how_many(job)
    spent = "" if job.seconds is None else f" for {duration(job.seconds)}"
    if job.state is State.PROGRESSING:
        if job.seconds is None:
            return f"PROGRESSING: {size}"
        soon = job.seconds >= job.limit * _SOON
        limit = f", hung from {duration(job.limit)}" if soon else ""
        return f"PROGRESSING: {size}; last call {duration(job.seconds)} ago{limit}"
    if job.state is State.WAITING:
        return f"WAITING{spent}, hung from {duration(job.limit)}: {size}"
    if job.state is State.HUNG:
        return f"HUNG{spent}: {size}"
    return f"{job.state.value.upper()}: {size}"


def _job(job: Job, width: int) -> Iterator[str]:
    yield from wrapped(headline(job), width, rest=INDENT)
    for one in job.suspects[:_MOST_SUSPECTS]:
        yield from _suspects(job, one, width)
    if (left := len(job.suspects) - _MOST_SUSPECTS) > 0:
        yield f"{INDENT}and {counted(left, 'further group')} of ranks"
    if job.state is State.ENDED and FAILED & {one.kind for one in job.suspects}:
        yield from wrapped(FIRST, width, first=INDENT * 2, rest=INDENT * 2)
    if job.state is State.UNKNOWN:
        yield from wrapped(UNCOUNTED, width, first=INDENT, rest=INDENT)
    stalled = job.state in {State.HUNG, State.WAITING}
    waiting = job.waiting.numbers
    if stalled and waiting and not job.suspects:
        ranks = "all ranks" if len(waiting) == job.count else numbers(waiting)
        text = f"{ranks} have dispatched the same: {len(waiting):,} {waits(job)}"
        yield from wrapped(text, width, first=INDENT, rest=INDENT * 2)
        for one in job.ahead[:_MOST_SUSPECTS]:
            text = f"{who(one)} dispatched that, too, and {does(one)}"
            yield from wrapped(text, width, first=INDENT, rest=INDENT * 2)
        yield from wrapped(NETWORK, width, first=INDENT * 2, rest=INDENT * 2)
    elif stalled and waiting:
        text = f"{numbers(waiting)} {waits(job)}"
        yield from wrapped(text, width, first=INDENT, rest=INDENT * 2)
    if job.slowness is not None:
        yield from slow_words.lines(job.slowness, width)
    yield from latecomers_text.lines(job.latecomers, width)
    if job.starved:
        text = f"{numbers(job.starved)}: waiting for a processor most of the time"
        yield from wrapped(text, width, first=INDENT, rest=INDENT * 2)
    yield from nccl_text.lines(job, width)
    yield from timeouts_text.lines(job, width)
    yield from skew_text.lines(skew(job.ranks), width)
    yield from compiles_text.lines(wasted(job.ranks), width)


def _suspects(job: Job, suspects: Suspects, width: int) -> Iterator[str]:
    parts = [f"{who(suspects)} {does(suspects)}", behind(suspects, job.waiting)]
    text = "; ".join(filter(None, parts))
    yield from wrapped(text, width, first=INDENT, rest=INDENT * 2)
    if job.state in {State.HUNG, State.WAITING}:
        for line in _stack(suspects)[:_MOST_LINES]:
            yield from wrapped(line, width, first=INDENT * 3, rest=INDENT * 4)
        for helper in suspects.gone[:_MOST_GONE]:
            text = f"its {helper}"
            yield from wrapped(text, width, first=INDENT * 2, rest=INDENT * 3)
        for other in _beside(suspects)[:_MOST_GONE]:
            text = f"its thread {other.name} waits for a lock too: {other.stack[0]}"
            yield from wrapped(text, width, first=INDENT * 2, rest=INDENT * 3)
        advice = advised(suspects, job.count)
        yield from wrapped(advice, width, first=INDENT * 2, rest=INDENT * 2)


def _beside(suspects: Suspects) -> list[Standing]:
    """Return the threads of one of *suspects* that wait for a lock, if it does."""
    if suspects.kind is not Kind.LOCK:
        return []
    return [one for one in suspects.ranks[0].now.others if one.stack]


def _stack(suspects: Suspects) -> tuple[str, ...]:
    """Return the stack of one of *suspects*, from the line of the program on."""
    if not suspects.ranks:
        return ()
    stack = suspects.ranks[0].now.stack
    inner = [f"{suspects.place} in " not in line for line in stack]
    known = stack[inner.index(False) :] if not all(inner) else stack
    return tuple(line for line in known if not line.startswith(_JAX)) or known
