"""
Findings on what the wall time goes into. The constants here are the thresholds.

A state is worth a finding from a tenth of the time on. Which of them is to blame
depends on the device: while it is busy, the host may wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.facts.walltime import Period
from jaxmon.formats.durations import seconds as seconds_in
from jaxmon.formats.layout import duration
from jaxmon.report.findings import compiles, transfers
from jaxmon.report.findings.finding import Finding
from jaxmon.report.findings.periods import (
    OF_A_LINE,
    further,
    mostly,
    of_all,
    part,
    settled,
)
from jaxmon.report.findings.stalled import is_long


_MOST_LINES = 3
_MORE = 5
# Calls per read from which on a program reads rarely.
_RARELY = 10
# The device is busy if it explains this share of the wait for it.
_EXPLAINED = 0.7


def eager(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect time spent in operations outside of jit."""
    if (period := settled(snapshot)) is None:
        return
    traced = _traced_again(snapshot, period)
    dispatch = period.of("eager") + traced
    took = dispatch + _eager_waits(snapshot, period)
    # What the device computes meanwhile of jitted functions.
    hidden = max(_busy(snapshot, period) - period.of("device", "fetch"), 0.0)
    if took - hidden < snapshot.limits.time_worth * period.seconds:
        return
    lines = period.lines("eager", *(["compile"] if traced else []))
    yield Finding(
        "eager",
        lines[0][0] if lines else "",
        f"Operations outside of jit took {part(took, period)}"
        + mostly(lines, dispatch),
        further(lines),
        "Call them within a function decorated with jax.jit: one program instead of "
        "one dispatch for each operation. Replace loops over elements by jax.vmap, "
        "jax.lax.scan or array operations.",
        where=lines[0][0] if lines else "",
        seconds=of_all(took, period, snapshot),
    )


def data_wait(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect loops that wait for data."""
    if (period := settled(snapshot)) is None:
        return
    took, now = period.of("data_wait"), snapshot.time.now
    if now.state == "data_wait" and is_long(now, snapshot.limits):
        took -= min(now.seconds, took)  # `stalled` tells
    if took < snapshot.limits.time_worth * period.seconds:
        return
    lines = period.lines("data_wait")
    yield Finding(
        "data_wait",
        lines[0][0] if lines else "",
        f"The program waited for data for {part(took, period)}" + mostly(lines, took),
        further(lines),
        "Prepare the next batches while the device computes: a prefetching loader in "
        "other processes, or in threads if it mostly waits or runs in C; fewer and "
        "larger files; decoding ahead of time.",
        where=lines[0][0] if lines else "",
        seconds=of_all(took, period, snapshot),
    )


def host(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect Python that keeps the device waiting."""
    if (period := settled(snapshot)) is None:
        return
    took, busy = period.of("python"), _busy(snapshot, period)
    # What the device computes while the host does not wait for it.
    hidden = max(busy - period.of("device", "fetch"), 0.0)
    idle = took - min(hidden, took)
    limits = snapshot.limits
    worth = limits.time_worth if busy else limits.time_worth_in_doubt
    if idle < worth * period.seconds:
        return
    if snapshot.requests and period.of("idle") > idle:
        return  # the device waits for requests
    lines = period.lines("python")
    yield Finding(
        "host",
        lines[0][0] if lines else "",
        f"Python {'kept the device waiting for' if busy else 'took'} "
        f"{part(idle, period)}" + mostly(lines, took),
        further(lines),
        "Move this work out of the loop, to another thread or process, or do it while "
        "the device computes: between the call and the first read of its result.",
        where=lines[0][0] if lines else "",
        seconds=of_all(idle, period, snapshot),
    )


def garbage(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect time spent collecting garbage."""
    if (period := settled(snapshot)) is None:
        return
    took = period.of("gc")
    if took < snapshot.limits.time_worth * period.seconds:
        return
    lines = period.lines("gc")
    yield Finding(
        "garbage",
        lines[0][0] if lines else "",
        f"Python collected garbage for {part(took, period)}" + mostly(lines, took),
        further(lines),
        "Keep fewer Python objects; call gc.freeze() once the program has started, so "
        "that what stays is not looked at again, or raise gc.set_threshold(). If the "
        "loop calls gc.collect, remove that.",
        where=lines[0][0] if lines else "",
        seconds=of_all(took, period, snapshot),
    )


def held_up(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect threads of the program that keep the interpreter."""
    if (period := settled(snapshot)) is None:
        return
    took = period.of("gil")
    if took < snapshot.limits.time_worth * period.seconds:
        return
    lines = period.lines("gil")
    yield Finding(
        "interpreter",
        lines[0][0] if lines else "",
        f"The loop waited for the Python interpreter for {part(took, period)}, which "
        f"another thread had{mostly(lines, took)}",
        further(lines),
        "Only one thread runs Python at a time. Do this work in another process, such "
        "as a worker of the loader, or with functions that work on whole arrays in C, "
        "as those of NumPy do.",
        where=lines[0][0] if lines else "",
        seconds=of_all(took, period, snapshot),
    )


def blocked(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect loops that wait for locks, files, sockets or timers."""
    if (period := settled(snapshot)) is None:
        return
    # What a program marks is expected.
    took, now = period.of("blocked") - period.marked("blocked"), snapshot.time.now
    if now.state == "blocked" and not now.activity:
        took -= min(now.seconds, took)  # what has not ended is for `stalled` to judge
    if took < snapshot.limits.time_worth * period.seconds:
        return
    lines = period.lines("blocked", marked=False)
    yield Finding(
        "blocked",
        lines[0][0] if lines else "",
        f"The program was blocked outside of JAX for {part(took, period)}"
        + mostly(lines, took),
        further(lines),
        "Look at what these lines wait for: a lock, a file, a socket, a timer. Let "
        "another thread wait for it, or do it less often.",
        where=lines[0][0] if lines else "",
        seconds=of_all(took, period, snapshot),
    )


def copies(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect time spent copying to the device."""
    if (period := settled(snapshot)) is None:
        return
    took = period.of("transfer")
    if took < snapshot.limits.time_worth * period.seconds:
        return
    lines = period.lines("transfer")
    yield Finding(
        "copies",
        lines[0][0] if lines else "",
        f"Copying to the device took {part(took, period)}" + mostly(lines, took),
        further(lines),
        "Copy data that does not change once, and the rest ahead of time: call "
        "jax.device_put on the next batch before the step of this one.",
        where=lines[0][0] if lines else "",
        seconds=of_all(took, period, snapshot),
    )


def fetches(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect reads of results that cost time: because the device is not busy meanwhile, or
    because the host cannot work ahead.
    """
    if (period := settled(snapshot)) is None:
        return
    busy = _busy(snapshot, period)
    waited = period.of("fetch") - _eager_waits(snapshot, period)
    if waited < snapshot.limits.time_worth * period.seconds:
        return
    # If its time is unknown, the device is taken to be busy.
    computing = min(max(busy - period.of("device"), 0.0), waited)
    if not busy or computing >= _EXPLAINED * waited:
        computing = waited
    hidden = max(busy - period.of("device", "fetch"), 0.0)
    work = max(period.of("python", "eager", "transfer") - hidden, 0.0)
    # Who is asked waits for the answer; who reads rarely works ahead between reads.
    waits = snapshot.requests or _reads_rarely(snapshot)
    ahead = 0.0 if waits else min(work, computing)
    # While others hold the processors, neither device nor host gets on.
    starved = waited * (snapshot.usual.waiting or 0.0)
    won = max(waited - computing - starved, 0.0) + ahead
    if won < snapshot.limits.time_worth_estimated * period.seconds:
        return
    lines = period.lines("fetch")
    yield Finding(
        "fetch",
        lines[0][0] if lines else "",
        f"Reading results took {part(waited, period)}; the device was computing for "
        f"{duration(computing)} of that{mostly(lines, waited)}",
        further(lines),
        "Each read waits for all preceding device work, and the host cannot work "
        "ahead. Read a value one step later, every hundredth step, or several at once "
        "with jax.device_get.",
        where=lines[0][0] if lines else "",
        seconds=of_all(won, period, snapshot),
    )


def device(snapshot: Snapshot) -> Iterator[Finding]:
    """Say that the device computes, if that is what takes the time."""
    if (period := settled(snapshot)) is None:
        return
    took = period.of("device", "fetch") - _eager_waits(snapshot, period)
    now = snapshot.time.now
    if now.state in {"device", "fetch"} and is_long(now, snapshot.limits):
        took -= min(now.seconds, took)  # `stalled` tells
    if took < snapshot.limits.time_worth * period.seconds:
        return
    busy = _busy(snapshot, period)
    copies = next(transfers.arguments(snapshot), None)
    if (busy and busy < _EXPLAINED * took) or copies is not None:
        return
    most = sorted(snapshot.functions, key=lambda one: -one.device_seconds)
    known = [one for one in most if one.device_seconds > 0][:_MOST_LINES]
    # Its time is that of samples, times all calls.
    whole = sum(one.device_seconds for one in known)
    ratio = min(snapshot.time.since_start.seconds / max(whole, 1e-9), 1.0)
    named = f", mostly {known[0].name}" if known else ""
    yield Finding(
        "device",
        known[0].name if known else "",
        f"The device computed, or the program waited for it, for "
        f"{part(took, period)}{named}.",
        tuple(
            f"{one.name}: about {duration(one.device_seconds * ratio)} in "
            f"{one.calls or 0:,} calls"
            for one in known
        ),
        ("The host keeps it busy. " if took >= _EXPLAINED * period.seconds else "")
        + "`jaxmon profile` shows which operations take the time.",
    )


def compiling(snapshot: Snapshot) -> Iterator[Finding]:
    """Say that first compiles take the time, unless those of operations do."""
    if (period := settled(snapshot)) is None:
        return
    functions = list(snapshot.functions)
    took = period.of("compile") - _traced_again(snapshot, period)
    took -= min(snapshot.load_time, took)
    told = any(compiles.operations(snapshot))
    if told:
        functions = [one for one in functions if not one.internal]
        measured = sum(one.compile_time for one in functions)
        took = min(took, measured + snapshot.compiling.oldest_seconds)
    again = sum(one.recompile_time(c) for one in functions for c in one.recompiles)
    if took < snapshot.limits.time_worth * period.seconds or again > took / 2:
        return
    known = [one for one in functions if one.built][:_MOST_LINES]
    users = [one for one in functions if one.built and not one.internal]
    longest = max((one.compile_time / one.built for one in users), default=0.0)
    longest = max(longest, snapshot.compiling.oldest_seconds)
    # A small program takes long, too, while others hold the processors.
    alone = longest * (1 - (snapshot.usual.waiting or 0.0))
    large = alone >= seconds_in(snapshot.limits.large_program)
    yield Finding(
        "compiling",
        known[0].name if known else "",
        f"Compiling {'functions ' if told else ''}took {part(took, period)}, most of "
        "it first compiles.",
        tuple(f"{one.name}: {duration(one.compile_time)}" for one in known),
        (
            "A program that takes so long is large: Python loops are unrolled, and "
            "jax.lax.scan compiles their body once. "
            if large
            else ""
        )
        + "A longer run does not compile more; a persistent cache (see "
        "JAX_COMPILATION_CACHE_DIR) saves it in the next.",
    )


def startup(snapshot: Snapshot) -> Iterator[Finding]:
    """Say that imports, and the initialisation of devices, take the time."""
    if (period := settled(snapshot)) is None:
        return
    took = period.of("startup")
    if took < snapshot.limits.time_worth * period.seconds:
        return
    lines = period.lines("startup")
    yield Finding(
        "startup",
        lines[0][0] if lines else "",
        f"Importing modules and initialising devices took {part(took, period)}"
        + mostly(lines, took),
        further(lines),
        "A longer run does not take more of it. `python -X importtime` shows which "
        "modules take long; if it is their files, install them on a local disk.",
        where=lines[0][0] if lines else "",
    )


def idle(snapshot: Snapshot) -> Iterator[Finding]:
    """Say that there was nothing to do."""
    if (period := settled(snapshot)) is None:
        return
    took = period.of("idle")
    if took >= snapshot.limits.time_worth * period.seconds:
        text = f"The program was idle for {part(took, period)}."
        yield Finding("idle", "", text, (), "")


def _jitted(snapshot: Snapshot) -> bool:
    """Return whether the program calls jitted functions."""
    users = [one for one in snapshot.functions if not one.internal]
    return any(one.calls or one.misses for one in users)


def _reads_rarely(snapshot: Snapshot) -> bool:
    """Return whether most calls are not followed by a read of results."""
    lines = snapshot.transfers.lines
    reads = sum(one.count for one in lines if one.direction != "host_to_device")
    calls = sum(one.calls or 0 for one in snapshot.functions if not one.internal)
    return 0 < reads * _RARELY < calls


def _eager_waits(snapshot: Snapshot, period: Period) -> float:
    """
    Return for how long the program waited for results of operations outside of jit: if
    it hardly dispatches anything else, these are what the device computes.
    """
    dispatch, called = period.of("eager"), period.of("device")
    waited, busy = period.of("fetch"), _busy(snapshot, period)
    if not _jitted(snapshot):
        return waited
    few = dispatch < OF_A_LINE * period.seconds or dispatch < _MORE * called
    # If the time of jitted functions is unknown, it may be that.
    return 0.0 if few or not busy or busy > (1 - _EXPLAINED) * waited else waited


def _traced_again(snapshot: Snapshot, period: Period) -> float:
    """
    Return the time of tracing that leads to no compile: outside of jit, `jax.grad` and
    its like trace the operations of a function on each call.
    """
    since_start = snapshot.time.since_start.seconds
    traced = period.of("compile")
    measured = snapshot.compile_time + snapshot.load_time
    known = measured * period.seconds / max(since_start, 1e-9)
    known += snapshot.compiling.oldest_seconds
    return traced - known if known < traced / 2 else 0.0


def _busy(snapshot: Snapshot, period: Period) -> float:
    """
    Return for how long the device computed in *period*, as far as known: mean execution
    time times calls of each function, in proportion.
    """
    since_start = snapshot.time.since_start.seconds
    if since_start <= 0:
        return 0.0
    busy = sum(one.device_seconds for one in snapshot.functions)
    return min(busy * period.seconds / since_start, period.seconds)
