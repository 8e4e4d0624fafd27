"""What the demo shows on a terminal: tables that rich redraws in place."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from jaxmon.cli import output
from jaxmon.cli.demo.lines import (
    LEAST_HEIGHT,
    MOST_ALERTS,
    DisplayState,
    Overview,
    Row,
    Table,
    alerts,
    clock,
    finish,
    overview,
    runbook,
)
from jaxmon.formats.layout import INDENT


_HEADING, _QUIET, _WARNING = "bold", "dim", "yellow"


class Screen:
    """
    Draws on the alternate screen; the terminal's previous content is restored.

    Args:
        places: URL or command, by what it shows.
        duration: in seconds; `None` means until Ctrl-C.
        console: to draw on.
    """

    def __init__(
        self,
        places: Mapping[str, str],
        duration: float | None,
        console: Console | None = None,
    ) -> None:
        self._places = places
        self._duration = duration
        self._console = console or Console()
        # Only `show` draws, and the output of other code is not redirected.
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
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

    def show(self, scene: DisplayState) -> None:
        """Draw the current values."""
        self._live.update(self._drawn(scene), refresh=True)

    def finish(self, scene: DisplayState) -> None:
        """Print the last values below the terminal's previous content."""
        self._live.stop()
        finish(scene, width=self._console.width)

    def _drawn(self, scene: DisplayState) -> Group:
        width, height = self._console.size
        time = f"  {clock(scene.elapsed)}"
        if self._duration is not None:
            time += f" of {clock(self._duration)}"
        above = [*self._where(width), _text(), _text(f"{time}   Ctrl-C stops", _QUIET)]
        if scene.fault:
            above.append(_text(f"  {scene.fault}", _WARNING))
        room = height - len(above)
        below: list[RenderableType] = []
        if scene.alerts is not None:
            # In addition: a blank line, the heading, how many more, what to do.
            most = min(MOST_ALERTS, max(room - LEAST_HEIGHT - 4, 1))
            below, taken = _alerts(scene, width, most)
            room -= taken
        return Group(*above, *_overview(scene, width, room), *below)

    def _where(self, width: int) -> list[Text]:
        """
        Return lines that name the places, with those that are too long for *width*
        below their names: half of a command is another one.
        """
        lines: list[Text] = []
        for name, place in self._places.items():
            line = f"{INDENT}{name:<18}{place}"
            if len(line) <= width:
                lines.append(_text(line))
            else:
                lines += [_text(f"{INDENT}{name}"), _text(f"    {place}")]
                lines[-1].no_wrap = False
        return lines


def _overview(scene: DisplayState, width: int, height: int) -> list[RenderableType]:
    shown: Overview = overview(scene.summary, width=width, height=height)
    totals = [
        Text.assemble(
            *(
                part
                for label, value in line
                for part in (INDENT, _text(label, _QUIET), " ", _text(value, _HEADING))
            ),
            no_wrap=True,
        )
        for line in shown.totals
    ]
    devices = [_text(), *map(_text, shown.devices)] if shown.devices else []
    return [*totals, _text(), _table(shown.functions, width), *devices]


def _alerts(
    scene: DisplayState, width: int, most: int
) -> tuple[list[RenderableType], int]:
    """Return the alerts, and how many lines they take."""
    if not scene.alerts:
        return [_text(), _text(f"{INDENT}no alerts", _QUIET)], 2
    shown = alerts(scene.alerts, width=width, most=most)
    hint = Text.assemble(
        INDENT, ("runbook: ", _QUIET), _text(runbook(scene.alerts)), no_wrap=True
    )
    return [_text(), _table(shown, width), hint], len(shown.rows) + 3


def _table(table: Table, width: int) -> RichTable:
    """Return *table* over all of *width*, each column as wide as it says."""
    left = width - len(INDENT) - sum(one.size for one in table.columns)
    drawn = RichTable(box=None, padding=0, pad_edge=False, header_style=_HEADING)
    drawn.add_column("", width=len(INDENT))
    for column in table.columns:
        drawn.add_column(
            _text(column.heading),
            width=column.size or max(left, 1),
            justify="right" if column.right else "left",
            no_wrap=True,
        )
    for row in table.rows:
        drawn.add_row("", *_cells(table, row, left), style=_QUIET if row.quiet else "")
    return drawn


def _cells(table: Table, row: Row, left: int) -> list[Text]:
    return [
        _text(
            # A gap between columns is part of the one that is cut.
            column.cut(cell, max((column.size or left) - 1, 1)),
            _WARNING if column.heading == row.warning else "",
        )
        for column, cell in zip(table.columns, table.cells(row), strict=True)
    ]


def _text(text: str = "", style: str = "") -> Text:
    """Return *text* on one line, harmless: rich lets control characters through."""
    return Text(output.safe(text), style, no_wrap=True, overflow="ellipsis")
