"""
A block of text that is drawn again in place, on a terminal of any width.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TextIO


_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_END_OF_LINE, _END_OF_SCREEN = "\x1b[K", "\x1b[J"


def is_terminal(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """
    Tell whether *stream* is a terminal that can be drawn on.
    """
    environ = os.environ if environ is None else environ
    return stream.isatty() and environ.get("TERM", "dumb") != "dumb"


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """
    Tell whether *stream* is such a terminal and its user did not turn colours off.
    """
    environ = os.environ if environ is None else environ
    return is_terminal(stream, environ) and not environ.get("NO_COLOR")


class Screen:
    """
    Draws lines over the ones it drew before; a ``with`` block ends below them.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._height = 0

    def size(self) -> tuple[int, int]:
        """
        Return columns and lines to draw in.
        """
        columns, lines = shutil.get_terminal_size((80, 24))
        return columns, lines

    def draw(self, lines: Sequence[str]) -> None:
        """
        Show *lines*, which fit the terminal, instead of those shown before.
        """
        up = f"\x1b[{self._height}A" if self._height else ""
        body = "".join(f"{line}{_END_OF_LINE}\n" for line in lines)
        self._stream.write(f"{up}\r{body}{_END_OF_SCREEN}")
        self._stream.flush()
        self._height = len(lines)

    def __enter__(self) -> Self:
        self._stream.write(_HIDE_CURSOR)
        self._stream.flush()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stream.write(_SHOW_CURSOR)
        self._stream.flush()
