"""
The figures of a loop at one of its steps, as its metrics have them; names without
prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from jaxmon import catalog
from jaxmon.agent.functions import FunctionTable
from jaxmon.exposition.families import Family, series
from jaxmon.indicators.loops import Loop
from jaxmon.indicators.timeline import STEP, Timeline


_BUILT = ("compiled", "cache_hit")
_PEAK, _IN_USE = ('kind="peak"', 'kind="in_use"')
_STEP_TIME = series(catalog.TIME_SECONDS, STEP)


Ideal: TypeAlias = tuple[float, int]


class Reading(NamedTuple):
    """
    Counters of a loop at one step.

    Attributes:
        steps: finished steps.
        seconds: time of these.
        waited: seconds spent waiting for data.
        useful: seconds of wall time spent in steps.
        wall: seconds of wall time.
        ideal: seconds that the FLOPs of all calls take the devices at their peak, and
            the number of calls whose FLOPs are unknown; `None` if the peak is.
    """

    steps: int
    seconds: float
    waited: float
    useful: float
    wall: float
    ideal: Ideal | None = None


class Sources(NamedTuple):
    """
    Where figures are read.

    Attributes:
        table: the functions.
        timeline: the wall time by activity.
        devices: return the families of devices; each fast, as for a scrape.
        ideal: returns `Reading.ideal`.
    """

    table: FunctionTable
    timeline: Timeline
    devices: tuple[Callable[[], Iterable[Family]], ...]
    ideal: Callable[[], Ideal | None]


def reading(loop: Loop, sources: Sources) -> Reading:
    """Return the counters of *loop* now; microseconds."""
    spent = dict(sources.timeline.collect()[0].samples)
    return Reading(
        loop.steps,
        loop.seconds.sum,
        loop.waited,
        spent.get(_STEP_TIME, 0.0),
        sum(spent.values()),
        sources.ideal(),
    )


def times(
    now: Reading, before: Reading | None, *, ideal: float = 0.0
) -> dict[str, float]:
    """
    Return times and ratios between *before*, `None` at first, and *now*.

    Args:
        now: the counters.
        before: those of the row before.
        ideal: seconds that a step would take at the peak of its devices, as the program
            says; 0 if it does not.
    """
    found: dict[str, float] = {}
    if before is None:
        before = Reading(0, 0.0, 0.0, 0.0, 0.0)
    steps, seconds = now.steps - before.steps, now.seconds - before.seconds
    if steps > 0:
        found["step_seconds"] = seconds / steps
        found["data_wait_seconds"] = (now.waited - before.waited) / steps
    if ideal and seconds > 0:
        found["mfu"] = ideal * steps / seconds
    elif (counted := _ideal_between(now, before)) and now.wall > before.wall:
        found["mfu"] = counted / (now.wall - before.wall)
    if now.wall > before.wall:
        found["goodput"] = (now.useful - before.useful) / (now.wall - before.wall)
    return found


def _ideal_between(now: Reading, before: Reading) -> float | None:
    """Return the ideal seconds; `None` if FLOPs are unknown of a call in between."""
    if now.ideal is None or before.ideal is None or now.ideal[1] != before.ideal[1]:
        return None
    return now.ideal[0] - before.ideal[0]


def totals(sources: Sources) -> dict[str, float]:
    """Return what is known of compiles and devices; about 2 µs per function."""
    return {**_compiles(sources.table), **_devices(sources.devices)}


def _compiles(table: FunctionTable) -> Mapping[str, float]:
    compiles, recompiles, seconds = 0, 0, 0.0
    for function in table:
        compiles += sum(function.compiles[outcome].value for outcome in _BUILT)
        recompiles += sum(n.value for n in function.recompiles.copy().values())
        seconds += sum(phase.sum for phase in list(function.phases.values()))
    return {
        "compiles": compiles,
        "recompiles": recompiles,
        "compile_seconds": seconds,
    }


def _devices(sources: Iterable[Callable[[], Iterable[Family]]]) -> Mapping[str, float]:
    peaks, used, busy = [], [], []
    for families in sources:
        for family in families():
            metric, samples = family.metric, family.samples
            if metric is catalog.DEVICE_MEMORY_BYTES:
                peaks += [value for name, value in samples if _PEAK in name]
                used += [value for name, value in samples if _IN_USE in name]
            elif metric is catalog.ACCELERATOR_UTILIZATION_RATIO:
                busy += [value for _, value in samples]
    found = {}
    if peaks:
        found["device_memory_peak_bytes"] = max(peaks)
    if used:
        found["device_memory_in_use_bytes"] = max(used)
    if busy:
        found["accelerator_utilization_ratio"] = sum(busy) / len(busy)
    return found
