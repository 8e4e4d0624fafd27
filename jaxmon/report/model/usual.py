"""What is usual in a process, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxmon.report.model.spreads import Spread


@dataclass(frozen=True, slots=True)
class Usual:
    """
    How times vary, and what the process had at most.

    Attributes:
        steps: mean step times of a second each, by loop.
        requests: mean latencies of a second each, of successful requests that waited
            for no compile, by route.
        work: times of the same piece of work in every run, on every machine.
        peak_resident_bytes: the process's memory on its host, at most.
        waiting: for which part of the time in which its threads could run they waited
            for a processor.
    """

    steps: Mapping[str, Spread] = field(default_factory=dict)
    requests: Mapping[str, Spread] = field(default_factory=dict)
    work: Spread = field(default_factory=Spread)
    peak_resident_bytes: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Values at Unix *times*, as many."""

    times: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
