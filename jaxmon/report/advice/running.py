"""
Rules about running programs: memory, transfers, errors, wrong values.

The constants here are the thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.report.advice.words import (
    COPY,
    COPY_OF_NUMBERS,
    DEVIATION,
    ERRORS,
    FETCH,
    FLOAT64,
    GRADIENTS,
    error_advice,
)
from jaxmon.report.layout import ago, counted, duration, share, size, times
from jaxmon.report.model import Advice, Device, Event, Snapshot, Transfer


_MEMORY_HIGH = 0.8
_PEAK_HIGH = 0.95
_WORTH_SECONDS = 1.0
_LOOP = 100
_OF_A_NUMBER = 16
_LOOP_SHARE = 0.01
_MOST_EVIDENCE = 3
_MOST_OF_A_MESSAGE = 200


def out_of_memory(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect out-of-memory errors."""
    failures = sum(one.errors.get("oom", 0) for one in snapshot.functions)
    reports = snapshot.errors.readable_reports
    if failures or reports:
        yield Advice(
            "oom",
            "",
            f"The device ran out of memory {times(failures or len(reports))}.",
            tuple(f"report: {path}" for path in reports[-_MOST_EVIDENCE:]),
            "The report names the program that requested memory and the lines "
            "that held it: free those first, donate arguments, or reduce the "
            "batch size.",
        )


def memory_high(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect devices that are, or were, nearly full."""
    for device in snapshot.memory.devices:
        if (finding := _nearly_full(device)) is not None:
            yield Advice(
                "memory",
                device.device,
                finding,
                tuple(
                    f"{line.place} holds {size(line.bytes)}"
                    for line in snapshot.allocations.lines[:_MOST_EVIDENCE]
                ),
                "Free what these lines hold, donate arguments (donate_argnums) or "
                "reduce the batch size before memory runs out.",
            )


def leaks(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect steadily growing memory."""
    for leak in snapshot.allocations.leaks:
        yield Advice(
            "leak",
            leak.device,
            f"Memory of device {leak.device} grew steadily by "
            f"{size(leak.growth_bytes)} in {duration(leak.seconds)}.",
            tuple(
                f"{line.place} grew by {size(line.growth_bytes)}, to "
                f"{counted(line.arrays, 'array')}"
                for line in leak.lines[:_MOST_EVIDENCE]
            ),
            "Find what keeps references to the arrays allocated on that line: "
            "often a list of losses or metrics; store float(x) instead of the "
            "array. A cache that is still filling looks the same.",
        )


_DID = {"device_to_host": "read from", "sync": "synchronized with"}


def transfers(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect lines that transfer data in a loop."""
    for line in snapshot.transfers.lines:
        if _in_a_loop(line, snapshot.process.observed_seconds):
            by = f" ({line.how})" if line.how else ""
            yield Advice(
                "transfer",
                line.place,
                (
                    f"{line.place} {_DID.get(line.direction, 'copied to')} the device "
                    f"{times(line.count)}{by}, {size(line.bytes)} in total"
                )
                + (
                    f", blocking for {duration(line.seconds)}." if line.seconds else "."
                ),
                (),
                _instead_of(line),
            )


def errors(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect errors other than out of memory."""
    for function in snapshot.functions:
        kinds = {kind: n for kind, n in function.errors.items() if n and kind != "oom"}
        if not kinds:
            continue
        most = max(kinds, key=lambda kind: kinds[kind])
        told = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
        told = most if len(kinds) == 1 else told
        name = function.name if function.name != "unknown" else "A jitted function"
        latest = _latest(snapshot.of_kind("error"), function.name, most)
        yield Advice(
            "error",
            function.name,
            f"{name} failed {times(sum(kinds.values()))}: {told}.",
            (_quoted(latest, snapshot.process.now),) if latest else (),
            error_advice(most, latest.details.get("type") if latest else None),
        )


def numerics(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect non-finite values and accidental float64."""
    for function in snapshot.functions:
        found, name = function.numerics, function.name
        if bad := found.get("nonfinite"):
            finding = (
                f"{name} returned {counted(bad, 'non-finite value')} out of "
                f"{found.get('values', bad):,.0f} checked."
            )
            yield Advice("nonfinite", name, finding, (), ERRORS["nan"])
        if programs := found.get("float64_programs"):
            finding = (
                f"{name} computes in float64 in {counted(programs, 'program')}, "
                "although no argument is float64."
            )
            yield Advice("float64", name, finding, (), FLOAT64)


def determinism(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect failed checks."""
    events = snapshot.of_kind("determinism")
    for function in snapshot.functions:
        found, name = function.determinism, function.name
        told = [one for one in events if one.function == name]
        if failed := found.checks.failed:
            finding = (
                f"{name} returned different outputs for the same inputs "
                f"{times(failed)}."
            )
            evidence = [e.message for e in told if "deviations" in e.details][-1:]
            yield Advice("determinism", name, finding, (*evidence,), DEVIATION)
        if failed := found.gradient_checks.failed:
            finding = f"Gradient checks of {name} failed {times(failed)}."
            evidence = [e.message for e in told if "gradients" in e.message][-1:]
            yield Advice("gradients", name, finding, (*evidence,), GRADIENTS)


def _instead_of(line: Transfer) -> str:
    if line.direction != "host_to_device":
        return FETCH
    numbers = line.bytes <= _OF_A_NUMBER * line.count
    return COPY_OF_NUMBERS if numbers else COPY


def _nearly_full(device: Device) -> str | None:
    if not device.limit:
        return None
    for figure, high, verb in (
        (device.in_use, _MEMORY_HIGH, "uses"),
        (device.peak, _PEAK_HIGH, "has used"),
    ):
        if figure is not None and figure >= high * device.limit:
            part = share(figure, device.limit)
            return f"Device {device.device} {verb} {part} of its {size(device.limit)}."
    return None


def _in_a_loop(line: Transfer, observed: float) -> bool:
    worth = max(_WORTH_SECONDS, _LOOP_SHARE * observed)
    # Who writes block_until_ready means it.
    meant = line.direction == "sync"
    return line.count >= _LOOP and line.seconds >= worth and not meant


def _latest(events: list[Event], function: str, kind: str) -> Event | None:
    fitting = (
        one
        for one in reversed(events)
        if one.function == function and one.details.get("error_kind", kind) == kind
    )
    return next(fitting, None)


def _quoted(error: Event, now: float) -> str:
    """Return when and where *error* occurred, and the first sentence of its message."""
    said = error.message.partition(". ")[0][:_MOST_OF_A_MESSAGE]
    where = error.details.get("where")
    place = f", at {where}" if where else ""
    return f"{ago(now - error.time)}{place}: {said}"
