"""Transfers in loops, and arguments that are copied to the device."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.memory import Transfer
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import duration, size, times
from jaxmon.limits import Limits
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.symptom import LINES, TIME, Symptom


_OF_A_NUMBER = 16
# Bytes per second that any host copies to its device.
_SLOWEST = 5e8
_DID = {"device_to_host": "read from", "sync": "synchronized with"}
FETCH = (
    "Each read waits for all preceding device work. If the value is not needed "
    "immediately, read it one step later, or every hundredth step."
)
COPY = "Transfer constant data once with jax.device_put, and prefetch the rest."
COPY_OF_NUMBERS = (
    "These are numbers or small arrays: pass them to a jitted function as NumPy values "
    "and compute with them there."
)


def transfers(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect lines that transfer data in a loop.

    A read that waits for the device costs nothing by itself: where the time goes is
    known, `time.fetches` judges.
    """
    judged, limits = snapshot.time.period.settled, snapshot.limits
    for line in snapshot.transfers.lines:
        if judged and line.direction == "device_to_host":
            continue
        observed = snapshot.process.observed_seconds
        if judged and line.seconds < limits.time_worth * observed:
            continue
        if _in_a_loop(line, observed, limits):
            by = f" ({line.how})" if line.how else ""
            yield Finding(
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
                where=line.place,
                seconds=line.seconds,
            )


def arguments(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect calls that copy large NumPy arrays to the device each time."""
    observed, limits = snapshot.process.observed_seconds, snapshot.limits
    for function in snapshot.functions:
        nbytes = snapshot.transfers.arguments.get(function.name, 0.0)
        dispatch = function.samples.dispatch_seconds or 0.0
        calls = function.calls or 0
        # The median of a few calls is not the mean of all. A call that takes longer
        # than its copies waits for a device that has enough to do.
        took = min(dispatch * calls, nbytes / _SLOWEST * calls, observed)
        if nbytes < limits.large_argument or took < limits.time_worth * observed:
            continue
        yield Finding(
            "numpy_argument",
            function.name,
            f"{function.name} is called with {size(nbytes)} of NumPy arrays: each call "
            f"copies them to the device, and took {duration(dispatch)} to return.",
            (f"{times(function.calls or 0)}, about {duration(took)} in all",),
            "Call jax.device_put on them once, or on the next batch while the device "
            "computes.",
            where=snapshot.time.period.calls(function.name),
            seconds=took,
        )


def _instead_of(line: Transfer) -> str:
    if line.direction != "host_to_device":
        return FETCH
    numbers = line.bytes <= _OF_A_NUMBER * line.count
    return COPY_OF_NUMBERS if numbers else COPY


def _in_a_loop(line: Transfer, observed: float, limits: Limits) -> bool:
    share = limits.transfers_slow_share
    worth = max(seconds_in(limits.transfers_slow), share * observed)
    # Who writes block_until_ready means it.
    meant = line.direction == "sync"
    often = line.count >= limits.transfers_in_a_loop
    return often and line.seconds >= worth and not meant


SYMPTOMS = (
    Symptom(
        *("transfer", "", "A line transfers data in a loop.", TIME),
        *(transfers, catalog.HOST_TRANSFER_SECONDS, "Debug: Time blocked on transfers"),
        missing=LINES,
    ),
    Symptom(
        *("numpy_argument", "", "Calls copy large NumPy arrays.", TIME),
        *(arguments, catalog.DISPATCH_SECONDS, "Debug: Dispatch time by function"),
        missing=LINES,
    ),
)
