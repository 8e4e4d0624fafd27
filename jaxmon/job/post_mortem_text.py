"""How a job failed, in words and as JSON types."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from jaxmon.facts.host import JobHost
from jaxmon.host.formats.layout import INDENT, counted, duration, wrapped
from jaxmon.job import words as job_words
from jaxmon.job.post_mortem import FailureKind, PostMortem, PostMortems, RankFailure
from jaxmon.job.words import MOST_NUMBERS, advice_lines, agreeing, numbers, point, rest


_MOST_JOBS, _MOST_FAILURES, _MOST_GROUPS = 20, 10, 5
# Clocks that differ less mislead no one who reads logs.
_SAME = 1.0

_HANGS = "it hangs: `jaxmon job why` says which rank the others wait for"
_ADVICE = {
    FailureKind.EXCEPTION: "Its log shows the traceback.",
    FailureKind.OOM: "`jaxmon runbook show JaxmonOutOfMemory` says what to do; the "
    "report that jaxmon wrote on the host shows what held the memory.",
    FailureKind.EXIT: "Its log says why it exited.",
    FailureKind.CRASHED: "Its log shows the exception.",
    FailureKind.STOPPED: "A user, a scheduler or an eviction stopped it: their logs "
    "say which (`kubectl describe pod`, `sacct`).",
    FailureKind.KILLED: "SIGKILL, an eviction, SIGTERM that nothing handles, "
    "`os._exit`, or a crash in C. The logs of the program, the kernel and the "
    "scheduler say which (`dmesg`, `kubectl describe pod`, `sacct`).",
    FailureKind.OOM_KILLED: "The kernel killed it, or a process beside it, for its "
    "memory: raise the limit, or load less.",
}
_IN_C = (
    "A crash in C: `python -X faulthandler` prints where, `coredumpctl` may have the "
    "core."
)
_BY_SIGNAL = dict.fromkeys(("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV"), _IN_C)
_KILLED = (
    "A user, a scheduler, an eviction or the kernel sent it that signal: their logs "
    "say which (`dmesg`, `kubectl describe pod`, `sacct`)."
)


def lines(found: PostMortems, width: int) -> list[str]:
    """Return *found* in lines of at most *width* columns, some dozens at most."""
    silent = [(host.target, host.trouble) for host in found.hosts if host.trouble]
    answered = len(found.hosts) - len(silent)
    nothing = [f"No rank of a job on {counted(answered, 'host')}."]
    unknown = [_unknown_rank(of, width) for of in found.unknown[:_MOST_FAILURES]]
    if unknown:
        unknown[-1] += rest(found.unknown, _MOST_FAILURES, "further one", "")
    return job_words.paragraphs(
        (
            *(_job(job, width) for job in found.jobs[:_MOST_JOBS]),
            rest(found.jobs, _MOST_JOBS, "further job", ""),
            [] if found.jobs else nothing,
            *unknown,
            job_words.silent_lines(silent, answered, width),
        )
    )


def _unknown_rank(failure: RankFailure, width: int) -> list[str]:
    text = f"A process of unknown rank ({failure.rank.host}) {_did(failure)}"
    found = wrapped(text, width, rest=INDENT)
    for line in _details(failure):
        found += point(line, width)
    return found


def headline(job: PostMortem) -> str:
    """Return in one line whether *job* failed."""
    names = {rank.job for rank in job.ranks if rank.job}
    name = names.pop() if len(names) == 1 else job.coordinator
    size = f"{counted(job.count, 'rank')}{f' of {name}' if name else ''}"
    where = f"{size}, on {counted(job.hosts, 'host')}"
    outcome = "NO FAILURE KNOWN" if job.missing else "NO FAILURE"
    outcome = "STOPPED" if job.first is not None else outcome
    return f"{'FAILED' if job.failed else outcome}: {where}"


def what(failure: RankFailure) -> str:
    """Return how a rank failed, in its own words where it left some."""
    end, kind = failure.rank.words, failure.kind
    if kind is FailureKind.OOM_KILLED:
        return "was killed by the kernel for memory"
    if kind is FailureKind.CRASHED and not end.kind:
        return "ended by an uncaught exception"
    return str(end).removeprefix("raised ")


def verdict(job: PostMortem) -> str:
    """Return what failed first, in one line; empty if that is not known."""
    return "" if job.first is None else f"{job.first.rank} {_did(job.first)}"


def _did(failure: RankFailure) -> str:
    raised = failure.rank.words.kind == "exception"
    return f"{'raised ' if raised else ''}{what(failure)}"


def _job(job: PostMortem, width: int) -> Iterator[str]:
    yield from wrapped(headline(job), width, rest=INDENT)
    first = job.first
    if first is not None:
        yield from point(f"first: {verdict(job)}", width)
        for text in _details(first):
            yield from wrapped(text, width, first=INDENT * 2, rest=INDENT * 3)
        yield from advice_lines(_advice(first), width)
    elif job.consequences:
        yield from point(_unknown(job), width)
    for title, found in (
        ("at the same time", job.together),
        ("later", job.later),
        ("consequence", job.consequences),
    ):
        for failure in found[:_MOST_FAILURES]:
            text = f"{title}, {_since(failure, first)}: {failure.rank} {_did(failure)}"
            yield from point(text, width)
        yield from rest(found, _MOST_FAILURES, "further one")
    ended = first is not None or job.failed
    for text in _others(job) if ended else _missing(job):
        yield from point(text, width)
    if job.hangs and not ended:
        yield from point(_HANGS, width)


def _advice(failure: RankFailure) -> str:
    signal = failure.rank.words.signal_name
    if failure.kind is FailureKind.KILLED and signal:
        return _BY_SIGNAL.get(signal, _KILLED)
    return _ADVICE[failure.kind]


def _others(job: PostMortem) -> Iterator[str]:
    for failure in job.consequences:
        # What most users look at is one.
        if failure.rank.index == 0 and job.first is not None and failure.of_peers:
            cause = job.first.rank.index
            yield f"what rank 0 printed is a consequence of the failure of rank {cause}"
    for doing in job.running[:_MOST_GROUPS]:
        have, does = agreeing("has", len(doing.numbers)), job_words.does(doing)
        yield f"{numbers(doing.numbers)} {have} not failed, and {does}"
    for found, text in (
        (job.waiting, "only waits for others"),
        (job.finished, "has finished"),
        (job.restarted, "has been started again since"),
    ):
        if found:
            yield f"{numbers(found)} {agreeing(text, len(found))}"
    yield from _missing(job)


def _missing(job: PostMortem) -> Iterator[str]:
    """Yield which ranks may have failed before anything was known of them."""
    if job.missing:
        # All have joined before any of them can call what they run together.
        joined = any(rank.functions for rank in job.ranks)
        verb = agreeing("is", len(job.missing))
        yield (
            f"{numbers(job.missing)} {verb} reported by none of these hosts, and may "
            f"have failed{'' if joined else ' before joining'}"
        )


def _details(failure: RankFailure) -> Iterator[str]:
    words, rank = failure.rank.words, failure.rank
    if words.where:
        yield f"{words.where} in {words.function}"
    if words.kind:
        yield ", ".join(filter(None, (_moment(failure), *reached(failure))))
    else:
        yield _moment(failure)
        yield _seen_last(failure)
    if (offset := failure.host.clock_offset) is not None and abs(offset) > _SAME:
        way = "ahead of" if offset > 0 else "behind"
        at = _clock(failure.time + offset)
        yield f"its clock is {duration(abs(offset))} {way} this one: {at} in its logs"
    if failure.is_silent and rank.host_oom_kills:
        yield f"the kernel killed {rank.host_oom_kills} on that host for memory then"
    for xid in failure.host.xids:
        if (before := failure.last - (failure.host.asked - xid.age_seconds)) >= 0:
            yield f"Xid {xid.xid} of {xid.uuid}, {duration(before)} before"


def _seen_last(failure: RankFailure) -> str:
    """Return where a rank was when it was read last, and how long before its end."""
    rank = failure.rank
    before = failure.time - (failure.host.asked - rank.since_seconds)
    ago = f" {duration(before)} before," if before >= _SAME else ""
    now = rank.now
    activity = f"the activity {now.activity}" if now.activity else ""
    where = ", ".join(filter(None, (activity, now.place)))
    place = f" in {where}" if where else ""
    return ", ".join((f"was seen last{ago}{place}".rstrip(","), *reached(failure)))


def _moment(failure: RankFailure) -> str:
    spread = failure.last - failure.first
    text = f"at {_clock(failure.time)}"
    return f"{text} (within {duration(spread)})" if spread >= _SAME else text


def reached(failure: RankFailure) -> Iterator[str]:
    """Yield how far a rank had come."""
    words, rank = failure.rank.words, failure.rank
    if words.kind:
        loops, calls = [(words.loop, words.steps)], [(words.calls, words.called)]
    else:
        loops = [(loop.name, loop.steps) for loop in rank.loops]
        calls = [(function.calls or 0, function.name) for function in rank.functions]
    for name, steps in loops[:1]:
        if name:
            yield f"after step {steps:,} of {name}"
    most, called = max(calls, default=(0, ""))
    if most:
        yield f"call {most:,} of {job_words.short(called)}"


def _unknown(job: PostMortem) -> str:
    if job.missing:
        return (
            "what failed first is not known: each of these errors is about another "
            f"process, and {numbers(job.missing)} left nothing here"
        )
    lead = "no rank failed before these, which are about other processes: look at"
    if job.running:
        return f"{lead} what {numbers(_running(job))} did instead, and at the network"
    return f"{lead} the network, and for a process that was restarted"


def _running(job: PostMortem) -> list[int]:
    return sorted(n for group in job.running for n in group.numbers)


def _since(failure: RankFailure, first: RankFailure | None) -> str:
    if first is None:
        return f"at {_clock(failure.time)}"
    if failure.meets(first):
        spread = max(failure.last, first.last) - min(failure.first, first.first)
        return f"within {duration(spread)}"
    after = failure.time - first.time
    if after < 0:
        return f"noticed {duration(-after)} before"
    return f"{duration(after)} later"


def _clock(time: float) -> str:
    try:
        return f"{datetime.fromtimestamp(time, UTC):%H:%M:%S.%f}"[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return ""


def document(found: PostMortems) -> dict[str, Any]:
    """Return *found* as JSON types; of each list of numbers, at most a thousand."""
    return {
        "schema": job_words.SCHEMA,
        "failed": any(job.failed for job in found.jobs),
        "jobs": [_job_document(job) for job in found.jobs],
        "hosts": [_host(host) for host in found.hosts if not host.trouble],
        "silent": [
            job_words.chosen(host, "target trouble")
            for host in found.hosts
            if host.trouble
        ],
        "others": found.others,
        "unknown_rank": [
            _failure(failure, None) for failure in found.unknown[:MOST_NUMBERS]
        ],
    }


def _job_document(job: PostMortem) -> dict[str, Any]:
    def listed(of: tuple[RankFailure, ...]) -> list[dict[str, Any]]:
        return [_failure(failure, job.first) for failure in of[:MOST_NUMBERS]]

    failures = job_words.chosen(job, "together later consequences")
    ranks = job_words.chosen(job, "waiting finished missing restarted")
    return {
        "coordinator": job.coordinator,
        "processes": job.count,
        **job_words.chosen(job, "hosts failed"),
        "verdict": verdict(job),
        "first": None if job.first is None else _failure(job.first, None),
        **{name: listed(of) for name, of in failures.items()},
        **{name: of[:MOST_NUMBERS] for name, of in ranks.items()},
        "running": _running(job)[:MOST_NUMBERS],
    }


def _failure(failure: RankFailure, first: RankFailure | None) -> dict[str, Any]:
    words = failure.rank.words
    return {
        "rank": failure.rank.index,
        "host": failure.rank.host,
        "target": failure.host.target,
        "pid": failure.rank.pid,
        "ending": failure.kind.value,
        "what": what(failure),
        "code": words.code if failure.kind is FailureKind.EXIT else None,
        "of_peers": failure.of_peers,
        **job_words.chosen(words, "where function"),
        "reached": list(reached(failure)),
        "time": failure.time,
        "uncertainty_seconds": (failure.last - failure.first) / 2,
        "seconds_after_first": None if first is None else failure.time - first.time,
        **job_words.chosen(failure.rank, "oom_kills host_oom_kills"),
    }


def _host(host: JobHost) -> dict[str, Any]:
    return {
        "target": host.target,
        "clock_ahead_seconds": None if host.time is None else host.time - host.asked,
        "uncertainty_seconds": host.within,
        "xids": [
            {"uuid": xid.uuid, "xid": xid.xid, "time": host.asked - xid.age_seconds}
            for xid in host.xids
        ],
    }
