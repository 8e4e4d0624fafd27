"""
Errors and warnings of JAX, and what happens only while it traces a function; settings
that look for errors, and updates that are skipped instead of an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from jaxmon import catalog
from jaxmon.facts.events import EventFact, TraceMistake
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import duration, share_of_time, times
from jaxmon.symptoms.alert import TICKET
from jaxmon.symptoms.symptom import (
    FAILURE,
    HINT,
    LINES,
    MOST_OF_A_MESSAGE,
    TIME,
    TOO_LITTLE,
    Finding,
    Mode,
    Symptom,
    ended,
    quoted,
)


ERRORS = {
    "invalid_argument": "If it is of a deleted or donated array, an earlier call may "
    "have taken that: use what the call returned, or keep a copy.",
    "nan": "Put a few steps into `with jax.debug_nans(True), jax.disable_jit():`. They "
    "are slow, but the traceback has the first operation that makes a NaN, even one "
    "that jnp.where masks later.",
    "key_reuse": "Use each PRNG key once: jax.random.split it first.",
    "trace_error": (
        "It failed during tracing: the message names the incompatible argument or "
        "operation."
    ),
    "unavailable": "A device or another process is gone: check that host first.",
    "deadline": "Another process did not respond in time: look for one that is hung.",
}
_VALUE_NEEDED = (
    "Python needed a value that is not known while tracing: use jnp.where or "
    "jax.lax.cond, or make the argument static."
)
ERROR_TYPES = {
    "ConcretizationTypeError": _VALUE_NEEDED,
    "NonConcreteBooleanIndexError": (
        "The result's size depends on values: use jnp.where(mask, x, other) instead "
        "of x[mask]."
    ),
    "TracerArrayConversionError": "NumPy got a traced value: use jax.numpy there, or "
    "make the argument static.",
    "TracerBoolConversionError": _VALUE_NEEDED,
    "TracerIntegerConversionError": _VALUE_NEEDED,
    "UnexpectedTracerError": "A traced value outlived its function: return it instead "
    "of keeping it in a global, an attribute or a list.",
}
"""Advice by exception type, where it is more specific than the kind of error."""
_NO_DTYPE = "dtype_unavailable"
WARNINGS = {
    "donation": (
        "No output has the same shape and dtype, so both are held in memory: donate "
        "only what is returned in the same form, or return it so."
    ),
    _NO_DTYPE: (
        "The value has 32 bits all the same. If these suffice, ask for float32 or "
        "int32; if they do not, set jax_enable_x64, or subtract an origin in NumPy."
    ),
    "backend": "Install the JAX for that accelerator, or set JAX_PLATFORMS=cpu.",
}
"""Advice on the warnings of JAX that are findings, by kind."""
_WARNINGS: tuple[tuple[str, Mode, str], ...] = (
    ("donation", "F2", "Donated buffers were not used."),
    ("dtype_unavailable", "F7", "A type was narrowed."),
    ("backend", "F7", "JAX found no accelerator."),
)
# In JAX's own words: jax/_src/array.py, `_check_if_deleted`.
_DELETED = "Array has been deleted"


def _errors(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.functions:
        kinds = {kind: n for kind, n in function.errors.items() if n and kind != "oom"}
        if not kinds:
            continue
        most = max(kinds, key=lambda kind: kinds[kind])
        listed = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
        listed = most if len(kinds) == 1 else listed
        name = function.name if function.name != "unknown" else "A jitted function"
        latest = _latest(snapshot.of_kind("error"), function.name, most)
        exception = latest.details.get("type") if latest else None
        often = times(sum(kinds.values()))
        verdict = f"{name} failed {often}: {listed}."
        if function.name == "unknown" and latest and _DELETED in latest.message:
            verdict = f"Arrays that had been deleted or donated were read {often}."
        yield Finding(
            "error",
            function.name,
            verdict,
            (quoted(latest, snapshot.process.now),) if latest else (),
            ERROR_TYPES.get(str(exception)) or ERRORS.get(most, ""),
            where=str(latest.details.get("where") or "") if latest else "",
        )


def _latest(events: list[EventFact], function: str, kind: str) -> EventFact | None:
    fitting = (
        event
        for event in reversed(events)
        if event.function == function and event.details.get("error_kind", kind) == kind
    )
    return next(fitting, None)


def _warned(snapshot: Snapshot) -> Iterator[Finding]:
    worse = {finding.where for finding in _narrowed(snapshot)} - {""}
    for warning in snapshot.warnings:
        covered = warning.kind == _NO_DTYPE and warning.where in worse
        if warning.kind in WARNINGS and not covered:
            by = f" in {warning.function}" if warning.function else ""
            often = f", {times(warning.count)}" if warning.count > 1 else ""
            yield Finding(
                f"warning_{warning.kind}",
                warning.function,
                f"JAX warned{by}{often}: {ended(warning.text[:MOST_OF_A_MESSAGE])}",
                (f"at {warning.where}",) if warning.where else (),
                WARNINGS[warning.kind],
                where=warning.where,
            )


_CLOCKS = ("time.", "datetime.", "date.")
_MOST_EVIDENCE = 3
_CONSTANT = "is traced. Its value is a constant of the program"
_MEASURE = "Measure outside of the jitted function, or pass the value as an argument."


class Misuse(NamedTuple):
    """
    A kind of mistake.

    Attributes:
        kind: as the agent calls it.
        topic: the name of the symptom.
        text: what it does, with ``text``, ``place`` and ``function``.
        again: what later calls do, with their number; if there are none, nothing is
            lost. Empty if that does not matter.
        action: what to do about it.
    """

    kind: str
    topic: str
    text: str
    again: str
    action: str

    def judge(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Detect it, once in each function."""
        for mistake, others in _grouped(snapshot, self.kind):
            function = _subject(mistake)
            calls = _repeated(snapshot, mistake) if self.again else None
            if calls == 0:
                continue
            text = self.text.format(
                text=mistake.text, place=mistake.place, function=function
            )
            if calls:
                text += self.again.format(times=times(calls), calls=f"{calls:,}")
            clock = self.kind == "frozen" and mistake.text.startswith(_CLOCKS)
            action = _MEASURE if clock else self.action
            yield Finding(
                *(self.topic, function, f"{text}."),
                tuple(
                    f"also {of.text} at {of.place}" for of in others[:_MOST_EVIDENCE]
                ),
                action,
                where=mistake.place,
            )


_MISUSES = (
    Misuse(
        *("frozen", "frozen_value"),
        f"{{text}} at {{place}} runs only while {{function}} {_CONSTANT}",
        ": it was reused {times}",
        "Use jax.random with a key that is an argument, or pass the value as an "
        "argument.",
    ),
    Misuse(
        *("advanced", "frozen_value"),
        f"{{text}} changes at {{place}} only while {{function}} {_CONSTANT}",
        ": it was reused {times}",
        "Keep it in the state that the function takes and returns, or change it "
        "outside, and pass it as an argument.",
    ),
    Misuse(
        *("dropped", "dropped_update"),
        "The result of {text} at {place} is not used, so nothing is updated: it "
        "returns a new value",
        "",
        "Assign the result, as in x = x.at[i].set(y), or params = "
        "optax.apply_updates(params, updates).",
    ),
    Misuse(
        *("leaked", "leaked_tracer"),
        "{place} stores a traced value ({text}), and only while {function} is traced. "
        "It has no value there",
        "",
        "Return it from the jitted function, and store the result.",
    ),
    Misuse(
        *("printed", "printed_tracer"),
        "{text} at {place} runs only while {function} is traced, and shows a tracer, "
        "not its value",
        ". It did not run on {calls} later calls",
        "Use jax.debug.print, or print what the function returns.",
    ),
)


def _misuses(snapshot: Snapshot) -> Iterator[Finding]:
    for misuse in _MISUSES:
        yield from misuse.judge(snapshot)


def _grouped(
    snapshot: Snapshot, kind: str
) -> Iterator[tuple[TraceMistake, list[TraceMistake]]]:
    """Return the first mistake of *kind* in each function, and the others there."""
    found = sorted(
        [mistake for mistake in snapshot.tracing.mistakes if mistake.kind == kind],
        key=_subject,
    )
    for _, same in groupby(found, key=_subject):
        first, *others = same
        yield first, others


def _subject(mistake: TraceMistake) -> str:
    return mistake.functions[0] if mistake.functions else mistake.within


def _repeated(snapshot: Snapshot, mistake: TraceMistake) -> int | None:
    """
    Return how many calls of its functions reused a program, `None` if not counted. A
    function that is called once, to initialise something, loses nothing.
    """
    hits = [of.hits for of in snapshot.functions if of.name in mistake.functions]
    counts = [count for count in hits if count is not None]
    return sum(counts) if counts else None


FROZEN = (
    "If a guard skips updates whose gradient is NaN, count and log what it skips; "
    "else see whether the learning rate has become 0."
)
FROZEN_NONFINITE = (
    "Gradients are not finite, and a guard skips such updates. Log this count. "
    f"{ERRORS['nan']} Often a square root, logarithm or division meets 0, also in the "
    "branch that jnp.where does not take."
)


def _frozen(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.functions:
        frozen = function.numerics.frozen
        if not frozen.samples:
            continue
        named = ", ".join(frozen.outputs[:_MOST_EVIDENCE])
        counts = [f"{name} is {n:,}" for name, n in frozen.counts.items() if n]
        yield Finding(
            "frozen_state",
            function.name,
            f"The state that {function.name} returns has not changed since call "
            f"{frozen.call:,} at the latest, for {frozen.calls:,} calls, although "
            "other outputs do: its updates are skipped, or zero.",
            (
                f"unchanged in {frozen.samples} sampled calls: output {named}",
                *counts[:_MOST_EVIDENCE],
            ),
            FROZEN_NONFINITE if counts else FROZEN,
            where=frozen.where or snapshot.time.calls(function.name),
        )


_FAULTS = {
    "overflowed": "A count that {name} returns wraps around: output {of.name}, "
    "{of.dtype}, was {of.finite_value:,.0f} in call {of.finite_call:,}, and is "
    "negative in call {of.call:,}.",
    "rounded": "Updates of {of.dtype} seem to be lost in rounding: of output {of.name} "
    "of {name}, elements from {of.least:.2g} on ({of.fraction:.0%}) have hardly "
    "changed since call {of.call:,}, although the smaller ones have.",
    "differs": "{name} returns a replicated array whose values differ between devices; "
    "a program reads those of one device only: {named}, in {of.samples:,} sampled "
    "calls.",
}
FAULTS = {
    "overflowed": "Count in Python, or in larger units; jax_enable_x64 allows int64. "
    "Check what is computed from it.",
    "rounded": "Keep them in float32, also in the optimizer, and convert them for the "
    "forward and backward pass only; or round stochastically.",
    "differs": "Combine them before they are returned: jax.lax.pmean(gradients, axis) "
    "before the update, or psum; jax.shard_map with check_vma=True rejects what is "
    "not. What should differ needs the axis in out_specs.",
}
"""Advice on outputs, by their state."""


def _faults(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.functions:
        name, called = function.name, snapshot.time.calls(function.name)
        for state, text in _FAULTS.items():
            found = [of for of in function.numerics.outputs if of.state == state]
            # What is certain of the program says more.
            if not found or (state == "differs" and function.program.unreduced):
                continue
            named = [of.name or "its output" for of in found[:_MOST_EVIDENCE]]
            also = [
                f"also output {name}" for name in named[1:] if "{named}" not in text
            ]
            yield Finding(
                "copies_differ" if state == "differs" else state,
                name,
                text.format(name=name, of=found[0], named=", ".join(named)),
                (*also, *((f"called at {called}",) if called else ())),
                FAULTS[state],
                where=found[0].where or called,
            )


_CHECKED = "each call waits for its outputs, and has them searched for {} on the host"
_CHECKING = ("jax_debug_nans", "jax_debug_infs")
_DEBUGGING = {
    "jax_debug_nans": _CHECKED.format("NaN"),
    "jax_debug_infs": _CHECKED.format("infinities"),
    "jax_disable_jit": "no jitted function is compiled, and operations run singly",
    "jax_debug_key_reuse": "JAX checks in Python which keys each call gets",
    "jax_enable_checks": "JAX checks its own types and data in each call",
}


def _debugging(snapshot: Snapshot) -> Iterator[Finding]:
    calls = sum(function.calls or 0 for function in snapshot.users)
    period, checked = snapshot.time.period, snapshot.time.period.checks
    for setting, where in snapshot.process.debugging.items():
        off = setting == "jax_disable_jit"  # then there are no calls
        checks: dict[str, float] = {}
        if setting in _CHECKING:
            checks, checked = checked, {}  # one loop has both settings
        took = period.of("eager") if off else sum(checks.values())
        often = calls >= snapshot.limits.debugged_calls
        costs = took > 0 and period.is_worth(took, "fetch", snapshot.limits.time_worth)
        if setting in _DEBUGGING and (off or often or costs):
            count = "" if off else f" There were {calls:,} calls."
            most = dict(period.lines("eager")) if off else checks
            lines = sorted(most, key=most.__getitem__, reverse=True)[:_MOST_EVIDENCE]
            what = "operations" if off else "the checks"
            spent = f"{what} took {duration(took)} of {duration(period.seconds)}"
            yield Finding(
                "debugging",
                setting,
                f"{setting} is on: {_DEBUGGING[setting]}.{count}",
                (spent, *lines) if took else (),
                f"Turn it off, and set {setting.upper()}=1 for a run that is to find "
                "an error. It is slow.",
                where=where,
                seconds=took,
            )


def _profiles(snapshot: Snapshot) -> Iterator[Finding]:
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    lines = snapshot.transfers.profiles
    count, took = sum(of.count for of in lines), sum(of.seconds for of in lines)
    took = min(took, observed)
    if count < limits.profiles_often or took < limits.time_worth * observed:
        return
    most = max(lines, key=lambda line: line.seconds)
    yield Finding(
        "profiles",
        most.place,
        f"jax.profiler was started or stopped {times(count)} at {most.place}, which "
        f"took {duration(took)}, {share_of_time(took, observed)}.",
        (),
        "Profile a few steps or requests when there is a question, not each. To "
        "measure latency, read a clock before a call and once its result is ready.",
        where=most.place,
        seconds=took,
    )


def _narrowed(snapshot: Snapshot) -> Iterator[Finding]:
    warned = {of.where for of in snapshot.warnings if of.kind == _NO_DTYPE}
    for loss in snapshot.transfers.narrowed:
        # A program may ask for 32 bits; JAX warns of one that asks for 64.
        wanted = loss.asked and loss.place not in warned
        if wanted or loss.share < snapshot.limits.narrowed_share:
            continue
        where = loss.place or snapshot.time.calls(loss.function)
        what = f"An argument of {loss.function}" if loss.function else "An array"
        at = f" at {where}" if where else ""
        narrow = loss.dtype.replace("64", "32")
        if loss.dtype.startswith("float"):
            lost = (
                f"{loss.share:.0%} of the neighbouring values that differ are equal "
                f"then; numbers of {narrow} are {loss.spacing:g} apart there"
            )
        else:
            lost = f"{loss.share:.0%} of the values do not fit"
        yield Finding(
            "narrowed",
            loss.place or loss.function,
            f"{what} of {loss.dtype} becomes {narrow}{at}: {lost}.",
            (),
            "Take differences, subtract an origin or look values up in NumPy, before "
            "JAX gets them; or set jax_enable_x64.",
            where=where,
        )


SYMPTOMS = (
    Symptom(
        *("error", "F4", "A jitted function raises.", FAILURE),
        *(_errors, catalog.ERRORS, "Debug: JAX errors by function and kind"),
        severity=TICKET,
        missing=(
            "the program may expect it; requests that fail for it have an objective"
        ),
    ),
    *(
        Symptom(
            *(topic, "F4", sentence, FAILURE, judge),
            severity=TICKET,
            missing="only samples of one process show it",
        )
        for topic, sentence, judge in (
            ("frozen_state", "A state no longer changes.", _frozen),
            ("overflowed", "A count wraps around to a negative number.", _faults),
            ("rounded", "Updates of a state are lost in rounding.", _faults),
            ("copies_differ", "Copies of an array differ.", _faults),
        )
    ),
    Symptom(
        *("debugging", "F7", "A setting for debugging is on.", TIME, _debugging),
        missing="only the process knows its settings",
    ),
    Symptom(
        *("profiles", "", "Profiles are made again and again.", TIME, _profiles),
        missing=LINES,
        other_runbook="JaxmonTimeLost",
    ),
    Symptom(
        *("narrowed", "F4", "Values change in 32 bits.", FAILURE, _narrowed),
        missing="only the process knows its arrays",
    ),
    *(
        Symptom(
            *(f"warning_{kind}", mode, sentence, HINT),
            *(_warned, catalog.JAX_WARNINGS, "Debug: Warnings of JAX"),
            missing=TOO_LITTLE,
        )
        for kind, mode, sentence in _WARNINGS
    ),
    *(
        Symptom(
            *(name, "F4", sentence, urgency, _misuses),
            severity=TICKET if urgency is FAILURE else None,
            missing="only the source of the program shows it",
        )
        for name, sentence, urgency in (
            ("frozen_value", "A value of the host became a constant.", FAILURE),
            ("dropped_update", "An update of an array is dropped.", FAILURE),
            ("leaked_tracer", "A traced value outlives its trace.", FAILURE),
            ("printed_tracer", "A traced value is printed.", HINT),
        )
    ),
)
