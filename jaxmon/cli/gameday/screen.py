"""Drills on a terminal: a line for each, which rich redraws in place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from jaxmon.cli import output
from jaxmon.cli.demo.lines import clock
from jaxmon.cli.gameday.drill import Drill, Phase
from jaxmon.cli.gameday.lines import progress
from jaxmon.formats.layout import INDENT


_NAME = 16
# The line below the drills, and the one that the cursor is on.
_BESIDE = 2
_STYLES = {
    Phase.WAITING: "dim",
    Phase.STARTING: "dim",
    Phase.BROKEN: "yellow",
}


class Screen:
    """
    Draws below what the terminal shows, and leaves the last state there.

    Args:
        console: to draw on.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._began = time.monotonic()
        self._console = console or Console()
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="visible",
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, drills: Sequence[Drill]) -> None:
        """Draw the current state."""
        self._live.update(self.drawn(drills), refresh=True)

    def drawn(self, drills: Sequence[Drill]) -> Group:
        """Return the current state, in no more lines than the terminal has."""
        room = max(self._console.height - _BESIDE, 1)
        shown = drills
        if len(drills) > room:
            # A terminal cannot redraw what has left it: those that change, then.
            shown = [one for one in drills if _is_running(one)][:room]
        return Group(*map(_line, shown), self._foot(drills))

    def _foot(self, drills: Sequence[Drill]) -> Text:
        elapsed = clock(time.monotonic() - self._began)
        done = sum(one.result.outcome is not None for one in drills)
        text = f"{INDENT}{elapsed}   {done} of {len(drills)} done   Ctrl-C stops"
        return Text(text, "dim", no_wrap=True)


def _is_running(drill: Drill) -> bool:
    return drill.phase not in (Phase.WAITING, Phase.DONE)


def _line(drill: Drill) -> Text:
    mark, style = _mark(drill)
    name = f"{drill.scenario.name:<{_NAME}}"
    return Text.assemble(
        INDENT,
        (mark, style),
        " ",
        (name, "bold"),
        # rich lets control characters through.
        (output.safe(progress(drill)), style if mark != "✓" else ""),
        no_wrap=True,
        overflow="ellipsis",
    )


def _mark(drill: Drill) -> tuple[str, str]:
    """Return a sign for the state of *drill*, and its style."""
    if drill.result.outcome == "passed":
        return "✓", "green"
    if drill.result.outcome is not None:
        return "✗", "red"
    return " ", _STYLES.get(drill.phase, "")
