"""A temporary fault in the demo."""

from __future__ import annotations

import signal

from jaxmon.cli.demo.children import Child
from jaxmon.cli.demo.lines import clock
from jaxmon.gameday import BY_NAME, SCENARIOS


_PROGRAMS = {"serve": "serving", "train": "training"}

PLACES = {one.name: _PROGRAMS[one.program] for one in SCENARIOS if one.in_demo}
"""In which of the demo's programs each fault is."""


class Fault:
    """
    A fault, which signals start and end in a program.

    Args:
        name: one of `PLACES`.
        after: seconds until it starts.
        lasting: seconds for which it is_active.
    """

    def __init__(self, name: str, *, after: float, lasting: float) -> None:
        self.name = name
        self._begin, self._end = after, after + lasting
        self._applied = False

    @property
    def place(self) -> str:
        """The name of the affected program."""
        return PLACES[self.name]

    def apply(self, child: Child, elapsed: float) -> None:
        """
        Signal *child* if the fault starts or ends, *elapsed* seconds after startup.
        """
        if (broken := self.is_active(elapsed)) != self._applied:
            self._applied = broken
            number = signal.SIGUSR1 if broken else signal.SIGUSR2
            child.process.send_signal(number)

    def is_active(self, elapsed: float) -> bool:
        """Return whether the fault is active."""
        return self._begin <= elapsed < self._end

    def description(self, elapsed: float) -> str:
        """Describe the current state of the fault."""
        if elapsed < self._begin:
            return f"fault {self.name} starts in {clock(self._begin - elapsed)}"
        if self.is_active(elapsed):
            left = clock(self._end - elapsed)
            return f"fault {self.name}: {BY_NAME[self.name].summary}; ends in {left}"
        return f"fault {self.name} ended {clock(elapsed - self._end)} ago"
