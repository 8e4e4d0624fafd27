"""A run whose time passes as a test says, and the record of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxmon.agent.goodput.accounts import Accounts, Progress
from jaxmon.agent.goodput.identity import AttemptIdentity, ClockPair, Writer
from jaxmon.agent.goodput.store import begun
from jaxmon.facts.run import RunRecord


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
        """The record."""
        assert self.record is not None
        return self.record
