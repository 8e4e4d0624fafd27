"""Shows drills while they run."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Protocol

from jaxmon.cli import output
from jaxmon.cli.demo.lines import clock
from jaxmon.cli.gameday.drill import Drill, Phase
from jaxmon.cli.gameday.lines import progress


class View(Protocol):
    """Shows drills, again and again."""

    def show(self, drills: Sequence[Drill]) -> None:
        """Show how they are now."""


class Log:
    """A line whenever something changed, for output that cannot be redrawn."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown: dict[str, str] = {}

    def show(self, drills: Sequence[Drill]) -> None:
        """Print the drills that changed."""
        elapsed = clock(time.monotonic() - self._began)
        for drill in drills:
            name, text = drill.scenario.name, progress(drill)
            if drill.phase is not Phase.WAITING and self._shown.get(name) != text:
                self._shown[name] = text
                output.line(f"  {elapsed}  {name:<16}{text}")


def view() -> AbstractContextManager[View]:
    """
    Return a view that suits stdout: a screen, or plain lines if that is impossible.
    """
    if output.is_terminal(sys.stdout) and find_spec("rich") is not None:
        from jaxmon.cli.gameday.screen import Screen

        return Screen()
    return nullcontext(Log())
