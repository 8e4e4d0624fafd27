"""
What the wall time goes into: a state is worth a finding from a tenth of the time on.

Which of them is to blame depends on the device: while it is busy, the host may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from typing import NamedTuple, TypeAlias

from jaxmon import catalog
from jaxmon.facts.process import Snapshot
from jaxmon.facts.record import summed
from jaxmon.facts.walltime import IDLE_SECONDS, Period
from jaxmon.host.formats.layout import duration, share
from jaxmon.limits import Limits
from jaxmon.promql import counter, eq, ne, re
from jaxmon.symptoms import compiles, memory, programs, recorded
from jaxmon.symptoms.alert import PROCESS, Alert
from jaxmon.symptoms.estimates import (
    EXPLAINED,
    at_rest,
    costs,
    divided,
    eager_waits,
    has_work,
    idle,
    mostly_measured,
    reads,
    reads_rarely,
    severity_of,
    traced_again,
)
from jaxmon.symptoms.recompiles import every_recompile_time
from jaxmon.symptoms.stalls import is_lasting, is_long, quiet, stuck_after_fork
from jaxmon.symptoms.symptom import (
    LINES,
    NOTE,
    NOTHING,
    TIME,
    Finding,
    Symptom,
    Urgency,
    part,
)


_MOST_LINES = 3
# Seconds that a read takes at most if it has little to wait for.
_SLOW_READ = 0.005
# From so many seconds a call on, on a busy CPU, too, its execution can be measured.
_MEASURABLE = 0.03
_CACHE = (
    "A persistent cache (JAX_COMPILATION_CACHE_DIR) saves it in the next run; compiles "
    "below a second, only with JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0."
)
TIME_ALERT = "JaxmonTimeLost"
_OF_CALLS = (
    "This line calls {}. If it does little else, that is what the calls themselves "
    "take: do several steps in one, with jax.lax.scan or jax.lax.fori_loop. "
)
_OF_SAVES = (
    "Most of it is for saves of checkpoints. Save less often, and wait for a save only "
    "at the end: the next one waits by itself if it must."
)
_OF_LOOPS = (
    "While a coroutine waits without `await`, its event loop runs no other. Await an "
    "asynchronous client, or asyncio.to_thread for the call."
)
_SLEPT = "The program slept for"
_OF_SLEEP = (
    "If time.sleep waits for something there, wait for that itself, as with an event. "
    'If the program rests on purpose, mark that: with jaxmon.activity("rest").'
)


PeriodJudge: TypeAlias = Callable[[Snapshot, Period], Iterator[Finding]]


class TimePart(NamedTuple):
    """
    A state of the program that costs time by itself, whatever the device does.

    Attributes:
        topic: the name of the symptom.
        sentence: what is wrong.
        state: in the ledger of time.
        verdict: what took so long, before and after its part of the time.
        action: what to do about it.
        urgency: of the symptom: if it is a note, nothing can be won.
        limit: of the part of the time that makes an alert, by name.
    """

    topic: str
    sentence: str
    state: str
    verdict: tuple[str, str]
    action: str
    urgency: Urgency = TIME
    limit: str = ""

    def judge(self, snapshot: Snapshot, period: Period) -> Iterator[Finding]:
        """Detect that it takes much of the time."""
        # What a program marks is expected; so is work that it divides.
        waits = self.state == "blocked"
        slept = period.slept if waits else {}
        rests = {} if has_work(snapshot) else slept
        lines = {
            line: spent - rests.get(line, 0.0)
            for line, spent in period.lines(self.state, expected=not waits)
        }
        took, now = period.of(self.state), snapshot.time.now
        limits = snapshot.limits
        if waits:
            took -= period.expected(self.state) + sum(rests.values())
        elif self.state == "data_wait":
            took -= divided(snapshot, period)
        if now.state == self.state and (
            (waits and not now.activity and now.place not in rests)
            or (self.state == "data_wait" and (now.work or is_long(now, limits)))
            or is_lasting(snapshot)
        ):
            # What has not ended is for `stalled` to judge.
            lasts = min(now.seconds, IDLE_SECONDS) if now.work else now.seconds
            took -= min(lasts, took)
            if now.place in lines:
                lines[now.place] = max(lines[now.place] - lasts, 0.0)
        # While others hold the processors, a loader does not get on either.
        starved = took * (snapshot.usual.waiting or 0.0) * (self.state == "data_wait")
        if not period.is_worth(took - starved, self.state, limits.time_worth):
            return
        rest = 0.0 if rests else min(sum(slept.values()), took)
        mostly = 2 * rest > took
        won = 0.0 if self.urgency is NOTE else took - rest - starved
        verdict = (_SLEPT, "") if mostly else self.verdict
        found = costs(self.topic, snapshot, period, took, lines, won, *verdict)
        severity = severity_of(took, self.limit, period, snapshot)
        action = _OF_SLEEP if mostly else self.action
        if waits and 2 * period.event_loops(self.state) > took:
            action = _OF_LOOPS
        elif waits and 2 * snapshot.saves_blocked(period) > took:
            action = _OF_SAVES
        yield found._replace(action=action, severity=severity)


def _sleeps(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    """Say that the program sleeps, unless what it marks waits meanwhile."""
    lines, now = dict(period.slept), snapshot.time.now
    if now.state == "blocked" and now.place in lines:
        lines[now.place] = max(lines[now.place] - now.seconds, 0.0)
    took, worth = sum(lines.values()), snapshot.limits.time_worth
    if period.is_worth(took, "blocked", worth) and not has_work(snapshot):
        found = costs("sleeps", snapshot, period, took, lines, 0.0, _SLEPT)
        yield found._replace(action=_OF_SLEEP)


def eager(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    """Detect time spent in operations outside of jit."""
    parts = {
        "eager": period.of("eager"),
        "compile": traced_again(snapshot, period),
        "fetch": eager_waits(snapshot, period),
    }
    took = sum(parts.values())
    # What the device computes meanwhile of jitted functions.
    hidden = max(snapshot.busy_seconds(period) - period.of("device", "fetch"), 0.0)
    worth = period.is_worth(took - hidden, "eager", snapshot.limits.time_worth)
    if not worth or "jax_disable_jit" in snapshot.process.debugging:
        return
    lines = summed(
        (line, seconds * part_of_it / period.of(state))
        for state, part_of_it in parts.items()
        for line, seconds in (period.lines(state, calls=True) if part_of_it else ())
    )
    lead = "Operations outside of jit took"
    found = costs("eager", snapshot, period, took, lines, took, lead)
    inner = period.lines("eager", caller=found.where) if found.where else []
    within = [f"in {line}: {duration(spent)}" for line, spent in inner[:_MOST_LINES]]
    yield found._replace(
        evidence=(*within, *found.evidence),
        action="Call them within a function decorated with jax.jit: one program "
        "instead of one dispatch for each operation. Replace loops over elements by "
        "jax.vmap, jax.lax.scan or array operations.",
        severity=severity_of(period.of("eager"), "time_lost", period, snapshot),
    )


def _host(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    rests, busy = at_rest(period), snapshot.busy_seconds(period)
    lasts, now = quiet(snapshot), snapshot.time.now
    took = period.of("python") - sum(rests.values())
    took -= min(lasts, took)
    # What the device computes while the host does not wait for it.
    hidden = max(busy - period.of("device", "fetch"), 0.0)
    idle = took - min(hidden, took)
    limits = snapshot.limits
    worth = limits.time_worth if busy else limits.time_worth_in_doubt
    if not period.is_worth(idle, "python", worth):
        return
    if snapshot.requests and period.of("idle") > idle:
        return  # the device waits for requests
    # When it was idle, samples say, of which no line is certain.
    lines = {
        line: max(seconds - lasts * (line == now.place), 0.0) * idle / took
        for line, seconds in period.lines("python")
        if line not in rests
    }
    lead = f"Python {'kept the device waiting for about' if busy else 'took'}"
    found = costs("host", snapshot, period, idle, lines, idle, lead)
    calls = {of.function for of in period.places if of.place == found.where} - {""}
    action = _OF_CALLS.format(" and ".join(sorted(calls))) if calls else ""
    rarely = "out of the loop"
    if snapshot.requests:
        rarely = "once for all requests, when the service starts"
    yield found._replace(
        action=f"{action}Do {'other' if calls else 'this'} work less often, {rarely}, "
        "in a jitted function if it works on whole arrays, or in another process. "
        "Between a call and the first read of its result, while an accelerator "
        "computes, it costs nothing."
    )


def once(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    """Say what the program did once, as to prepare its data: a loop has no part."""
    lines = summed((of.place, of.seconds) for of in period.once)
    took = sum(lines.values())
    if period.is_worth(took, "python", snapshot.limits.time_worth):
        lead = "What the program did once, outside of JAX, took"
        yield costs("once", snapshot, period, took, lines, 0.0, lead)


def fetches(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    """
    Detect reads of results that cost time: because the device is not busy meanwhile, or
    because the host cannot work ahead.
    """
    busy = snapshot.busy_seconds(period)
    checks, now = period.checks, snapshot.time.now
    waited = period.of("fetch") - eager_waits(snapshot, period) - sum(checks.values())
    if now.state == "fetch" and is_lasting(snapshot):
        waited -= min(now.seconds, waited)  # it is not known what it waits for
    if waited < snapshot.limits.time_worth * period.seconds:
        return
    # If its time is unknown, the device is taken to be busy.
    busy *= mostly_measured(snapshot)
    computing = min(max(busy - period.of("device"), 0.0), waited)
    # A host that is its own device computes while it waits, if a read takes long.
    devices, count = snapshot.memory.devices, reads(snapshot)
    shared = all(on.kind == "cpu" for on in devices)
    slow = devices and shared and count and waited > _SLOW_READ * count
    if not busy or slow or computing >= EXPLAINED * waited:
        computing = waited
    hidden = max(busy - period.of("device", "fetch"), 0.0)
    work = max(period.of("python", "eager", "transfer") - hidden, 0.0)
    # Who is asked waits for the answer; who reads rarely works ahead between reads. A
    # host that is its own device has no more processors for that.
    waits = snapshot.requests or reads_rarely(snapshot) or shared
    ahead = 0.0 if waits else min(work, computing)
    # While others hold the processors, neither device nor host gets on.
    starved = waited * (snapshot.usual.waiting or 0.0)
    won = max(waited - computing - starved, 0.0) + ahead
    if won < snapshot.limits.time_worth_estimated * period.seconds:
        return
    computed = f", of which the device was computing for about {duration(computing)}"
    if not busy:
        computed = ""
    elif snapshot.spans:
        computed += ", or waiting for other processes"
    texts, lines = ("Reading results took", computed), dict(period.lines("fetch"))
    lines = {line: spent - checks.get(line, 0.0) for line, spent in lines.items()}
    yield costs("fetch", snapshot, period, waited, lines, won, *texts)._replace(
        action="Each read waits for all preceding device work, and the host cannot "
        "work ahead. Read a value one step later, every hundredth step, or several at "
        "once with jax.device_get. A loop that ends on a value then does as many steps "
        "more."
    )


def device(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    """Say that calls of jitted functions take the time, if the device is busy."""
    took = period.of("device", "fetch") - eager_waits(snapshot, period)
    took, now = took - sum(period.checks.values()), snapshot.time.now
    lasts = is_long(now, snapshot.limits) or is_lasting(snapshot)
    lasts = lasts or any(programs.first_call(snapshot))
    if now.state in {"device", "fetch"} and lasts:
        took -= min(now.seconds, took)  # another finding is about that
    if took < snapshot.limits.time_worth * period.seconds:
        return
    busy = snapshot.busy_seconds(period)
    if (busy and busy < EXPLAINED * took) or any(memory.arguments(snapshot)):
        return
    part_of = period.seconds / max(snapshot.time.since_start.seconds, period.seconds)
    calls = part_of * sum(function.calls or 0 for function in snapshot.functions)
    slow = took >= _MEASURABLE * calls > 0
    unknown = not busy and slow and took > period.seconds - took
    most = sorted(snapshot.functions, key=lambda function: -function.device_seconds)
    computed = [of for of in most if of.device_seconds > 0]
    # Times are those of samples, times all calls: no sum of them is known.
    whole = sum(function.device_seconds for function in computed)
    keeps = computed and took >= EXPLAINED * period.seconds and not snapshot.spans
    yield Finding(
        "unmeasured" if unknown else "device",
        computed[0].name if computed else "",
        "Calls of jitted functions, and waits for their results, took "
        f"{part(took, period)}{f', mostly {computed[0].name}' if computed else ''}."
        + (" How much of that the device computed is not known." if unknown else ""),
        tuple(
            f"{function.name}: about {share(function.device_seconds, whole)} of it, in "
            f"{function.calls or 0:,} calls"
            for function in computed[:_MOST_LINES]
            if len(computed) > 1
        ),
        ("The host keeps the device busy. " if keeps else "")
        + "While it runs, `jaxmon profile` shows which operations take the time.",
    )


def _compiling(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    functions, since_start = list(snapshot.functions), snapshot.time.since_start
    took = period.of("compile") - traced_again(snapshot, period)
    took -= min(snapshot.load_time, took)
    if has_operations := any(compiles.operations(snapshot)):
        functions = snapshot.users
    spent = compiles.spent_by_name(functions, snapshot)
    first = {n: s for n, s in since_start.compiled().items() if n not in spent}
    lasts = first.keys() & {snapshot.time.now.function}
    spent = dict(sorted({**spent, **first}.items(), key=lambda item: -item[1]))
    # Threads that compile at once take more together than the clock.
    whole = sum(spent.values())
    if has_operations:
        took = min(took, max(whole, snapshot.compiling.oldest_seconds))
    is_all, differs = period is since_start, abs(took - snapshot.compile_time)
    if is_all and not (has_operations or period.is_worth(differs, "compile", 0.0)):
        took = snapshot.compile_time  # measured, as the table of compiles has it
    # New shapes of what JAX runs by itself, as to initialise arrays, are no recompiles
    # of the program's.
    again = min(every_recompile_time(snapshot.users, snapshot), took)
    least = snapshot.limits.time_worth * period.seconds
    if took < least or again > took / 2 or stuck_after_fork(snapshot):
        return
    ratio = min(took / max(whole, 1e-9), 1.0)
    rest = f", of which recompiles about {duration(again * (is_all or ratio))}"
    if not again:
        recompiled = any(of.recompiles for of in functions)
        rest = "" if recompiled else ", all of it first compiles"
    yield Finding(
        "compiling",
        next(iter(spent), ""),
        f"Compiling {'functions ' * has_operations}took {part(took, period)}{rest}.",
        tuple(
            f"{name}: {duration(spent[name] * ratio)}"
            f"{', and not done yet' * (name in lasts)}"
            for name in islice(spent, _MOST_LINES)
            if is_all
        ),
        "" if snapshot.cache.enabled and snapshot.cache.directory else _CACHE,
    )


def _time_lost(limits: Limits) -> Alert:
    window, states = limits.time_lost_window, "data_wait|eager|gc|gil|blocked"
    lost = counter(catalog.WALL_SECONDS, re("state", states)).rate(window)
    # Of processes in a loop: a server waits for requests, not for data.
    lost = lost.sum(*PROCESS, "state").and_(recorded.loops(), *PROCESS)
    # All ranks wait for the slowest.
    lost = lost.max("job", "state").record(
        *("job", catalog.WALL_SECONDS, f"lost{window}"),
        f"Fraction of {window} that a process in a loop spent in a state, at most.",
    )
    data = lost.where(eq("state", "data_wait")) > limits.data_wait
    rest = lost.where(ne("state", "data_wait")) > limits.time_lost
    return Alert(
        expr=data.or_(rest),
        description=(
            "Training spends much of its time on its input or on something else than "
            "steps; the accelerators idle meanwhile."
        ),
        summary=(
            "A process of job {{ $labels.job }} spent "
            f"{{{{ $value | humanizePercentage }}}} of the last {window} on "
            "{{ $labels.state }}."
        ),
    )


PARTS = (
    TimePart(
        "data_wait",
        "The program waits for data.",
        "data_wait",
        ("The program waited for data for", ""),
        "Prepare the next batches while the device computes: a prefetching loader in "
        "other processes, or in threads if it mostly waits or runs in C, and more "
        "workers if there is one; fewer and larger files; decoding ahead of time.",
        limit="data_wait",
    ),
    TimePart(
        "copies",
        "Copies to the device take time.",
        "transfer",
        ("Copying to the device took", ""),
        "Copy data that does not change once, and the rest ahead of time: call "
        "jax.device_put on the next batch before the step of this one. Make NumPy "
        "arrays of lists and numbers first: JAX converts each element by itself.",
    ),
    TimePart(
        "blocked",
        "The program waits for a lock or a thread.",
        "blocked",
        ("The program was blocked outside of JAX for", ""),
        "Look at what these lines wait for: a lock, a file, a socket, a timer. Let "
        "another thread wait for it, or do it less often.",
        limit="time_lost",
    ),
    TimePart(
        "garbage",
        "Collecting garbage takes time.",
        "gc",
        ("Python collected garbage for", ""),
        "Keep fewer Python objects; call gc.freeze() once the program has started, so "
        "that what stays is not looked at again, or raise gc.set_threshold(). If the "
        "loop calls gc.collect, remove that.",
        limit="time_lost",
    ),
    TimePart(
        "interpreter",
        "Another thread holds the interpreter.",
        "gil",
        (
            "The loop waited for the Python interpreter for",
            ", which another thread had",
        ),
        "Only one thread runs Python at a time. Do this work in another process, such "
        "as a worker of the loader. Or use functions that work on whole arrays in C, "
        "as those of NumPy do.",
        limit="time_lost",
    ),
    TimePart(
        "startup",
        "Imports and starting devices take the time.",
        "startup",
        ("Importing modules and initialising devices took", ""),
        "A longer run does not take more of it. `python -X importtime` shows which "
        "modules take long; if it is their files, install them on a local disk.",
        NOTE,
    ),
)


def _symptom(
    name: str, sentence: str, urgency: Urgency, judge: PeriodJudge, limit: str = ""
) -> Symptom:
    @wraps(judge)
    def finding(snapshot: Snapshot) -> Iterator[Finding]:
        period = snapshot.time.period
        if urgency is TIME:
            period = period.again
        if period.settled:
            return judge(snapshot, period)
        # Of few looks, only what is certain, and would matter in a longer run, too.
        worth = snapshot.limits.time_lost * period.seconds
        found = judge(snapshot, period.certain) if period.seconds else iter(())
        return (finding for finding in found if finding.seconds > worth)

    metric, panel = {
        "compiling": (catalog.COMPILE_SECONDS, "Compile time by function"),
        "device": (catalog.EXECUTION_SECONDS, "Execution time by function"),
    }.get(name, (catalog.WALL_SECONDS, "Where the time goes"))
    return Symptom(
        *(name, "F1" if name == "compiling" else "", sentence, urgency, finding),
        rule=(TIME_ALERT, _time_lost) if limit else ("", None),
        metric=metric,
        panel=f"Debug: {panel}",
        missing="" if limit else NOTHING if urgency is NOTE else LINES,
        other_runbook="" if urgency is NOTE else TIME_ALERT,
    )


_DEVICE = _symptom("device", "The device computes.", NOTE, device)
SYMPTOMS = (
    _symptom(
        *("eager", "Operations outside of jit take time.", TIME, eager, "time_lost")
    ),
    _symptom("host", "Python keeps the device waiting.", TIME, _host),
    _symptom(
        *("fetch", "Reads of results keep the host from working ahead.", TIME, fetches)
    ),
    _DEVICE,
    _DEVICE._replace(name="unmeasured", sentence="How much is computed is unknown."),
    _symptom("compiling", "First compiles take the time.", NOTE, _compiling),
    *(_symptom(of.topic, of.sentence, of.urgency, of.judge, of.limit) for of in PARTS),
    _symptom("once", "The program does something once.", NOTE, once),
    _symptom("sleeps", "The program sleeps.", NOTE, _sleeps),
    _symptom("idle", "There is nothing to do.", NOTE, idle),
)
