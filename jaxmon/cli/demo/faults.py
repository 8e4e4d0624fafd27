"""Something that goes wrong in the demo, for a while."""

from __future__ import annotations

import signal

from jaxmon.cli.demo.children import Child
from jaxmon.cli.demo.lines import clock


PLACES = {
    "errors": "serving",
    "oom": "serving",
    "recompile": "serving",
    "stall": "training",
}
"""In which of the demo's programs each fault is."""

_MEANING = {
    "errors": "requests fail",
    "oom": "a feature of the server asks for more memory than there is",
    "recompile": "each request comes in a shape of its own",
    "stall": "the training loop waits for data that do not come",
}


class Fault:
    """
    A fault of the program that it is sent to, as signals.

    Args:
        name: one of `PLACES`.
        after: seconds until it begins.
        lasting: seconds for which it lasts.
    """

    def __init__(self, name: str, *, after: float, lasting: float) -> None:
        self.name = name
        self._begin, self._end = after, after + lasting
        self._applied = False

    @property
    def place(self) -> str:
        """The name of the program that it concerns."""
        return PLACES[self.name]

    def apply(self, child: Child, elapsed: float) -> None:
        """Tell *child* what is due, *elapsed* seconds after the start."""
        if (broken := self.lasts(elapsed)) != self._applied:
            self._applied = broken
            number = signal.SIGUSR1 if broken else signal.SIGUSR2
            child.process.send_signal(number)

    def lasts(self, elapsed: float) -> bool:
        """Tell whether it has begun and not ended."""
        return self._begin <= elapsed < self._end

    def told(self, elapsed: float) -> str:
        """Say what is the matter now."""
        if elapsed < self._begin:
            return f"fault {self.name} begins in {clock(self._begin - elapsed)}"
        if self.lasts(elapsed):
            left = clock(self._end - elapsed)
            return f"fault {self.name}: {_MEANING[self.name]}; ends in {left}"
        return f"fault {self.name} ended {clock(elapsed - self._end)} ago"
