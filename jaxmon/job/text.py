"""
A verdict on jobs as text, as short as possible whatever the number of ranks, and as
JSON types; and the stacks of the threads of many ranks, grouped by likeness, the rarest
first: in a hang most ranks are at the same place, and a rank elsewhere is suspect,
as ByteRobust does it (Wan et al. 2025, arXiv 2509.16293).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from jaxmon.facts.host import JobHost
from jaxmon.host.formats.layout import INDENT, counted, duration, shortened, wrapped
from jaxmon.job import collectives, differences, stragglers_text, words
from jaxmon.job.model import FAILED, Job, JobState, SuspectKind, Suspects, Verdict
from jaxmon.job.words import MOST_NUMBERS, advice_lines, does, numbers, point, rest, who
from jaxmon.screens.timeouts import FLAGS, timeout


_MOST_JOBS, _MOST_SUSPECTS = 20, 5
# Of a suspect.
_MOST_LINES, _MOST_HELPERS = 5, 2
_MOST_NAMES, _MOST_PROCESSES = 10, 10
# Of the time after which a job is hung; it may be about to be.
_SOON = 1 / 3
# Installed packages are shown by their name.
_JAX = "jax/"
# JAX notices these, and ends the others.
_NOTICED = frozenset((*FAILED, SuspectKind.MISSING))


def lines(verdict: Verdict, width: int) -> list[str]:
    """Return *verdict* in lines of at most *width* columns, some dozens at most."""
    missing = any(
        group.kind is SuspectKind.MISSING
        for job in verdict.jobs
        for group in job.suspects
    )
    notes: list[str] = []
    if missing or not verdict.jobs:
        for text in (*_others(verdict.others), *_failed(verdict.unknown)):
            notes += wrapped(text, width)
    nothing = f"No rank of a job on {counted(verdict.answered, 'host')}."
    return words.paragraphs(
        (
            *(_job(job, width) for job in verdict.jobs[:_MOST_JOBS]),
            rest(verdict.jobs, _MOST_JOBS, "further job", ""),
            notes if verdict.jobs else [nothing, *notes],
            words.silent_lines(verdict.silent, verdict.answered, width),
            _doubted(verdict, width),
        )
    )


_ALONE = "On its host, `jaxmon explain --stacks` shows where a process is."


def _others(number: int) -> Iterator[str]:
    if number == 1:
        yield "1 observed process there belongs to no job, or has not joined it yet."
    elif number:
        belong = "belong to no job, or have not joined theirs yet"
        yield f"{number:,} observed processes there {belong}."
    if number:
        yield _ALONE


def _failed(number: int) -> Iterator[str]:
    if number:
        processes = "1 process" if number == 1 else f"{number:,} processes"
        yield (
            f"{processes} of unknown rank failed there: `jaxmon job post-mortem` shows "
            "how."
        )


def _doubted(verdict: Verdict, width: int) -> Iterator[str]:
    if verdict.doubts:
        yield "Not read, so that the verdict may be wrong:"
        texts = [f"{target}, {doubt}" for target, doubt in verdict.doubts]
        yield from words.points(texts, words.MOST_SILENT, width)


def headline(job: Job) -> str:
    """Return how *job* is, in one line."""
    size = words.how_many(job)
    spent = "" if job.seconds is None else f" for {duration(job.seconds)}"
    if job.state is JobState.PROGRESSING:
        if job.seconds is None:
            return f"PROGRESSING: {size}"
        soon = job.seconds >= job.limit * _SOON
        limit = f", hung from {duration(job.limit)}" if soon else ""
        return f"PROGRESSING: {size}; last call {duration(job.seconds)} ago{limit}"
    if job.state is JobState.WAITING:
        return f"WAITING{spent}, hung from {duration(job.limit)}: {size}"
    if job.state is JobState.HUNG:
        return f"HUNG{spent}: {size}"
    return f"{job.state.value.upper()}: {size}"


def _job(job: Job, width: int) -> Iterator[str]:
    yield from wrapped(headline(job), width, rest=INDENT)
    for group in job.suspects[:_MOST_SUSPECTS]:
        yield from _suspects(job, group, width)
    for line in rest(job.suspects, _MOST_SUSPECTS, "further group"):
        yield f"{line} of ranks"
    if job.state is JobState.ENDED and FAILED & {group.kind for group in job.suspects}:
        yield from advice_lines(words.FIRST, width)
    if job.state is JobState.UNKNOWN:
        yield from wrapped(words.UNCOUNTED, width, first=INDENT, rest=INDENT)
    yield from _waiting(job, width)
    if job.slowness is not None:
        yield from stragglers_text.lines(job.slowness, width)
    yield from collectives.late_lines(job.late_ranks, width)
    if job.starved:
        text = f"{numbers(job.starved)}: waiting for a processor most of the time"
        yield from point(text, width)
    for text in (collectives.ras_text(job), time_limit(job)):
        if text:
            yield from point(text, width)
    yield from differences.lines(job.deviating, width)
    yield from differences.compile_lines(job.repeated, width)


def _waiting(job: Job, width: int) -> Iterator[str]:
    waiting = job.waiting.numbers
    if job.state not in {JobState.HUNG, JobState.WAITING} or not waiting:
        return
    if job.suspects:
        yield from point(f"{numbers(waiting)} {words.waits(job)}", width)
        return
    ranks = "all ranks" if len(waiting) == job.count else numbers(waiting)
    text = f"{ranks} have dispatched the same: {len(waiting):,} {words.waits(job)}"
    yield from point(text, width)
    for group in job.dispatched[:_MOST_SUSPECTS]:
        yield from point(f"{who(group)} dispatched that, too, and {does(group)}", width)
    yield from advice_lines(words.NETWORK, width)


def _suspects(job: Job, suspects: Suspects, width: int) -> Iterator[str]:
    parts = [f"{who(suspects)} {does(suspects)}", words.behind(suspects, job.waiting)]
    yield from point("; ".join(filter(None, parts)), width)
    if job.state in {JobState.HUNG, JobState.WAITING}:
        for line in _stack(suspects)[:_MOST_LINES]:
            yield from wrapped(line, width, first=INDENT * 3, rest=INDENT * 4)
        for text in (
            *(f"its {helper}" for helper in suspects.failed_helpers[:_MOST_HELPERS]),
            *(f"its {other.filling}" for other in suspects.fillers[:_MOST_HELPERS]),
            *(
                f"its thread {other.name} waits for a lock too: {other.stack[0]}"
                for other in suspects.contenders[:_MOST_HELPERS]
            ),
        ):
            yield from wrapped(text, width, first=INDENT * 2, rest=INDENT * 3)
        yield from advice_lines(words.advised(suspects, job.count), width)


def _stack(suspects: Suspects) -> tuple[str, ...]:
    """Return the stack of one of *suspects*, from the line of the program on."""
    if not suspects.ranks:
        return ()
    stack = suspects.ranks[0].now.stack
    inner = [f"{suspects.place} in " not in line for line in stack]
    outer = stack[inner.index(False) :] if not all(inner) else stack
    return tuple(line for line in outer if not line.startswith(_JAX)) or outer


def time_limit(job: Job) -> str:
    """Return what would end the hang of *job*, empty without one, or if unknown."""
    if job.state is not JobState.HUNG or _NOTICED & {
        group.kind for group in job.suspects
    }:
        return ""
    setups = [rank.setup for rank in job.ranks if rank.setup]
    pairs = {(setup.get("platform", ""), setup.get("jaxlib", "")) for setup in setups}
    timeouts = {timeout(*pair) for pair in pairs}
    limit = timeouts.pop() if len(timeouts) == 1 else None
    if limit is None:
        return ""
    values = {setup.get(f"{FLAGS} {limit.flag}", "") for setup in setups}
    if values == {""} and not limit.default:
        return (
            f"no time limit ends this. {limit.assignment} in all processes "
            f"{limit.what}; {limit.price}"
        )
    shown = sorted(value or limit.default or "not set" for value in values)
    return f"{limit.flag} is {', '.join(shown)}: it {limit.what}"


def document(verdict: Verdict) -> dict[str, Any]:
    """Return *verdict*; of each list of numbers, at most a thousand."""
    return {
        "schema": words.SCHEMA,
        "state": worst(verdict).value,
        "jobs": [_job_document(job) for job in verdict.jobs],
        "silent": [
            {"target": target, "trouble": trouble} for target, trouble in verdict.silent
        ],
        **words.chosen(verdict, "answered others"),
        "unknown_rank": verdict.unknown,
        "doubts": [
            {"target": target, "doubt": doubt} for target, doubt in verdict.doubts
        ][:MOST_NUMBERS],
    }


def worst(verdict: Verdict) -> JobState:
    """Return the state of the job that is worst, unknown if there is none."""
    live = [job.state for job in verdict.jobs if job.state is not JobState.ENDED]
    if live:
        return live[0]
    return JobState.ENDED if verdict.jobs else JobState.UNKNOWN


def _job_document(job: Job) -> dict[str, Any]:
    waiting = job.waiting
    return {
        "coordinator": job.coordinator,
        "names": sorted({rank.job for rank in job.ranks if rank.job})[:_MOST_NAMES],
        "processes": job.count,
        "hosts": job.hosts,
        "state": job.state.value,
        "verdict": headline(job),
        "seconds_without_progress": job.seconds,
        "hung_from_seconds": job.limit,
        "waiting": {
            "ranks": waiting.numbers[:MOST_NUMBERS],
            "number": len(waiting.numbers),
            "function": waiting.function,
            "call": waiting.call,
            "where": waiting.place,
        },
        "suspects": [_suspects_document(group, job.count) for group in job.suspects],
        "ahead": [_suspects_document(group, job.count) for group in job.dispatched],
        "starved": job.starved[:MOST_NUMBERS],
        "slowness": stragglers_text.document(job.slowness),
        "latecomers": collectives.late_document(job.late_ranks),
        "nccl": collectives.ras_document(job.nccl),
        "time_limit": time_limit(job),
        "differ": differences.document(job.deviating),
        "compiled_in_vain": differences.compile_document(job.repeated),
    }


def _suspects_document(suspects: Suspects, count: int) -> dict[str, Any]:
    return {
        "kind": suspects.kind.value,
        "verdict": f"{who(suspects)} {does(suspects)}",
        "action": words.advised(suspects, count),
        "ranks": suspects.numbers[:MOST_NUMBERS],
        "number": len(suspects.numbers),
        "function": suspects.function,
        "where": suspects.place,
        **words.chosen(suspects, "seconds calls"),
        "gone": [str(helper) for helper in suspects.failed_helpers],
        "fillers": [thread.filling for thread in suspects.fillers],
        "processes": [
            words.identity(rank)
            | {
                "steps": {of.name: of.steps for of in rank.loops},
                "stack": rank.now.stack,
            }
            for rank in suspects.ranks[:_MOST_PROCESSES]
        ],
    }


_MOST_GROUPS = 20
_MOST_OF_A_STACK = 20

Stack: TypeAlias = tuple[str, ...]


class StackGroup(NamedTuple):
    """Threads in the same functions, with the commonest *stack* of so many *stacks*."""

    ranks: tuple[int, ...]
    threads: int
    stack: Stack
    stacks: int


def of_hosts(hosts: Iterable[JobHost]) -> Iterator[tuple[int, Stack]]:
    """Yield the stacks of all threads on *hosts*, each with the number of its rank."""
    for host in hosts:
        for rank in host.ranks:
            stacks: Mapping[str, Sequence[Stack]] = host.stacks
            for stack in stacks.get(rank.worker, ()):
                if rank.index is not None:
                    yield rank.index, stack


def stack_groups(stacks: Iterable[tuple[int, Stack]]) -> list[StackGroup]:
    """Return *stacks* by the functions that they consist of, the rarest first."""
    ranks: defaultdict[Stack, set[int]] = defaultdict(set)
    found: defaultdict[Stack, Counter[Stack]] = defaultdict(Counter)
    for rank, stack in stacks:
        likeness = tuple([_likeness(line) for line in stack])
        ranks[likeness].add(rank)
        found[likeness][stack] += 1
    made = [
        StackGroup(
            tuple(sorted(ranks[likeness])),
            sum(of.values()),
            of.most_common(1)[0][0],
            len(of),
        )
        for likeness, of in found.items()
    ]
    return sorted(made, key=lambda group: (len(group.ranks), group.ranks, group.stack))


def stack_lines(found: Sequence[StackGroup], width: int) -> list[str]:
    """Return *found* in lines of at most *width* columns."""
    more = rest(found, _MOST_GROUPS, "further group", "")
    return words.paragraphs(
        (
            *(_stack_group(group, width) for group in found[:_MOST_GROUPS]),
            [f"{line} of threads" for line in more],
        )
    )


def _stack_group(group: StackGroup, width: int) -> Iterator[str]:
    several = f", {group.threads:,} threads" if group.threads > len(group.ranks) else ""
    differ = f", on {group.stacks} different lines" if group.stacks > 1 else ""
    yield shortened(f"{numbers(group.ranks)}{several}{differ}:", width)
    for line in group.stack[:_MOST_OF_A_STACK]:
        yield shortened(f"{INDENT}{line}", width)
    yield from rest(group.stack, _MOST_OF_A_STACK, "further line")


def _likeness(line: str) -> str:
    place, _, function = line.rpartition(" in ")
    return f"{place.rpartition(':')[0]} in {function}"
