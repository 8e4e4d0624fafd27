"""Runs as their summaries and records have them, of which a test changes facts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmon.agent.goodput.part import Accounts, Progress
from jaxmon.agent.goodput.store import AttemptIdentity, ClockPair, Writer, begun
from jaxmon.facts.run import RunRecord
from jaxmon.screens.runs import Facts, Run, build, parse


VERSIONS = {"jax": "0.10.2", "platform": "gpu", "device": "H100", "processor": "cpu0"}


def spread(middle: float, count: int = 50, noise: float = 0.1) -> dict[str, float]:
    """Return times around *middle* seconds, *noise* of it to either side."""
    low, high = middle * (1 - noise), middle * (1 + noise)
    return {"count": count, "low": low, "middle": middle, "high": high}


def function(**facts: Any) -> dict[str, Any]:
    """Return a function of a program that was called a thousand times."""
    return {
        "place": "train.py:7",
        "calls": 1000,
        "hits": 999,
        "misses": 1,
        "compiles": {"compiled": 1},
        "phases": {"backend_compile": {"seconds": 1.0}},
        "program": {"programs": 1, "fingerprint": "a", "flops": 1e6},
        "spreads": {"execution": spread(0.01), "dispatch": spread(0.0001)},
        **facts,
    }


def facts(
    functions: Mapping[str, Any],
    *,
    events: Any = (),
    versions: Mapping[str, str] = VERSIONS,
    **overview: Any,
) -> Facts:
    """Return what an agent reports on a program with *functions*."""
    process = {"pid": 7, "program": "python train.py", "now": 2e9, "started": 2e9 - 60}
    usual = {"waiting": 0.01, "work": spread(0.0002)}
    return Facts(
        overview={
            "process": {**process, "observed_seconds": 60.0, "jax": "0.10.2"},
            "functions": functions,
            "usual": usual,
            **overview,
        },
        events={"events": list(events)},
        environment={"versions": versions, "packages": {"jax": "0.10.2"}},
        families=(),
        host="host-1",
        worker="0",
        state="finished",
    )


def run(functions: Mapping[str, Any], **others: Any) -> Run:
    """Return the run that a reader of that summary sees."""
    return parse(build(facts(functions, **others)))


HOUR = 3600.0
# Two days, 12 failures 4 h apart, a save of 30 s each half hour.
HEALTHY: dict[str, Any] = {
    "step": 42 * HOUR,
    "data_wait": 1 * HOUR,
    "compile": 1.2 * HOUR,
    "checkpoint": 0.8 * HOUR,
    "startup": 0.2 * HOUR,
    "recovery": 1.5 * HOUR,
    "lost_progress": 1.3 * HOUR,
    "waiting": 2 * HOUR,
}
RECORD = RunRecord(
    schema=1,
    run="llama",
    writer="boot/7/1",
    host="host-1",
    starts=13,
    time=1000.0,
    seconds=HEALTHY,
    interruptions={"killed": 10, "crashed": 2},
    furthest=43_000,
    marked=True,
    saves=96,
    lost_steps=1_300,
    resumes=12,
    resume_seconds=4 * HOUR,
)


def long_run(seconds: dict[str, float] | None = None, **changes: Any) -> RunRecord:
    """Return a healthy record of which some seconds, and other fields, differ."""
    return RECORD.replace(seconds={**HEALTHY, **(seconds or {})}, **changes)


RUN = AttemptIdentity("train", None, Path("/nowhere"))


def writer(number: int, boot: str = "boot") -> Writer:
    """Return a process that does not run."""
    return Writer(boot, 4_000_000 + number, str(number))


class Simulated:
    """A run whose clocks and steps are made up."""

    def __init__(self) -> None:
        self.wall, self.boottime = 1_000_000.0, 500.0
        self.record: RunRecord | None = None
        self.attempts = 0
        self.wall_time = 0.0

    def attempt(self, **changes: Any) -> None:
        """Begin another one, in a process that starts now."""
        self.attempts += 1
        me = writer(self.attempts, changes.pop("boot", "boot"))
        run = RUN._replace(**changes)
        now = ClockPair(self.wall, self.boottime)
        self.record = begun(self.record, run, me, host="host", now=now, age=0.0)
        self._account(continues=False)

    def resume(self, start: int | None, steps: int) -> None:
        """Begin an attempt, which does so many *steps* from *start* on, 1 s each."""
        self.attempt()
        self.start(start)
        self.do(float(steps), "step", steps=steps)

    def again(self) -> None:
        """Start another agent in the same process."""
        me = writer(self.attempts)
        now = ClockPair(self.wall, self.boottime)
        self.record = begun(self.record, RUN, me, host="host", now=now, age=0.0)
        self._account(continues=True)

    def _account(self, *, continues: bool) -> None:
        self.accounts = Accounts(self.known, continues=continues)
        self.spent: dict[str, float] = {}
        self.steps = 0
        self.numbered: list[tuple[int, int]] = []
        self.looped = False
        self.late = 0.0
        self.saves = 0
        self.works = False

    def start(self, number: int | None) -> None:
        """Begin the loop at a step."""
        self.looped = True
        if number is not None:
            self.numbered.append((self.steps, number))

    def do(self, seconds: float, activity: str = "", *, steps: int = 0) -> None:
        """Let time go by, and the record with it."""
        self.wait(seconds)
        if activity:
            self.spent[activity] = self.spent.get(activity, 0.0) + seconds
        self.steps += steps
        numbered, self.numbered = self.numbered, []
        progress = Progress("train", self.steps, numbered, 0.0, running=True)
        now = ClockPair(self.wall, self.boottime)
        given = progress if self.looped else None
        self.accounts.advance(
            now,
            self.spent,
            given,
            late=self.late,
            saves=self.saves,
            works=self.works and given is None,
        )
        self.record = self.accounts.record

    def wait(self, seconds: float) -> None:
        """Let time go by unseen."""
        self.wall += seconds
        self.boottime += seconds

    @property
    def known(self) -> RunRecord:
        assert self.record is not None
        return self.record
