"""What programs contain: loops of Python and loops without end, constants, branches."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.contents import WholeArrays
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.process import Snapshot
from jaxmon.facts.record import summed
from jaxmon.facts.walltime import SHORT_SECONDS
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import (
    counted,
    duration,
    named,
    share,
    share_of_time,
    size,
    times,
)
from jaxmon.symptoms.compiles import slow
from jaxmon.symptoms.stalls import is_long
from jaxmon.symptoms.symptom import HINT, LINES, Finding, ProcessJudge, Symptom


_ONCE = (
    "jax.lax.scan or jax.lax.fori_loop, which trace and compile the body once; with "
    "the same shapes in each pass, no other change is needed."
)
_ON_ALL = (
    "It runs on several devices: one that ends the loop earlier lets the others wait "
    "in a collective. Let all end it by the same value, as a jax.lax.pmax of theirs. "
)


def _unrolled(snapshot: Snapshot) -> Iterator[Finding]:
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    yield from _unrolling(snapshot)
    for function in snapshot.users:
        loop, took = function.program.unrolled, function.compile_time
        if loop is None or loop.times < limits.unrolled_times:
            continue
        # Of other programs it is not known that they have a loop.
        took *= min(loop.programs / max(function.built, 1), 1.0)
        won = took * loop.ratio * (1 - 1 / loop.times)
        part = max(limits.unrolled_time * observed, seconds_in(limits.unrolled_slow))
        if won < part or loop.ratio < limits.unrolled_ratio:
            continue
        yield Finding(
            "unrolled",
            function.name,
            f"Compiling {function.name} took {duration(took)}, "
            f"{share_of_time(took, observed)}: a Python loop at {loop.where}"
            f"{loop.inner and f', with one at {loop.inner},'} puts its body into "
            f"{f'each of {loop.programs}' if loop.programs > 1 else 'the'} "
            f"program{'s' * (loop.programs > 1)} {times(loop.times)}, "
            f"{share(loop.ratio, 1)} of its {loop.operations:,} operations.",
            (),
            f"Use {_ONCE}",
            where=loop.where,
            seconds=won,
        )


def _unrolling(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect one while the first compile lasts, by the lines that JAX was tracing."""
    now, period, limits = snapshot.time.now, snapshot.time.since_start, snapshot.limits
    built = {of.name for of in snapshot.functions if of.built}
    if now.state != "compile" or now.function in {"", *built}:
        return
    # XLA compiles it at the line of the call.
    compiled_at = {now.place} if snapshot.compiling.count else {}
    traced = summed(
        (place.caller, place.seconds)
        for place in period.places
        if (place.state, place.function) == (now.state, now.function)
        if place.place not in compiled_at
    )
    whole, took = sum(traced.values()), period.compiled().get(now.function, 0.0)
    where = max(filter(None, traced), key=traced.__getitem__, default="")
    part = max(limits.unrolled_time * snapshot.process.observed_seconds, SHORT_SECONDS)
    if where and took >= part and traced[where] >= limits.unrolled_ratio * whole:
        of_it, by_xla = f"for {duration(traced[where])} of it, ", ""
        if snapshot.compiling.function == now.function:
            age = snapshot.compiling.oldest_seconds
            of_it, by_xla = "", f"; XLA has had the program for {duration(age)}"
        yield Finding(
            "unrolled",
            now.function,
            f"Compiling {now.function} has taken {duration(took)} so far: {of_it}"
            f"JAX traced the Python loop around {where}, pass by pass{by_xla}.",
            (),
            "The program gets the body once for each pass. If there are many, use "
            f"{_ONCE}",
            where=where,
        )


def first_call(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect a call that lasts and loops until a condition is met; that may be right. It
    is the first one, or those before have been read quickly on that line.
    """
    now, limits = snapshot.time.now, snapshot.limits
    lasts = now.seconds >= seconds_in(limits.stalled_on_a_line)
    is_call = now.state in {"device", "fetch"} and not is_long(now, limits)
    for function in snapshot.users if lasts and is_call else ():
        loop, calls = function.flops.open_loop, function.calls or 0
        first = calls == 1
        if not loop or now.called != (function.name,):
            continue
        if not (first or _read_before(snapshot, calls - 1)):
            continue
        where = f" at {now.place}" if now.place else ""
        yield Finding(
            "first_call",
            function.name,
            f"{'The first call' if first else f'Call {calls:,}'} of {function.name} "
            f"has been running for {duration(now.seconds)}{where}"
            f"{'' if first else ', those before much shorter'}. It loops until a "
            f"condition is met, at {loop}: if that is never met, it does not end.",
            (),
            f"{_ON_ALL * ((function.program.devices or 1) > 1)}jax.debug.print in the "
            "body shows whether it makes progress. If it may not end, count the passes "
            "in what it carries, and bound them.",
            where=now.place,
        )


def _read_before(snapshot: Snapshot, calls: int) -> bool:
    """
    Return whether as many results as *calls* were read on the line where the program
    now waits, and that took far less.
    """
    now, longer = snapshot.time.now, snapshot.limits.stalled_times
    here = [of for of in snapshot.transfers.lines if of.place == now.place]
    count = max((of.count for of in here), default=0)
    spent = sum(of.seconds for of in here)
    return 0 < calls <= count and longer * spent <= now.seconds * count


def _captured(snapshot: Snapshot) -> Iterator[Finding]:
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


def _alike(snapshot: Snapshot) -> Iterator[Finding]:
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    part = max(limits.time_worth * observed, seconds_in(limits.recompile_noticed))
    for function in snapshot.users:
        again, different = sum(function.recompiles.values()), function.program.programs
        number = function.built - again  # each of another function
        needed = (different or 0) + again
        won = function.compile_time * (1 - needed / max(number, 1))
        is_known = function.program.read >= function.built >= limits.recompile_storm
        if not is_known or 2 * needed > number or won < part:
            continue
        yield Finding(
            "alike",
            function.name,
            f"Compiling {function.name} took {duration(function.compile_time)}: "
            f"{number} functions of that name were compiled one by one. Large "
            f"constants aside, they have {counted(different or 0, 'program')} in all.",
            (),
            "Jit one function, once, and pass what differs as an argument. For layers, "
            "stack their weights and use jax.lax.scan.",
            where=snapshot.time.calls(function.name),
            seconds=won,
        )


def _on_device(snapshot: Snapshot, function: FunctionFact, ratio: float) -> str:
    """Return what that *ratio* of its operations may take, empty if not worth it."""
    observed = snapshot.process.observed_seconds
    most, where = function.device_seconds, "on the device"
    if not most:  # no call was timed: its part of the waits, by what it computes
        called = [of for of in snapshot.users if of.calls]
        work = {of.name: (of.calls or 0) * (of.program.flops or 0) for of in called}
        part = work.get(function.name, 0) / max(sum(work.values()), 1)
        waited = snapshot.time.since_start.certain.of("device", "fetch")
        most, where = part * waited, "of calls and waits for results"
    most = min(most, observed)
    least = snapshot.limits.time_worth_estimated * observed
    took = f"up to about {duration(ratio * most)} of {duration(most)} {where}"
    return took if ratio * most >= least else ""


def _selected(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        found = function.program.selected
        if not found or not (took := _on_device(snapshot, function, found.ratio)):
            continue
        number = {2: "both"}.get(found.branches, f"all {found.branches}")
        yield Finding(
            "selected",
            function.name,
            f"Under jax.vmap, {function.name} computes {number} branches of "
            f"{found.where} for each of {counted(found.batch, 'element')}, and selects "
            f"between the results: {share(found.ratio, 1)} of its operations are in "
            f"branches other than the cheapest, {took}.",
            (),
            "If the others are seldom needed, decide outside of jax.vmap: call "
            "jax.lax.cond once, with jnp.any of the conditions, and jax.vmap in its "
            "branches. If some element always needs them, nothing would be won.",
            where=found.where,
        )


def _inefficient(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        found = function.program.inefficient
        if not found or not (took := _on_device(snapshot, function, found.ratio)):
            continue
        what = f"sorts {found.size:,} elements, and uses {found.used:,} of them"
        advice = (
            "jax.lax.top_k returns some without a sort of the rest. Of a shuffle, draw "
            "with jax.random.randint if they may repeat, or shuffle once for all."
        )
        if found.kind == "lookup":
            what = f"looks up rows by a product of one-hot vectors, {found.array}"
            advice = "`table[indices]`, or jnp.take, reads only these rows."
        if found.kind == "product":
            what = f"multiplies all pairs, {found.array}, and sums these products"
            advice = (
                "`x @ y.T`, or jnp.einsum, has the same sums as a product of matrices, "
                "which is faster; with precision=jax.lax.Precision.HIGHEST, as exact."
            )
        yield Finding(
            "inefficient",
            function.name,
            f"{function.name} {what}, at {found.where}: {share(found.ratio, 1)} of its "
            f"operations, {took}.",
            (),
            advice,
            where=found.where,
        )


def _padded(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        found = function.numerics.padded
        took = _on_device(snapshot, function, found.ratio)
        if found.ratio < snapshot.limits.padding_worth or not took:
            continue
        yield Finding(
            "padded",
            function.name,
            f"{share(found.ratio, 1)} of {found.argument}, {found.array}, of "
            f"{function.name} is padding, what its rows end with, as far as "
            f"{found.samples:,} samples show. The work on it may take {took}.",
            (),
            "Sort rows by length into a few buckets, and pad each of these to its own "
            "length, or pack several into one row.",
            where=snapshot.time.calls(function.name),
        )


def _redrawn(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        if (where := function.program.redrawn_at) and function.calls:
            yield Finding(
                "redrawn",
                function.name,
                f"A loop in {function.name} draws the same random numbers in each "
                f"pass, at {where}: its key comes from around the loop.",
                (),
                "Split it before, and scan over the keys, or use jax.random.fold_in "
                "with the number of the pass. One mask for all passes may be meant.",
                where=where,
            )


def _whole(snapshot: Snapshot) -> Iterator[Finding]:
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
        yield Finding(
            "whole",
            function.name,
            f"Each device holds {named(found.arrays)} of {function.name} whole, "
            f"although {why}: {size(found.bytes)} more than its part.",
            (),
            advice,
            where=found.where or snapshot.time.calls(function.name),
        )


def _resharded(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        program = function.program
        if (found := program.resharded) is None or (function.calls or 0) <= 1:
            continue
        given = sum(filter(None, (program.argument_bytes, program.output_bytes)))
        worth = snapshot.limits.exchange_worth * given
        if found.bytes < max(worth, snapshot.limits.exchange_bytes):
            continue
        parts, needed = ("x".join(map(str, of)) for of in (found.parts, found.needed))
        why = f"{found.operation} goes along a dimension that is divided"
        advice = f"Divide them into {needed} parts where they are made"
        if found.like:
            why = f"they are combined element by element with {found.like}"
            advice = (
                f"Divide them, {found.like}, and what is returned of them by one "
                "PartitionSpec"
            )
        yield Finding(
            "resharded",
            function.name,
            f"Each call of {function.name} reshards {named(found.arrays)} at "
            f"{found.where}, from {parts} parts into {needed}, since {why}: for that, "
            f"each device gets {size(found.bytes)} from others.",
            (),
            f"{advice}: in jax.device_put, or out_shardings. This function then "
            "exchanges less; if another one needs them as they are, that may have to.",
            where=found.where,
        )


def _duplicated(snapshot: Snapshot) -> Iterator[Finding]:
    observed = snapshot.process.observed_seconds
    for function in snapshot.users:
        program, took = function.program, min(function.device_seconds, observed)
        # An update without products of matrices may be as it is in data parallelism.
        if not (program.duplicated and program.devices and program.model_flops):
            continue
        where = snapshot.time.calls(function.name)
        won = took * (1 - 1 / program.devices)
        that, less = "That is about", f"about {duration(won)}"
        called = [of for of in snapshot.users if (of.calls or 0) > 1]
        if called == [function] and not snapshot.device_seconds:
            # Its time is unknown; less of it wins back no more than these.
            won = took = snapshot.time.since_start.of("device", "fetch")
            that, less = "Calls, and waits for results, took", "that much"
        worth = snapshot.limits.time_worth_estimated * observed
        if won < worth or (function.calls or 0) <= 1:
            continue
        yield Finding(
            "duplicated",
            function.name,
            f"Each of {program.devices} devices computes all of {function.name}"
            f"{where and f', called at {where}'}: its arguments and results are whole "
            f"on each, and none gets anything from another. {that} {duration(took)}, "
            f"{share_of_time(took, observed)}; divided, up to {less} less.",
            (),
            "If an argument is a batch, divide it in jax.device_put or in_shardings, "
            'for example by NamedSharding(mesh, PartitionSpec("data")) along an axis '
            '"data" of the mesh: each device then computes its part.',
            where=where,
        )


def _recomputed(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        found = function.numerics.repeated
        took = _on_device(snapshot, function, found.ratio)
        if found.kind != "work" or not took:
            continue
        yield Finding(
            "recomputed",
            function.name,
            f"Each call of {function.name} computes {found.operation} at {found.where} "
            f"again, from the same {named(found.arguments)} in {found.calls:,} calls, "
            f"as far as {found.samples:,} samples show: {share(found.ratio, 1)} of its "
            f"operations, {took}.",
            (),
            "Compute it once, before, and pass its result: of a matrix for "
            "jnp.linalg.solve, jax.scipy.linalg.lu_factor, and lu_solve in each call.",
            where=found.where,
        )


def _executed(name: str, sentence: str, judge: ProcessJudge) -> Symptom:
    return Symptom(
        *(name, "", sentence, HINT, judge),
        *(catalog.EXECUTION_SECONDS, "Debug: Execution time by function"),
        missing=LINES,
    )


SYMPTOMS = (
    Symptom(
        *("first_call", "F8", "A call may never return.", HINT, first_call),
        missing="whether it ends is not known",
    ),
    slow("unrolled", "A loop of Python makes a program large.", _unrolled),
    slow("alike", "Similar functions are compiled separately.", _alike),
    slow("captured", "Programs contain large arrays as constants.", _captured),
    Symptom(
        *("selected", "", "All branches are computed under vmap.", HINT),
        *(_selected, catalog.EXECUTION_SECONDS, "Debug: Execution time by function"),
        missing="only the program shows which of them is needed",
    ),
    _executed("inefficient", "An operation has a cheaper form.", _inefficient),
    _executed("recomputed", "Each call repeats the same computation.", _recomputed),
    _executed("padded", "Most of an argument is padding.", _padded),
    Symptom(
        *("redrawn", "F4", "Each pass draws the same numbers.", HINT, _redrawn),
        missing="only the program shows it",
    ),
    Symptom(
        *("whole", "F2", "Each device holds whole arrays needlessly.", HINT),
        *(_whole, catalog.DEVICE_MEMORY_BYTES, "Debug: Device memory by kind"),
        missing=LINES,
    ),
    _executed("resharded", "Each call moves arguments between devices.", _resharded),
    _executed("duplicated", "All devices compute the same.", _duplicated),
)
