"""
Recording rules that join programs and hardware: watts by process and by function.

Agents export the uuid of each device that they use, the sidecar the power that it
draws. Joining them in every panel and alert would be unreadable.
"""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, counter, gauge, histogram, recorded
from jaxmon.symptoms.alert import PROCESS
from jaxmon.symptoms.job import DEVICE_TIME


PROCESS_POWER = f"worker:{catalog.ACCELERATOR_POWER_WATTS.name}:sum"
"""Total power of a process's GPUs, counting shared GPUs in full."""

FUNCTION_POWER = f"function:{catalog.ACCELERATOR_POWER_WATTS.name}:sum"
"""Watts of a process, divided among its functions by their device time."""

_FUNCTION = (*PROCESS, "function")


def recorded_power(scale: float) -> dict[str, Expr]:
    """Return what is recorded; *scale* divides its window, names keep it."""
    return {
        PROCESS_POWER: _process_power(),
        DEVICE_TIME: _device_time(durations.scaled("5m", scale)),
        FUNCTION_POWER: _function_power(),
    }


def _process_power() -> Expr:
    # Only GPUs report their power, and only their uuids are globally unique: agents may
    # be scraped apart from the sidecar that reads their devices.
    gpus = promql.re("uuid", "GPU-.+")
    drawn = gauge(catalog.ACCELERATOR_POWER_WATTS, gpus).max("uuid")
    uses = gauge(catalog.DEVICE_INFO, gpus).max(*PROCESS, "uuid")
    return uses.joined(drawn, on=("uuid",), take=()).sum(*PROCESS)


def _device_time(window: str) -> Expr:
    # Some calls are sampled, all are counted.
    sampled = histogram(catalog.EXECUTION_SECONDS)
    seconds = sampled.sum.rate(window).sum(*_FUNCTION)
    samples = sampled.count.rate(window).sum(*_FUNCTION)
    calls = counter(catalog.JIT_CALLS).rate(window).sum(*_FUNCTION)
    busy = promql.ratio(seconds, samples) * calls
    # Also if one delayed sample stands for many calls.
    return promql.call("clamp_max", busy, 1)


def _function_power() -> Expr:
    busy = recorded(DEVICE_TIME, labels=_FUNCTION)
    whole = promql.number(1) / (busy.sum(*PROCESS) > 0)
    share = busy.joined(whole, on=PROCESS, take=())
    watts = recorded(PROCESS_POWER, labels=PROCESS, unit="watts")
    return share.joined(watts, on=PROCESS, take=())
