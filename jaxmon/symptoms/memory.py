"""
Memory of devices and hosts: exhausted, nearly exhausted, in pieces, growing; and what
moves between them: transfers in loops, arguments that are copied to the device.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.facts.memory import Device, Leak, MemoryHolder, Transfer
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import Reason
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration, share, size, times
from jaxmon.limits import Limits
from jaxmon.promql import eq, events, gauge
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import (
    A_FUNCTION,
    A_PROCESS,
    AN_INSTANCE,
    COUNT,
    PROCESS,
    TICKET,
    Alert,
)
from jaxmon.symptoms.reason import reason
from jaxmon.symptoms.symptom import FAILURE, HINT, LINES, TIME, Finding, Symptom, quoted


_MOST_EVIDENCE = 3


def _out_of_memory(snapshot: Snapshot) -> Iterator[Finding]:
    failures = sum(function.errors.get("oom", 0) for function in snapshot.functions)
    reports = snapshot.errors.readable_reports
    if failures or reports:
        errors, now = snapshot.of_kind("error"), snapshot.process.now
        latest = [of for of in errors if of.details.get("error_kind") == "oom"][-1:]
        yield Finding(
            "oom",
            "",
            f"The device ran out of memory {times(failures or len(reports))}.",
            (
                *(f"in {event.function}, {quoted(event, now)}" for event in latest),
                *(f"report: {path}" for path in reports[-_MOST_EVIDENCE:]),
            ),
            "The report names the program that requested memory and the lines that "
            "held it: free those first, donate arguments, or reduce the batch size.",
            where="".join(str(event.details.get("where") or "") for event in latest),
        )


def _ran_out(limits: Limits) -> Alert:
    window = limits.oom_window
    failures = events.ERRORS.within(window, eq("kind", "oom"))
    return Alert(
        expr=failures.sum("job", "function") > 0,
        summary=f"{A_FUNCTION}ran out of device memory {COUNT} times in {window}.",
    )


def memory_high(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect devices that are, or were, nearly full."""
    for device in snapshot.memory.devices:
        if (finding := _nearly_full(device, snapshot.limits)) is not None:
            held = snapshot.allocations.peak_of(device.device)
            yield Finding(
                "memory",
                device.device,
                finding,
                tuple(
                    f"{line.place} held {size(line.bytes)} of it"
                    for line in held.lines[:_MOST_EVIDENCE]
                ),
                "Free what these lines hold, donate arguments (donate_argnums) or "
                "reduce the batch size before memory runs out.",
            )


def _nearly_full(device: Device, limits: Limits) -> str | None:
    if not device.limit:
        return None
    for figure, high, verb in (
        (device.in_use, limits.device_memory, "uses"),
        (device.peak, limits.device_memory_peak, "has used"),
    ):
        if figure is not None and figure > high * device.limit:
            part = share(figure, device.limit)
            return f"Device {device.device} {verb} {part} of its {size(device.limit)}."
    return None


def filling(facts: HostFacts) -> Iterator[Reason]:
    """Yield devices whose memory is about to run out."""
    for device in facts.devices:
        used, limit = device.memory_in_use, device.memory_limit
        if used is not None and limit and used / limit > facts.limits.device_memory:
            text = (
                f"device {device.device} is about to run out of memory: "
                f"{share(used, limit)} of {size(limit)} in use."
            )
            yield reason("memory", TICKET, text, [device.worker], device.device)


def _device_memory_high(limits: Limits) -> Alert:
    by = (*PROCESS, "device")
    used = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "in_use")).max(*by)
    limit = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "limit")).max(*by)
    return Alert(
        expr=promql.ratio(used, limit) > limits.device_memory,
        for_=limits.device_memory_for,
        summary=(
            "{{ $value | humanizePercentage }} of the memory job "
            "{{ $labels.job }} may allocate on device {{ $labels.device }} of "
            f"{AN_INSTANCE}is in use."
        ),
    )


def _leaks(snapshot: Snapshot) -> Iterator[Finding]:
    host = snapshot.allocations.host
    limited = {device.device for device in snapshot.memory.devices if device.limit}
    found: dict[str, list[Leak]] = {}
    for leak in snapshot.allocations.leaks:  # of one holder, one finding
        found.setdefault(leak.holder.name or leak.device, []).append(leak)
    for name, (leak, *others) in found.items():
        sums, is_host = [], name == host.holder.name
        sums += [f"of device {of.device} by {size(of.growth_bytes)}" for of in others]
        sums += [f"of the process on the host by {size(host.growth_bytes)}"] * is_host
        filled = host if is_host and host.full_in_seconds else leak
        is_device = filled is leak and leak.device in limited
        memory = "it" if is_device else "the memory of the host"
        yield Finding(
            *("leak", leak.device),
            f"Memory of device {leak.device} grew steadily by "
            f"{size(leak.growth_bytes)} in {duration(leak.seconds)}"
            + (f" and {leak.calls:,} calls" if leak.calls else "")
            + "".join(f", {text}" for text in sums)
            + _full(filled.full_in_seconds, snapshot.limits, memory),
            (
                *(
                    f"{line.place} grew by {size(line.growth_bytes)}, to "
                    f"{counted(line.arrays, 'array')}"
                    for line in leak.lines[:_MOST_EVIDENCE]
                ),
                *_held(leak.holder),
            ),
            (
                f"Bound what {leak.holder.name} keeps"
                if leak.holder.name
                else "Find what keeps references to the arrays allocated on that line"
            )
            + ". Of losses and metrics, store numbers, as of float(x), instead of "
            "arrays. A cache that is still filling looks the same.",
            where=leak.holder.where or leak.lines[0].place if leak.lines else "",
        )


def _full(left: float | None, limits: Limits, memory: str = "it") -> str:
    """Return the end of a sentence about growth."""
    if left is None or left > seconds_in(limits.host_full_within):
        return "."
    return f". At that pace {memory} is full in {duration(left)}."


def _held(holder: MemoryHolder) -> Iterator[str]:
    if holder.name:
        where = f", and grows at {' or '.join(holder.adds)}" if holder.adds else ""
        yield (
            f"{holder.name} ({holder.kind}, {holder.items:,} items) holds about "
            f"{size(holder.bytes)}{where}"
        )


def _host_growth(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect growth beside arrays of JAX that has a known holder, or fills the host."""
    growth, limits = snapshot.allocations.host, snapshot.limits
    left, long = growth.full_in_seconds, seconds_in(limits.host_growth_for)
    fills = _full(left, limits) != "." and growth.seconds >= long
    holder = growth.holder
    if holder.backlog:
        verdict = (
            f"{holder.name}, a {holder.kind} without a maximum, is filled faster than "
            f"it is emptied: its memory on the host grew to about {size(holder.bytes)}"
        )
        advice = "Give it a maxsize of a few items: put() then waits until one is taken"
    else:
        per_call = growth.growth_bytes / max(growth.calls, 1)
        verdict = (
            f"The memory of the process on the host grew steadily by "
            f"{size(growth.growth_bytes)} in {duration(growth.seconds)} and "
            f"{growth.calls:,} calls, {size(per_call)} for each, beside arrays of JAX"
        )
        advice = (
            "Give what grows a maximum, as functools.lru_cache(maxsize=...) has, or "
            "drop what is not needed. A cache that is still filling looks the same"
        )
    is_leak = holder.name in {of.holder.name for of in snapshot.allocations.leaks}
    if growth.growth_bytes and (not is_leak if holder.name else fills):
        named = ("host_memory_growth", holder.name, verdict + _full(left, limits))
        yield Finding(*named, (*_held(holder),), f"{advice}.", where=holder.where)


def _memory_leak(limits: Limits) -> Alert:
    by = (*PROCESS, "device")
    return Alert(
        expr=gauge(catalog.LEAK_GROWTH_BYTES).max(*by) > 0,
        # The agent has seen a window of growth already; a cache that fills ends.
        for_=limits.leak_for,
        summary=(
            A_PROCESS + "keeps accumulating arrays on device {{ $labels.device }}: "
            "{{ $value | humanize1024 }}B in the agent's last window."
        ),
    )


def _fragmentation(snapshot: Snapshot) -> Iterator[Finding]:
    limits = snapshot.limits
    for device in snapshot.memory.devices:
        block, most = device.largest_free_block, device.largest_allocation
        limit, used, pool = device.limit, device.in_use, device.pool
        # Of a CPU or TPU, that is unknown.
        if not limit or used is None or pool is None or block is None or most is None:
            continue
        # In a block of the pool, or in what the allocator may still add to its pool.
        free, block = limit - used, max(block, limit - pool)
        much = free >= limits.fragmented_free * limit
        if much and block < min(most, limits.fragmented_block * free):
            yield Finding(
                "fragmentation",
                device.device,
                f"{size(free)} of device {device.device} are free, but in blocks of "
                f"{size(block)} at most.",
                (f"the largest allocation so far took {size(most)}",),
                "Allocate the large arrays first and keep them, donate arguments, and "
                "use few shapes. XLA_PYTHON_CLIENT_PREALLOCATE=false fragments more.",
            )


def _host_filling(facts: HostFacts) -> Iterator[Reason]:
    for key, left in facts.now.of(catalog.HOST_MEMORY_AVAILABLE_BYTES).items():
        whole = facts.now.of(catalog.HOST_MEMORY_SIZE_BYTES).get(key)
        if whole and left < facts.limits.host_memory_left * whole:
            text = f"the host is about to run out of memory: {size(left)} are left."
            yield reason("host_memory", TICKET, text, [])


def _host_memory_growth(limits: Limits) -> Alert:
    window = limits.host_memory_window
    most = limits.host_memory_growth
    grown = recorded.memory_growth(window, most) > most
    age = gauge(catalog.UPTIME_SECONDS).max(*PROCESS)
    return Alert(
        # A program that starts grows; that must have left the window.
        expr=grown.and_(age > 2 * seconds_in(window)),
        # A step, such as loading more data, is within the window for no longer.
        for_=window,
        summary=(
            A_PROCESS + "grew by "
            f"{{{{ $value | humanizePercentage }}}} in the last {window}, and in the "
            f"{window} before."
        ),
    )


def _container_memory(limits: Limits) -> Alert:
    window = limits.memory_left_for
    return Alert(
        expr=recorded.container_left(window) < seconds_in(limits.memory_left),
        for_=window,
        summary=(
            A_PROCESS + "reaches the memory limit of its container in "
            "{{ $value | humanizeDuration }}, if it grows on as in the last "
            f"{window}; the kernel kills it then."
        ),
    )


_OF_A_NUMBER = 16
# Bytes per second that any host copies to its device, and what a number takes.
_SLOWEST, _STARTING = 5e8, 5e-4
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


def _transfers(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect lines that transfer data in a loop.

    A read that waits for the device costs nothing by itself: where the time goes is
    known, `time.fetches` judges. Nor does a copy that waits for a processor, or beside
    what takes the time.
    """
    period, limits = snapshot.time.period, snapshot.limits
    observed = snapshot.process.observed_seconds
    copying = dict(period.lines("transfer"))
    for line in snapshot.transfers.lines:
        seconds = line.seconds
        if period.settled:
            part_of_it = copying.get(line.place, 0.0) / period.seconds
            seconds = min(seconds, part_of_it * observed)
            reads = line.direction == "device_to_host"
            if reads or seconds < limits.time_worth * observed:
                continue
        elif _instead_of(line) == COPY_OF_NUMBERS:
            seconds = min(seconds, line.count * _STARTING)
        share = limits.transfers_slow_share
        worth = max(seconds_in(limits.transfers_slow), share * observed)
        often = line.count >= limits.transfers_in_a_loop
        won = seconds
        if line.direction == "device_to_host":
            computed = snapshot.device_seconds
            # What the device computes anyway is no loss, only what the host could do.
            host = period.of("python", "eager", "data_wait", "transfer", "blocked")
            won = max(seconds - computed, 0.0)
            won = won if computed or not period.looks else min(won, host)
        # Who writes block_until_ready means it.
        if often and won >= worth and line.direction != "sync":
            by = f" ({line.how})" if line.how else ""
            blocked = f", blocking for {duration(seconds)}" if seconds else ""
            yield Finding(
                "transfer",
                line.place,
                f"{line.place} {_DID.get(line.direction, 'copied to')} the device "
                f"{times(line.count)}{by}, {size(line.bytes)} in total{blocked}.",
                (),
                _instead_of(line),
                where=line.place,
                seconds=won,
            )


def arguments(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect calls that copy large NumPy arrays to the device each time."""
    observed, limits = snapshot.process.observed_seconds, snapshot.limits
    for function in snapshot.functions:
        nbytes = snapshot.transfers.arguments.get(function.name, 0.0)
        same = snapshot.transfers.same.get(function.name, 0.0)
        dispatch = function.samples.dispatch_seconds or 0.0
        calls = function.calls or 0
        # The median of a few calls is not the mean of all. A call that takes longer
        # than its copies waits for a device that has enough to do.
        took = min(dispatch * calls, nbytes / _SLOWEST * calls, observed)
        # A CPU copies them after the call has returned.
        behind = min(function.device_seconds, same / _SLOWEST * calls, observed)
        later = same >= limits.large_argument and behind > took
        nbytes, took = (same, behind) if later else (nbytes, took)
        most = "at most" if later else "about"
        # Copies while the device computes cost nothing.
        won = min(took, max(observed - snapshot.device_seconds, 0.0))
        worth = took if later else won
        if nbytes < limits.large_argument or worth < limits.time_worth * observed:
            continue
        yield Finding(
            "numpy_argument",
            function.name,
            f"{function.name} is called with {size(nbytes)} of NumPy arrays: each call "
            "copies them to the device"
            + ("." if later else f", and took {duration(dispatch)} to return."),
            (
                f"{times(calls)}, {most} {duration(took)} in all",
                *([f"{size(same)} of it are the same each time"] if same else []),
            ),
            "Call jax.device_put on them once, or on the next batch while the device "
            "computes.",
            where=snapshot.time.calls(function.name),
            seconds=0.0 if later else won,
        )


def _copies(snapshot: Snapshot) -> Iterator[Finding]:
    observed, limits = snapshot.process.observed_seconds, snapshot.limits
    for function in snapshot.functions:
        copied = function.program.copied
        calls = round((function.calls or 0) * copied.of_calls)
        took = copied.fraction * copied.of_calls * function.device_seconds
        took = min(took, observed)
        if (
            took < limits.time_worth_estimated * observed
            or copied.dropped < limits.dropped_samples
            or copied.kept
        ):
            continue
        what = ", ".join(copied.arguments) or "an argument"
        evidence = [
            f"the caller kept none of it after any of {copied.dropped} sampled calls"
        ]
        if copied.donated_inside:
            evidence.append(
                f"donation at {copied.donated_inside} has no effect: it is inside "
                f"{function.name}, which is jitted itself"
            )
        yield Finding(
            "copied_argument",
            function.name,
            f"{function.name} copies {size(copied.bytes)} of {what} in each call, "
            f"because it is not donated: about {size(copied.bytes * calls)} in "
            f"{calls:,} calls, in about {duration(took)}.",
            (*evidence,),
            f"Donate it to {function.name}, with donate_argnums or donate_argnames of "
            "jax.jit: the update is then made in place. The donated array must not be "
            "used after the call.",
            where=copied.donated_inside or snapshot.time.calls(function.name),
            seconds=took,
        )


def _instead_of(line: Transfer) -> str:
    if line.direction != "host_to_device":
        return FETCH
    return COPY_OF_NUMBERS if line.bytes <= _OF_A_NUMBER * line.count else COPY


SYMPTOMS = (
    Symptom(
        *("oom", "F2", "A device ran out of memory.", FAILURE),
        *(_out_of_memory, catalog.ERRORS, "Debug: JAX errors over time"),
        rule=("JaxmonOutOfMemory", _ran_out),
        severity=TICKET,
    ),
    Symptom(
        *("memory", "F2", "Device memory is nearly full.", FAILURE),
        *(memory_high, catalog.DEVICE_MEMORY_BYTES, "On-call: Device memory in use"),
        rule=("JaxmonDeviceMemoryHigh", _device_memory_high),
        reason=filling,
        wait="device_memory_for",
    ),
    Symptom(
        *("leak", "F5", "A process is leaking live arrays.", FAILURE),
        *(_leaks, catalog.LEAK_GROWTH_BYTES, "Debug: Suspected leak"),
        rule=("JaxmonMemoryLeak", _memory_leak),
        severity=TICKET,
        wait="leak_for",
    ),
    Symptom(
        *("fragmentation", "F2", "Free device memory is fragmented.", HINT),
        *(_fragmentation, catalog.DEVICE_MEMORY_BYTES, "Debug: Device memory by kind"),
        missing="matters only once an allocation fails",
    ),
    Symptom(
        *("host_memory", "F5", "The memory of a host is nearly used up."),
        panel="Fleet: Host memory available to programs",
        other_runbook="JaxmonHostMemoryGrowth",
        reason=_host_filling,
        missing="hosts have alerts of their own; JaxmonHostMemoryGrowth is earlier",
    ),
    Symptom(
        *("host_memory_growth", "F5", "A process's memory keeps growing.", FAILURE),
        *(
            _host_growth,
            catalog.PROCESS_RESIDENT_MEMORY_BYTES,
            "Debug: Resident memory",
        ),
        rule=("JaxmonHostMemoryGrowth", _host_memory_growth),
        severity=TICKET,
    ),
    Symptom(
        *("container_memory", "F5", "A container's memory grows towards its limit."),
        rule=("JaxmonHostMemoryGrowth", _container_memory),
        missing="the page has the growth of a process, and the memory of its host",
    ),
    Symptom(
        *("transfer", "", "A line transfers data in a loop.", TIME),
        *(
            _transfers,
            catalog.HOST_TRANSFER_SECONDS,
            "Debug: Time blocked on transfers",
        ),
        missing=LINES,
    ),
    Symptom(
        *("numpy_argument", "", "Calls copy large NumPy arrays.", TIME),
        *(arguments, catalog.DISPATCH_SECONDS, "Debug: Dispatch time by function"),
        missing=LINES,
    ),
    Symptom(
        *("copied_argument", "", "Calls copy arguments that could be donated.", TIME),
        *(_copies, catalog.EXECUTION_SECONDS, "Debug: Execution time by function"),
        missing="only the program shows what is used afterwards",
    ),
)
