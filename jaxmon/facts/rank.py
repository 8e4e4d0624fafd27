"""
What a process of a job reports of itself, and its sidecar of it.

``/debug/rank`` of an agent has the fields of `Rank` up to `Rank.key_part`; ``/job`` of
a sidecar those and the rest. Clocks of hosts may differ by minutes, so there are ages,
no times of day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.record import NOTHING, Fact
from jaxmon.facts.walltime import Now


MOST_RANKS = 1_000_000
"""No job has as many; a larger one is a mistake, or a lie."""

COLUMNS = (
    *("calls", "seconds", "looks", "waits", "transfer", "data_wait", "python", "gil"),
    *("blocked", "compile", "held", "starved", "together", "alone", "known", "ahead"),
    "behind",
)
"""
Of a row of `Rank.course`: calls of what the ranks call together; wall seconds, and how
often the program was looked at in them. The seconds consist of those in which it waited
for the device, and by what it did otherwise (``held`` is when nothing of the process
ran although it was due). Of all these its thread waited for a processor in those
``starved``. Then device seconds, estimated from samples, of what the ranks call
together and of other programs, and in how many of the wall seconds the former are
known. Last, those in which the program was certainly ahead of its device: it had
dispatched a call of what the ranks call together, and the device had not finished it;
and those in which it was certainly behind: the device had finished what was dispatched
last.
"""

MOST_ROWS = 64
"""Of a rank; an agent keeps fewer."""

_DIGITS = 7


class SharedFunction(Fact):
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


class RankLoop(Fact):
    """A loop that the program marks: its steps, and the age of the latest."""

    name: str = ""
    steps: int = 0
    age_seconds: float | None = None


class CallPause(Fact):
    """Seconds since the latest call of these functions, and a usual pause of them."""

    age_seconds: float | None = None
    usual_seconds: float = 0.0


class RunningCompiles(Fact):
    """Compiles in progress: their number, and age and function of the oldest."""

    count: int = 0
    seconds: float = 0.0
    function: str = ""


class RecentLine(Fact):
    """A line where a rank was lately, in what state, and for how much of the time."""

    state: str = ""
    place: str = ""
    activity: str = ""
    ratio: float = 0.0


class Rank(Fact):
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
        course: what its time went into, by call: rows of `COLUMNS`, each as text.
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
    pace: CallPause = CallPause()
    now: Now = Now()
    compiling: RunningCompiles = RunningCompiles()
    starved_ratio: float | None = None
    course: Any = ()
    alone: str = ""
    places: tuple[RecentLine, ...] = ()
    gpus: tuple[str, ...] = ()
    setup: Mapping[str, str] = NOTHING
    key_part: str = ""
    worker: str = ""
    since_seconds: float = 0.0
    trouble: str = ""
    stopped: bool = False
    ended: str = ""
    ended_seconds: float = 0.0
    closed_seconds: float | None = None
    words: ProcessEnd = ProcessEnd()
    oom_kills: int | None = None
    host_oom_kills: int | None = None

    by_name = ("loops", "functions")

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
        for of in self.functions:
            if of.name == function:
                return of.calls
        return 0 if self.functions else None

    def fingerprint(self, function: str) -> str:
        """Return that of its latest program of *function*, empty if unknown."""
        shared = [of for of in self.functions if of.name == function]
        return shared[0].fingerprint if shared else ""

    def __str__(self) -> str:
        """Return its number, host and process."""
        return f"rank {self.index} ({self.host}, pid {self.pid})"
