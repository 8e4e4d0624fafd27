"""What the demo shows while it runs: a table drawn in place, or a line now and then."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from jaxmon.cli import active, output
from jaxmon.cli.active import ActiveAlert
from jaxmon.cli.overview import LEAST_HEIGHT, Style, clock, one_line, table
from jaxmon.cli.screen import Screen, is_terminal, wants_colour


if TYPE_CHECKING:
    from jaxmon_exporter.summary import Summary

_SNAPSHOT_SECONDS = 10.0
_WIDTH, _HEIGHT = 80, 24


@dataclass(frozen=True, slots=True)
class Scene:
    """
    What there is to show at one moment.

    Attributes:
        elapsed: seconds since the start.
        summary: what the sidecar knows.
        alerts: those that are active; `None` where nobody watches for them.
        fault: what is wrong or will be, as a phrase; empty where nothing ever is.
        broken: whether it is wrong now.
    """

    elapsed: float
    summary: Summary
    alerts: Sequence[ActiveAlert] | None = None
    fault: str = ""
    broken: bool = False


class View(Protocol):
    """Shows scenes, one after the other."""

    def show(self, scene: Scene) -> None:
        """Show what is now."""

    def finish(self, scene: Scene) -> None:
        """Show what was last, so that it stays."""


def view(
    places: Mapping[str, str], duration: float | None
) -> AbstractContextManager[View]:
    """
    Return what suits stdout.

    Args:
        places: URL or command, by what else there is to look at.
        duration: seconds to show; `None` for until Ctrl-C.
    """
    if is_terminal(sys.stdout):
        return _Live(places, duration)
    return nullcontext(_Log(places))


class _Live(Screen):
    """A table that is drawn in place."""

    def __init__(self, places: Mapping[str, str], duration: float | None) -> None:
        super().__init__(sys.stdout)
        self._places = places
        self._duration = duration
        self._style = Style(colour=wants_colour(sys.stdout))

    def show(self, scene: Scene) -> None:
        """Draw the figures of now."""
        width, height = self.size()
        style = self._style
        time = f"  {clock(scene.elapsed)}"
        if self._duration is not None:
            time += f" of {clock(self._duration)}"
        above = [*_where(self._places, width), "", style.quiet(f"{time}   Ctrl-C ends")]
        if scene.fault:
            above.append(style.warning(f"  {scene.fault}"))
        room = height - len(above) - 1
        below: list[str] = []
        if scene.alerts is not None:
            # Beside them: a blank line, heading, how many more, what to do.
            most = max(room - LEAST_HEIGHT - 4, 1)
            below = [
                "",
                *active.lines(scene.alerts, width=width, style=style, most=most),
            ]
            room -= len(below)
        figures = table(scene.summary, width=width, height=room, style=style)
        self.draw([*above, *figures, *below])

    def finish(self, scene: Scene) -> None:
        """Draw the last figures; they stay on the screen."""
        self.show(scene)


class _Log:
    """A line now and then, where nothing can be drawn in place."""

    def __init__(self, places: Mapping[str, str]) -> None:
        output.lines(_where(places))
        self._next = 0.0
        self._told: set[str] = set()
        self._broken = False

    def show(self, scene: Scene) -> None:
        """
        Print a line when one is due, and when the fault or an alert comes or goes.
        """
        time = clock(scene.elapsed)
        due = scene.elapsed >= self._next
        if due:
            self._next = scene.elapsed + _SNAPSHOT_SECONDS
            output.line(f"  {time}  {one_line(scene.summary)}")
        if scene.fault and (due or scene.broken != self._broken):
            output.line(f"  {time}  {scene.fault}")
        self._broken = scene.broken
        told = [one.told for one in scene.alerts or ()]
        for one in told:
            if one not in self._told:
                output.line(f"  {time}  {one}")
        for one in sorted(self._told.difference(told)):
            state, _, rest = one.partition("  ")
            if state == "firing":
                output.line(f"  {time}  resolved  {rest}")
        self._told = set(told)

    def finish(self, scene: Scene) -> None:
        """Print the table, once."""
        output.line()
        output.line(f"  After {clock(scene.elapsed)}")
        style = Style(colour=False)
        output.lines(table(scene.summary, width=_WIDTH, height=_HEIGHT, style=style))
        if scene.alerts:
            output.line()
            output.lines(active.lines(scene.alerts, width=_WIDTH, style=style))


def _where(places: Mapping[str, str], width: int | None = None) -> list[str]:
    """
    Return lines that name *places*, with those that are too long for *width* below
    their names: half of a command is another one.
    """
    lines: list[str] = []
    for name, place in places.items():
        line = f"  {name:<18}{place}"
        if width is None or len(line) <= width:
            lines.append(line)
        else:
            lines += [f"  {name}", f"    {place}"]
    return lines
