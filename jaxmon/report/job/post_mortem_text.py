"""The words for how a job failed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from jaxmon.formats.layout import INDENT, counted, duration, wrapped
from jaxmon.report.job.failures import Ending, Failure
from jaxmon.report.job.post_mortem import Found, PostMortem
from jaxmon.report.job.words import does, numbers, short


_MOST_JOBS = 20
_MOST_FAILURES = 10
_MOST_HOSTS = 10
_MOST_GROUPS = 5
# Clocks that differ less mislead no one who reads logs.
_SAME = 1.0

_HANGS = "it hangs: `jaxmon job why` says which rank the others wait for"
_ADVICE = {
    Ending.EXCEPTION: "Its log shows the traceback.",
    Ending.OOM: "`jaxmon runbook show JaxmonOutOfMemory` says what to do; the report "
    "that jaxmon wrote on the host shows what held the memory.",
    Ending.EXIT: "Its log says why it exited.",
    Ending.CRASHED: "Its log shows the exception.",
    Ending.KILLED: "SIGKILL, an eviction, SIGTERM that nothing handles, `os._exit`, or "
    "a crash in C. The logs of the program, the kernel and the scheduler say which "
    "(`dmesg`, `kubectl describe pod`, `sacct`).",
    Ending.OOM_KILLED: "The kernel killed it, or a process beside it, for its memory: "
    "raise the limit, or load less.",
}
_IN_C = (
    "A crash in C: `python -X faulthandler` prints where, `coredumpctl` may have the "
    "core."
)
_BY_SIGNAL = dict.fromkeys(("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV"), _IN_C)
_STOPPED = (
    "A user, a scheduler, an eviction or the kernel sent it that signal: their logs "
    "say which (`dmesg`, `kubectl describe pod`, `sacct`)."
)


def lines(found: Found, width: int) -> list[str]:
    """Return *found* in lines of at most *width* columns, some dozens at most."""
    text: list[str] = []
    for job in found.jobs[:_MOST_JOBS]:
        text += ["", *_job(job, width)]
    if (left := len(found.jobs) - _MOST_JOBS) > 0:
        text += ["", f"and {counted(left, 'further job')}"]
    silent = [one for one in found.hosts if one.trouble]
    if not found.jobs:
        answered = counted(len(found.hosts) - len(silent), "host")
        text += ["", f"No rank of a job on {answered}."]
    text += _unknown_ranks(found, width)
    if silent:
        hosts = counted(len(found.hosts), "host")
        text += ["", f"{len(silent):,} of {hosts} did not answer:"]
        for one in silent[:_MOST_HOSTS]:
            line = f"{one.target}: {one.trouble}"
            text += wrapped(line, width, first=INDENT, rest=INDENT * 2)
        if (left := len(silent) - _MOST_HOSTS) > 0:
            text.append(f"{INDENT}and {left:,} more")
    return text[1:]


def _unknown_ranks(found: Found, width: int) -> Iterator[str]:
    """Yield the failures of processes that may have been the ranks that are missing."""
    for one in found.unknown[:_MOST_FAILURES]:
        yield ""
        text = f"A process of unknown rank ({one.rank.host}) {_did(one)}"
        yield from wrapped(text, width, rest=INDENT)
        for line in _details(one):
            yield from wrapped(line, width, first=INDENT, rest=INDENT * 2)
    if (left := len(found.unknown) - _MOST_FAILURES) > 0:
        yield f"and {counted(left, 'further one')}"


def headline(job: PostMortem) -> str:
    """Return in one line whether *job* failed."""
    names = {one.job for one in job.ranks if one.job}
    name = names.pop() if len(names) == 1 else job.coordinator
    size = f"{counted(job.count, 'rank')}{f' of {name}' if name else ''}"
    where = f"{size}, on {counted(job.hosts, 'host')}"
    known = "NO FAILURE KNOWN" if job.missing else "NO FAILURE"
    return f"{'FAILED' if job.failed else known}: {where}"


def what(failure: Failure) -> str:
    """Return how a rank failed, in its own words where it left some."""
    end, ending = failure.rank.words, failure.ending
    if ending is Ending.OOM_KILLED:
        return "was killed by the kernel for memory"
    if ending is Ending.CRASHED and not end.kind:
        return "ended by an uncaught exception"
    return str(end).removeprefix("raised ")


def who(failure: Failure) -> str:
    """Return rank, host and process of *failure*."""
    rank = failure.rank
    return f"rank {rank.index} ({rank.host}, pid {rank.pid})"


def verdict(job: PostMortem) -> str:
    """Return what failed first, in one line; empty if that is not known."""
    return "" if job.first is None else f"{who(job.first)} {_did(job.first)}"


def _did(failure: Failure) -> str:
    said = failure.rank.words.kind == "exception"
    return f"{'raised ' if said else ''}{what(failure)}"


def _job(job: PostMortem, width: int) -> Iterator[str]:
    yield from wrapped(headline(job), width, rest=INDENT)
    first = job.first
    if first is not None:
        yield from _bullet(f"first: {verdict(job)}", width)
        for text in _details(first):
            yield from wrapped(text, width, first=INDENT * 2, rest=INDENT * 3)
        advice = _advice(first)
        yield from wrapped(advice, width, first=INDENT * 2, rest=INDENT * 2)
    elif job.consequences:
        yield from _bullet(_unknown(job), width)
    for title, found in (
        ("at the same time", job.together),
        ("later", job.later),
        ("consequence", job.consequences),
    ):
        for one in found[:_MOST_FAILURES]:
            text = f"{title}, {_since(one, first)}: {who(one)} {_did(one)}"
            yield from _bullet(text, width)
        if (left := len(found) - _MOST_FAILURES) > 0:
            yield f"{INDENT}and {counted(left, 'further one')}"
    for text in _others(job) if job.failed else _missing(job):
        yield from _bullet(text, width)
    if job.hangs and not job.failed:
        yield from _bullet(_HANGS, width)


def _advice(failure: Failure) -> str:
    """Return where to look further, by the signal if that is known."""
    signal = failure.rank.words.signal_name
    if failure.ending is not Ending.KILLED or not signal:
        return _ADVICE[failure.ending]
    return _BY_SIGNAL.get(signal, _STOPPED)


def _bullet(text: str, width: int) -> list[str]:
    return wrapped(text, width, first=INDENT, rest=INDENT * 2)


def _others(job: PostMortem) -> Iterator[str]:
    """Yield what is said about rank 0, and those that did not fail."""
    yield from _seen_first(job)
    for doing in job.running[:_MOST_GROUPS]:
        verb = "has" if len(doing.numbers) == 1 else "have"
        yield f"{numbers(doing.numbers)} {verb} not failed, and {does(doing)}"
    for found, one, several in (
        (job.waiting, "only waits for others", "only wait for others"),
        (job.finished, "has finished", "have finished"),
        (
            job.restarted,
            "has been started again since",
            "have been started again since",
        ),
    ):
        if found:
            yield f"{numbers(found)} {one if len(found) == 1 else several}"
    yield from _missing(job)


def _missing(job: PostMortem) -> Iterator[str]:
    """Yield which ranks may have failed before anything was known of them."""
    if job.missing:
        verb = "is" if len(job.missing) == 1 else "are"
        # All have joined before any of them can call what they run together.
        joined = any(one.functions for one in job.ranks)
        yield (
            f"{numbers(job.missing)} {verb} reported by none of these hosts, and may "
            f"have failed{'' if joined else ' before joining'}"
        )


def _details(failure: Failure) -> Iterator[str]:
    words, rank = failure.rank.words, failure.rank
    if words.where:
        yield f"{words.where} in {words.function}"
    if words.kind:
        yield ", ".join(filter(None, (_moment(failure), *reached(failure))))
    else:
        yield _moment(failure)
        yield _seen_last(failure)
    if (ahead := failure.host.ahead) is not None and abs(ahead) > _SAME:
        way = "ahead of" if ahead > 0 else "behind"
        at = _clock(failure.time + ahead)
        yield f"its clock is {duration(abs(ahead))} {way} this one: {at} in its logs"
    if failure.is_silent and rank.host_oom_kills:
        yield f"the kernel killed {rank.host_oom_kills} on that host for memory then"
    for one in failure.host.xids:
        if (before := failure.last - (failure.host.asked - one.age_seconds)) >= 0:
            yield f"Xid {one.xid} of {one.uuid}, {duration(before)} before"


def _seen_last(failure: Failure) -> str:
    """Return where a rank was when it was read last, and how long before its end."""
    rank = failure.rank
    before = failure.time - (failure.host.asked - rank.since_seconds)
    ago = f" {duration(before)} before," if before >= _SAME else ""
    now = rank.now
    activity = f"the activity {now.activity}" if now.activity else ""
    where = ", ".join(filter(None, (activity, now.place)))
    place = f" in {where}" if where else ""
    return ", ".join((f"was seen last{ago}{place}".rstrip(","), *reached(failure)))


def _moment(failure: Failure) -> str:
    spread = failure.last - failure.first
    text = f"at {_clock(failure.time)}"
    return f"{text} (within {duration(spread)})" if spread >= _SAME else text


def reached(failure: Failure) -> Iterator[str]:
    """Yield how far a rank had come."""
    words, rank = failure.rank.words, failure.rank
    if words.kind:
        loops, calls = [(words.loop, words.steps)], [(words.calls, words.called)]
    else:
        loops = [(one.name, one.steps) for one in rank.loops]
        calls = [(one.calls or 0, one.name) for one in rank.functions]
    for name, steps in loops[:1]:
        if name:
            yield f"after step {steps:,} of {name}"
    most, called = max(calls, default=(0, ""))
    if most:
        yield f"call {most:,} of {short(called)}"


def _unknown(job: PostMortem) -> str:
    """Return why it is not known what failed first."""
    if job.missing:
        return (
            "what failed first is not known: each of these errors is about another "
            f"process, and {numbers(job.missing)} left nothing here"
        )
    known = "no rank failed before these, which are about other processes: look at"
    if job.running:
        found = sorted(n for one in job.running for n in one.numbers)
        return f"{known} what {numbers(found)} did instead, and at the network"
    return f"{known} the network, and for a process that was restarted"


def _seen_first(job: PostMortem) -> Iterator[str]:
    """Yield that what most users look at is a consequence, if it is."""
    for one in job.consequences:
        if one.rank.index == 0 and job.first is not None and one.of_peers:
            cause = job.first.rank.index
            yield f"what rank 0 printed is a consequence of the failure of rank {cause}"


def _since(one: Failure, first: Failure | None) -> str:
    if first is None:
        return f"at {_clock(one.time)}"
    if one.meets(first):
        return f"within {duration(_within(one, first))}"
    after = one.time - first.time
    return (
        f"{duration(after)} later"
        if after >= 0
        else f"noticed {duration(-after)} before"
    )


def _within(one: Failure, other: Failure | None) -> float:
    other = other or one
    return max(one.last, other.last) - min(one.first, other.first)


def _clock(time: float) -> str:
    """Return the time of day of *time*, empty if there is no such day."""
    try:
        return f"{datetime.fromtimestamp(time, UTC):%H:%M:%S.%f}"[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return ""
