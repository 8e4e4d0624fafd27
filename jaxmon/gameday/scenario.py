"""What a scenario of a game day is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal


Means = Literal["signal", "deploy", "redeploy", "crash", "kill", "freeze", "driver"]
"""
How a fault begins and ends.

- ``signal``: SIGUSR1 breaks the program, SIGUSR2 mends it.
- ``deploy``: every process is replaced by a broken one, which SIGUSR2 mends.
- ``redeploy``: the same, but sound ones replace them in turn.
- ``crash``: SIGUSR1 makes it exit with an error; its successors do so at startup.
- ``kill``: SIGKILL; a new process takes its place at the end.
- ``freeze``: SIGSTOP and SIGCONT.
- ``driver``: the stand-in for the GPU driver reports it.
"""

Program = Literal["serve", "train", "fragile", "rank", "sharded", ""]

LOAD = frozenset(
    {
        "JaxmonAgentSilent",
        "JaxmonCompileSlow",
        "JaxmonSlowdown",
        "JaxmonTargetDown",
        "JaxmonTimeLost",
        "JaxmonWarmLatencyBudgetBurn",
    }
)
"""
Alerts about speed, which a machine that runs all of this at once may bring without any
fault: reported, but not held against a scenario.
"""

RESTART = frozenset({"JaxmonServiceVanished"})
"""
Alerts that a restart may bring: it takes seconds, which are minutes to accelerated
rules.
"""

_NAME = re.compile(r"[a-z]+(-[a-z]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """
    One fault, and what it leads to.

    Args:
        name: of the scenario, and of the fault that the program knows.
        guide: what breaks, by its number in the operator's guide; empty if it has none.
        summary: what happens, as a clause without a full stop.
        program: the module of `jaxmon.demo` that breaks; empty for hardware.
        alert: the name of the alert that must report it.
        severity: of that alert, if it has several and only one will do.
        follows: other alerts that are true as well, and may arrive.
        means: how it begins and ends.
        processes: how many run the program.
        environ: further environment variables of the program; ``{directory}`` stands
            for a directory that its processes share.
        broken_environ: those that a redeployed, broken process has instead.
        orders: lines that the stand-in driver obeys while the fault lasts.
        xids: Xid errors that it reports when the fault begins, as device and number.
        usual_for: seconds that it must have run before it breaks, in a stack that is 60
            times as fast as production.

    Raises:
        ValueError: the definition contradicts itself.
    """

    name: str
    guide: str = ""
    summary: str
    program: Program
    alert: str
    severity: Literal["page", "ticket", ""] = ""
    follows: frozenset[str] = frozenset()
    means: Means = "signal"
    processes: int = 1
    environ: tuple[tuple[str, str], ...] = ()
    broken_environ: tuple[tuple[str, str], ...] = ()
    orders: tuple[str, ...] = ()
    xids: tuple[str, ...] = ()
    usual_for: float = 15.0

    def __post_init__(self) -> None:
        for problem in self._problems():
            msg = f"scenario {self.name!r} {problem}"
            raise ValueError(msg)

    @property
    def needs_driver(self) -> bool:
        """Whether it needs a stand-in for the GPU driver."""
        return self.means == "driver"

    @property
    def in_demo(self) -> bool:
        """Whether one process of the demo can have the fault while the others run."""
        alone = self.program in ("serve", "train") and self.processes == 1
        return alone and self.means == "signal" and not self.environ

    def expects(self, alert: str) -> bool:
        """Return whether *alert* may arrive while this is drilled."""
        restarts = self.means in ("deploy", "redeploy", "crash", "kill")
        return alert in {
            *(self.alert, *self.follows, *LOAD),
            *(RESTART if restarts else ()),
        }

    def _problems(self) -> list[str]:
        found = []
        if not _NAME.fullmatch(self.name):
            found.append("has an invalid name; use words in lower case and hyphens")
        if self.summary.endswith("."):
            found.append("has a summary that ends with a full stop; omit it")
        if bool(self.program) == self.needs_driver:
            found.append("needs a program, or the driver; give one of them")
        if bool(self.orders or self.xids) != self.needs_driver:
            found.append("has orders without a driver, or a driver without orders")
        if self.alert in self.follows:
            found.append("lists its alert among those that follow; remove it there")
        return found
