"""What programs contain in vain: constants, branches, arrays on each device."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.functions import FunctionFact, WholeArrays
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration, share, size
from jaxmon.symptoms.symptom import HINT, LINES, TIME, Finding, Symptom


_MOST_NAMED = 3


def _captured(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect arrays in programs, where each compile copies and searches them."""
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    part = max(limits.time_worth * observed, seconds_in(limits.recompile_noticed))
    for function in snapshot.users:
        found, folded = function.program.captured, function.program.folded
        if found is None:
            continue
        took = function.compile_time / max(function.built, 1)
        # What XLA computes of them says more.
        computed = folded is not None and folded.steps >= limits.folded_steps * took
        won = min(found.bytes / limits.captured_bytes, took)
        won *= min(found.programs, function.built)
        if computed or won < part:
            continue
        where = f", first used at {found.where}" if found.where else ""
        yield Finding(
            "captured",
            function.name,
            f"Compiling {function.name} took {duration(function.compile_time)}, about "
            f"{duration(won)} of it because {size(found.bytes)} of arrays that the "
            "function takes from around it are constants of its program, "
            f"{found.largest} above all{where}: each compile copies and searches them.",
            (f"called from {', '.join(found.callers)}",) if found.callers else (),
            "Pass them as arguments of the jitted function: the program then has no "
            "copy of them, and is the same for other values.",
            where=found.where,
            seconds=won,
        )


def _selected(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect branches that take much of a program, and are all computed."""
    observed = snapshot.process.observed_seconds
    for function in snapshot.users:
        found, most = function.program.selected, function.device_seconds
        took = min(found.ratio * most, observed) if found else 0.0
        if not found or took < snapshot.limits.time_worth_estimated * observed:
            continue
        number = {2: "both"}.get(found.branches, f"all {found.branches}")
        yield Finding(
            "selected",
            function.name,
            f"Under jax.vmap, {function.name} computes {number} branches of "
            f"{found.where} for each of {counted(found.batch, 'element')}, and selects "
            f"between the results: {share(found.ratio, 1)} of its operations are in "
            f"branches other than the cheapest, up to about {duration(took)} of "
            f"{duration(most)} on the device.",
            (),
            "If the others are seldom needed, decide outside of jax.vmap: call "
            "jax.lax.cond once, with jnp.any of the conditions, and jax.vmap in its "
            "branches. If some element always needs them, nothing would be won.",
            where=found.where,
        )


def _whole(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect arrays that each device holds whole, once for each constraint."""
    limits = [device.limit for device in snapshot.memory.devices if device.limit]
    largest: dict[str, tuple[float, FunctionFact, WholeArrays]] = {}
    for function in snapshot.users:
        program = function.program
        if (found := program.whole) is None:
            continue
        needed = (program.argument_bytes, program.output_bytes, program.temporary_bytes)
        memory = min(limits, default=sum(filter(None, needed)))
        before = largest.get(found.where or function.name)
        least = before[0] if before else snapshot.limits.memory_worth * memory
        if found.bytes >= least:
            largest[found.where or function.name] = found.bytes, function, found
    for _, function, found in largest.values():
        why = (
            f"{found.like} is divided into {found.parts} parts, and combined with them "
            "element by element"
        )
        advice = (
            f"Divide them as {found.like} is, where they are made and in "
            "out_shardings: the step needs no communication for that."
        )
        if found.cause == "uneven":
            why = (
                f"the constraint at {found.where} asks for {found.parts} parts, which "
                "cannot be equal, and has no effect on a result"
            )
            advice = (
                "Pad the dimension to a multiple of the number of devices. A sharding "
                "in out_shardings of jax.jit, or in jax.device_put, raises an error "
                "instead."
            )
        names, rest = found.arrays[:_MOST_NAMED], found.arrays[_MOST_NAMED:]
        others = f" and {counted(len(rest), 'other')}" if rest else ""
        yield Finding(
            "whole",
            function.name,
            f"Each device holds {', '.join(names)}{others} of {function.name} whole, "
            f"although {why}: {size(found.bytes)} more than its part.",
            (),
            advice,
            where=found.where or snapshot.time.period.calls(function.name),
        )


SYMPTOMS = (
    Symptom(
        *("captured", "F1", "Programs contain large arrays as constants.", TIME),
        *(_captured, catalog.COMPILE_SECONDS, "Debug: Compile time by function"),
        missing=LINES,
        other_runbook="JaxmonColdStartBudgetBurn",
    ),
    Symptom(
        *("selected", "", "All branches are computed under vmap.", HINT),
        *(_selected, catalog.EXECUTION_SECONDS, "Debug: Execution time by function"),
        missing="only the program shows which of them is needed",
    ),
    Symptom(
        *("whole", "F2", "Each device holds arrays whole in vain.", HINT),
        *(_whole, catalog.DEVICE_MEMORY_BYTES, "Debug: Device memory by kind"),
        missing=LINES,
    ),
)
