"""
What a process of a job reports of itself, and its sidecar of it.

``/debug/rank`` of an agent has the fields of `Rank` up to `Rank.key_part`; ``/job`` of
a sidecar those and the rest. Clocks of hosts may differ by minutes, so there are ages,
no times of day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.walltime import Now


SCHEMA = 1
"""
Schema version of ``/debug/rank`` and ``/job``, shared by writers and readers: raised
when newer output would mislead an older reader.
"""

MOST_RANKS = 1_000_000
"""No job has as many; a larger one is a mistake, or a lie."""

_DIGITS = 7


@dataclass(frozen=True, slots=True)
class SharedFunction:
    """
    A function whose program runs on devices of several processes.

    Attributes:
        calls: so far, `None` if they are not counted.
        fingerprint: of its latest program; empty if unknown.
        devices: how many that runs on.
        programs: how many it has had that differ; `None` if unknown.
        compiled: how often it was compiled.
        loaded: how often it was loaded from the persistent cache instead.
        compile_seconds: what compiling it has taken.
    """

    name: str = ""
    calls: int | None = None
    fingerprint: str = ""
    devices: int = 0
    programs: int | None = None
    compiled: int = 0
    loaded: int = 0
    compile_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RankLoop:
    """A loop that the program marks: its steps, and the age of the latest."""

    name: str = ""
    steps: int = 0
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CallInterval:
    """Seconds since the latest call of these functions, and a usual pause of them."""

    age_seconds: float | None = None
    usual_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RunningCompiles:
    """Compiles in progress: their number, and age and function of the oldest."""

    count: int = 0
    seconds: float = 0.0
    function: str = ""


@dataclass(frozen=True, slots=True)
class RecentLine:
    """A line where a rank was lately, in what state, and for how much of the time."""

    state: str = ""
    place: str = ""
    activity: str = ""
    ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Rank:
    """
    A process of a job.

    Attributes:
        index: its number in the job; `None` if it has joined none.
        count: of the processes of the job.
        coordinator: address of the coordinator; empty if unknown.
        job: what its scheduler calls the job; empty if unknown.
        attempt: how often that has restarted it; empty if unknown.
        run: the record of its run that it keeps; see `jaxmon.facts.run`.
        loops: those that run.
        functions: those called most of what it runs together with others.
        now: what it is doing.
        starved_ratio: how much of its time it waits for a processor; `None` if unknown.
        course: what its time went into, by call: see `jaxmon.facts.time_by_call`.
        alone: with whose programs, of the functions that it runs alone, its device
            worked longest in the last seconds; empty if unknown.
        places: the lines where it was lately, other than in waits for the device, those
            that took most time first.
        gpus: UUIDs of its GPUs.
        setup: what its programs depend on besides its code, by name.
        key_part: of its keys in the persistent cache; should be that of all others.
        worker: its slot. From here on, what its sidecar adds.
        since_seconds: age of all before.
        trouble: why it does not respond now; empty if it does.
        stopped: whether a signal or a debugger has stopped it.
        ended: how it ended, as far as is known; empty if it has not.
        ended_seconds: how long that has been known.
        closed_seconds: how long ago it ended, if the kernel reported that.
        words: its record, once it has ended or said how it ends.
        oom_kills: how many processes of its cgroup the kernel killed for memory
            between its last response and its end; `None` if unknown.
        host_oom_kills: the same, of the whole host.
    """

    schema: int = 0
    index: int | None = None
    count: int | None = None
    coordinator: str = ""
    job: str = ""
    attempt: str = ""
    run: Any = None
    host: str = ""
    pid: int | None = None
    observed_seconds: float = 0.0
    loops: tuple[RankLoop, ...] = ()
    functions: tuple[SharedFunction, ...] = ()
    pace: CallInterval = field(default_factory=CallInterval)
    now: Now = field(default_factory=Now)
    compiling: RunningCompiles = field(default_factory=RunningCompiles)
    starved_ratio: float | None = None
    course: Any = ()
    alone: str = ""
    places: tuple[RecentLine, ...] = ()
    gpus: tuple[str, ...] = ()
    setup: Mapping[str, str] = field(default_factory=dict, hash=False)
    key_part: str = ""
    worker: str = ""
    since_seconds: float = 0.0
    trouble: str = ""
    stopped: bool = False
    ended: str = ""
    ended_seconds: float = 0.0
    closed_seconds: float | None = None
    words: ProcessEnd = field(default_factory=ProcessEnd)
    oom_kills: int | None = None
    host_oom_kills: int | None = None

    @property
    def responds(self) -> bool:
        """Whether this is about now."""
        return not (self.trouble or self.stopped or self.ended)

    @property
    def restarts(self) -> int:
        """How often its job was restarted, of which this is an attempt."""
        text = self.attempt
        is_number = text.isascii() and text.isdecimal() and len(text) < _DIGITS
        return int(text) if is_number else 0

    @property
    def age(self) -> float | None:
        """
        Seconds since it called what the ranks call together, or else did a step of a
        loop that it marks; `None` if neither is known.
        """
        age = self.pace.age_seconds
        if age is None:
            ages = [
                loop.age_seconds for loop in self.loops if loop.age_seconds is not None
            ]
            age = min(ages, default=None)
        return None if age is None else max(age, 0.0) + self.since_seconds

    def calls(self, function: str) -> int | None:
        """
        Return how often it has called *function*, `None` if that is unknown; one that
        it has never called is not among its functions.
        """
        for one in self.functions:
            if one.name == function:
                return one.calls
        return 0 if self.functions else None

    def fingerprint(self, function: str) -> str:
        """Return that of its latest program of *function*, empty if unknown."""
        found = (one.fingerprint for one in self.functions if one.name == function)
        return next(found, "")

    def __str__(self) -> str:
        """Return its number, host and process."""
        return f"rank {self.index} ({self.host}, pid {self.pid})"
