"""What an out-of-memory report says: what requested memory, and what holds it."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts.events import EventFact
from jaxmon.facts.functions import Program
from jaxmon.facts.memory import Allocations, Arrays, Device, HostMemory
from jaxmon.facts.record import NOTHING, Fact


class FailedAllocation(Fact):
    """
    The data of an error for its report. Holds no reference to the error.

    Attributes:
        function: label of the function that failed.
        kind: one of `catalog.ERROR_KINDS`.
        type: class of the exception, and *message*, its first lines.
        text: the whole message, truncated.
        stage: how far the call had come, if known.
        where: ``file:line`` of the user's program, if known.
    """

    function: str = ""
    kind: str = ""
    type: str = ""
    message: str = ""
    text: str = ""
    stage: str | None = None
    where: str | None = None
    time: float = 0.0


class LiveArrays(Fact):
    """
    The arrays of all devices, `None` if unknown; sizes are of those *added_up*, as far
    as time allowed, without the *offloaded_bytes*, which are in the host's memory.
    """

    arrays: int | None = None
    added_up: int = 0
    bytes: float = 0.0
    offloaded_bytes: int = 0
    by_dtype: Mapping[str, Arrays] = NOTHING


class OomReport(Fact):
    """
    An out-of-memory report.

    Attributes:
        failures_without_report: those since the report before.
        lines: those that hold most memory, now or in the last snapshot.
        asked: the program that probably requested memory, by its function.
        programs: the largest ones, likewise.
        unavailable: why there is nothing in a section.
    """

    format: str = "jaxmon-oom-2"
    time: str = ""
    program: str | None = None
    pid: int = 0
    versions: Mapping[str, str | None] = NOTHING
    failure: FailedAllocation = FailedAllocation()
    failures_without_report: int = 0
    devices: tuple[Device, ...] = ()
    host: HostMemory = HostMemory()
    live_arrays: LiveArrays = LiveArrays()
    lines: Allocations = Allocations()
    asked: Mapping[str, Program] = NOTHING
    programs: Mapping[str, Program] = NOTHING
    compiles: tuple[EventFact, ...] = ()
    recompiles: tuple[EventFact, ...] = ()
    leaks: tuple[EventFact, ...] = ()
    advice: tuple[str, ...] = ()
    unavailable: Mapping[str, str] = NOTHING

    def without(self, name: str, why: str) -> OomReport:
        """Return a copy with nothing in the section *name*."""
        empty = {name: getattr(OomReport, name)}
        return self.replace(**empty, unavailable={**self.unavailable, name: why})
