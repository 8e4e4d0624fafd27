"""
Random moments at which another thread has the interpreter.

A thread that waits for the interpreter gets it 5 ms later, or as soon as the other one
waits for something. In a loop with short stretches of Python that is nearly always at
the same line: where the stretch ends. So that a look finds the line that runs, the
interpreter is asked for again at random moments, and handed over within a tenth of a
millisecond. That must be shorter than the time between two calls that give it up for an
instant, such as writes to a file: each of them lets the wait begin anew, and only a
long one ends it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from time import sleep

from jaxmon.agent.walltime.tasks import times_slept


_LONGEST = 0.01
_ATTEMPTS = 4
_HAND_OVER = 0.0001


class Moments:
    """Waits for such moments; for one thread."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - spreads moments, hides nothing
        self._usual: float | None = None

    def wait(self, begin: Callable[[], None]) -> bool:
        """
        Wait for a moment, at most 40 ms, and return whether there was one. Until then
        threads hand over the interpreter every tenth of a millisecond.

        Args:
            begin: called at most 10 ms before the moment.
        """
        self.hurry()
        try:
            for _ in range(_ATTEMPTS):
                slept = times_slept()
                begin()
                sleep(self._random.uniform(0, _LONGEST))
                # Once until then, and again for the interpreter.
                if times_slept() > slept + 1:
                    return True
            return False
        finally:
            self.restore()

    def hurry(self) -> None:
        """Let threads hand over sooner, if they take longer."""
        usual = sys.getswitchinterval()
        if usual > _HAND_OVER:
            self._usual = usual
            sys.setswitchinterval(_HAND_OVER)

    def restore(self) -> None:
        """Let threads hand over as usual; to be called in a forked child, too."""
        usual, self._usual = self._usual, None
        # The program may have set another interval meanwhile.
        if usual is not None and _nearly(sys.getswitchinterval(), _HAND_OVER):
            sys.setswitchinterval(usual)


def _nearly(one: float, other: float) -> bool:
    # Kept in whole microseconds.
    return abs(one - other) < 2e-6  # noqa: PLR2004
