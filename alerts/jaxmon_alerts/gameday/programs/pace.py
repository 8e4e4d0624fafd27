"""Pacing, shutdown and fault injection for the demo programs."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

import jaxmon
from jaxmon_alerts.gameday.scenarios import SCENARIOS, Program


class ProgramPace:
    """
    Ticks that the command line and signals govern.

    SIGUSR1 begins the fault that ``--fault`` names, one of the *program*'s, and SIGUSR2
    ends it; with ``--broken`` it begins with the program. SIGTERM ends the program, as
    does the end of ``--seconds``. Each `rest` takes *pause* seconds.
    """

    def __init__(
        self, program: Program, description: str | None, *, pause: float
    ) -> None:
        faults = [
            scenario.name for scenario in SCENARIOS if scenario.program == program
        ]
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument(
            "--seconds", type=float, help="seconds to run; default: forever"
        )
        parser.add_argument("--fault", choices=faults, help="fault that SIGUSR1 starts")
        parser.add_argument(
            "--broken", action="store_true", help="start with the fault"
        )
        arguments = parser.parse_args()
        self._seconds: float = arguments.seconds or float("inf")
        self._fault: str | None = arguments.fault
        self._pause = pause
        self._broken: bool = arguments.broken
        signal.signal(signal.SIGTERM, lambda *_: _end())
        signal.signal(signal.SIGUSR1, lambda *_: self._break(broken=True))
        signal.signal(signal.SIGUSR2, lambda *_: self._break(broken=False))

    def __iter__(self) -> Iterator[int]:
        """Count from 1 until the end."""
        end = time.monotonic() + self._seconds
        tick = 0
        while time.monotonic() < end:
            tick += 1
            yield tick

    def rest(self) -> None:
        """Leave the machine to others: nothing here is worth a core."""
        with jaxmon.activity("rest"):
            time.sleep(self._pause)

    def may_suffer(self, fault: str) -> bool:
        """Return whether *fault* is the one that signals begin and end."""
        return self._fault == fault

    def suffers(self, fault: str) -> bool:
        """Return whether *fault* is active."""
        return self._broken and self._fault == fault

    def _break(self, *, broken: bool) -> None:
        self._broken = broken


def _end() -> NoReturn:
    """Exit; a second signal does not wait for cleanup."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(0)
