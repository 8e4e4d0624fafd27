"""What training steps return and get: updates of zero, dropped, or apart on devices."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import named
from jaxmon.symptoms.alert import PAGE, TICKET
from jaxmon.symptoms.symptom import FAILURE, HINT, Finding, Symptom


def _zeroed(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        if (found := function.program.zeroed) is None or (function.calls or 0) <= 1:
            continue
        where = f" at {found.where}" if found.where else ""
        yield Finding(
            "zeroed",
            function.name,
            f"{function.name} multiplies by 0{where} what it adds to "
            f"{named(found.outputs)}: they stay as they are, or become NaN.",
            (),
            "With a learning rate of 0, nothing is learned: look at where it is set.",
            where=found.where,
        )


def _unused(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        if (found := function.program.unused) is None or (function.calls or 0) <= 1:
            continue
        where = snapshot.time.calls(function.name) or found.where
        yield Finding(
            "unused",
            function.name,
            f"{function.name} computes a gradient, and by it updates of "
            f"{named(found.outputs)}, but neither returns nor uses them: these stay as "
            "they are.",
            (f"computed at {found.where}",) if found.where else (),
            "Return the new state, and pass it to the next call. nnx.jit, in place of "
            "jax.jit, updates the modules of Flax that a function gets.",
            where=where,
        )


def _repeated(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        found, name = function.numerics.repeated, function.name
        # Another function may use an update, and the next begin from the same again.
        others = (of.calls or 0 for of in snapshot.users if of is not function)
        is_used = not found.counts and 2 * max(others, default=0) > found.calls
        if found.kind not in ("state", "batch") or (found.kind == "state" and is_used):
            continue
        text = f"The update that {name} returns is dropped: it got the same, unchanged"
        action = (
            "Pass what a call returns to the next one, in place of what it was given: "
            "state, loss = step(state, batch)."
        )
        if found.kind == "batch":
            text = (
                f"{name} gets the same data again: new arrays with the same values for"
            )
            action = (
                "Make the iterator once, before the loop: next(iter(loader)) begins "
                "again each time. If the data is meant to be the same, make the arrays "
                "once, with jax.device_put."
            )
        yield Finding(
            f"repeated_{found.kind}",
            name,
            f"{text} {named(found.arguments)} in {found.calls:,} calls, as far as "
            f"{found.samples:,} samples show.",
            (),
            action,
            where=snapshot.time.calls(name) or found.where,
        )


def _unreduced(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.users:
        if (found := function.program.unreduced) is None or not function.calls:
            continue
        called = snapshot.time.calls(function.name)
        yield Finding(
            "unreduced",
            function.name,
            f"{function.name} returns copies that differ between {found.devices} "
            f"devices{called and f', called at {called}'}: {named(found.outputs)} are "
            f"computed from {named(found.arguments)}, of which each device has its "
            f"part along {found.axis!r}, and nothing combines them, though out_specs "
            "without that axis says that they are equal. One device's are read.",
            (f"computed at {found.where}",) if found.where else (),
            f'Combine them: jax.lax.pmean(gradients, "{found.axis}") before the '
            "update, or psum. What should differ needs the axis in out_specs. "
            "jax.shard_map with check_vma=True rejects this.",
            where=called or found.where,
        )


SYMPTOMS = (
    Symptom(
        *("zeroed", "F4", "A state gets updates of zero.", FAILURE, _zeroed),
        severity=TICKET,
        missing="only the program shows it",
    ),
    Symptom(
        *("unused", "F4", "Updates are computed, and not returned.", FAILURE, _unused),
        severity=TICKET,
        missing="only the program shows it",
    ),
    Symptom(
        *("repeated_state", "F4", "An updated state is dropped.", FAILURE, _repeated),
        severity=TICKET,
        missing="only samples of one process show it",
    ),
    Symptom(
        *("repeated_batch", "F4", "Each step has the same batch.", HINT, _repeated),
        missing="only samples of one process show it",
    ),
    Symptom(
        *("unreduced", "F4", "Devices drift apart.", FAILURE, _unreduced),
        severity=PAGE,
        missing="only the program shows it",
    ),
)
