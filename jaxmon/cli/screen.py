"""A block of text that is drawn again in place, on a terminal of any width."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TextIO

from jaxmon.report.layout import clean


_LEAST_WIDTH, _MOST_WIDTH = 80, 120
# A line that is wrapped by mistake would scroll the others away.
_BEGIN = "\x1b[?25l\x1b[?7l"
_END = "\x1b[?25h\x1b[?7h"
_CLEAR_LINE, _CLEAR_BELOW, _CLEAR_ALL = "\x1b[K", "\x1b[J", "\x1b[2J\x1b[H"
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def is_terminal(
    stream: TextIO | None, environ: Mapping[str, str] | None = None
) -> bool:
    """
    Tell whether *stream* is a terminal that can be drawn on; one that was closed before
    Python started is `None`.
    """
    environ = os.environ if environ is None else environ
    if stream is None or not stream.isatty():
        return False
    return environ.get("TERM", "dumb") != "dumb"


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """
    Tell whether *stream* is such a terminal and its user did not turn colours off.
    """
    environ = os.environ if environ is None else environ
    return is_terminal(stream, environ) and not environ.get("NO_COLOR")


def report_width() -> int:
    """
    Return the columns of a report: those of the terminal, if from 80 to 120, for
    which tables are made.
    """
    return min(max(shutil.get_terminal_size().columns, _LEAST_WIDTH), _MOST_WIDTH)


def cut(line: str, columns: int) -> str:
    """Return what of *line* fits into *columns*, all its colours included."""
    if len(_COLOUR.sub("", line)) <= columns:
        return line
    left, kept = columns - 1, ""
    for number, piece in enumerate(_COLOUR.split(line)):
        if number % 2:
            kept += piece
        elif left > 0:
            kept += piece[:left]
            left -= len(piece)
            kept += "…" if left <= 0 else ""
    return kept


def _harmless(line: str) -> str:
    """Return *line* with nothing that moves the cursor; colours stay."""
    pieces = _COLOUR.split(line)
    pieces[::2] = map(clean, pieces[::2])
    return "".join(pieces)


class Screen:
    """Draws lines over the ones it drew before; a ``with`` block ends below them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._height = 0
        self._size = self.size()

    def size(self) -> tuple[int, int]:
        """Return columns and lines to draw in."""
        columns, lines = shutil.get_terminal_size()
        return columns, lines

    def draw(self, lines: Sequence[str]) -> None:
        """Show *lines* instead of those shown before; what does not fit is cut."""
        start = f"\x1b[{self._height}A\r" if self._height else ""
        if self._size != (size := self.size()):
            # The terminal has moved the old lines: nobody knows where they are.
            self._size, start = size, _CLEAR_ALL
        columns, rows = size
        shown = [cut(_harmless(line), columns) for line in lines[: max(rows - 1, 1)]]
        body = "".join(f"{_CLEAR_LINE}{line}\n" for line in shown)
        self._write(f"{start}{body}{_CLEAR_BELOW}")
        self._height = len(shown)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def __enter__(self) -> Self:
        self._write(_BEGIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._write(_END)
