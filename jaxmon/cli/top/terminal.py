"""
A terminal that is drawn on: its mode, its keys, and only what changed.

Whatever ends the block, the terminal is as it was; also while the program is stopped
by Ctrl-Z.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeAlias

from jaxmon.cli import output
from jaxmon.cli.top.lines import Line
from jaxmon.errors import CommandError
from jaxmon.host.formats.layout import columns


_Cell: TypeAlias = tuple[str, str]

_EMPTY: _Cell = (" ", "")
# The alternate screen, without a cursor and without lines that wrap; and back.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[0m\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_ATTRIBUTES = {"bold": "1", "dim": "2", "reverse": "7"}
_COLOURS = {"red": "31", "green": "32", "yellow": "33"}
# To skip fewer unchanged cells takes more bytes than to draw them.
_LEAST_SKIPPED = 8
# Bytes of one key may arrive one by one.
_ESCAPE_SECONDS = 0.1
_ESCAPES = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "[H": "home",
    "[F": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "pageup",
    "[6~": "pagedown",
    "[7~": "home",
    "[8~": "end",
    "OA": "up",
    "OB": "down",
    "OC": "right",
    "OD": "left",
    "OH": "home",
    "OF": "end",
}
_CONTROLS = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x0c": "redraw",
    "\x04": "q",
}


class Terminal:
    """
    The terminal of standard input and output.

    Raises:
        CommandError: it is none, or cannot be drawn on.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        if not output.is_terminal(sys.stdout, environ) or not sys.stdin.isatty():
            msg = (
                "needs a terminal that can be drawn on; `jaxmon ps` and "
                "`jaxmon explain --watch` do not"
            )
            raise CommandError(msg)
        self.plain = "utf" not in (sys.stdout.encoding or "").lower()
        self._colours = output.has_colours(environ)
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._encoding = sys.stdout.encoding or "ascii"
        self._wake_end, self._wake_start = os.pipe()
        os.set_blocking(self._wake_start, False)
        os.set_blocking(self._wake_end, False)
        self._mode: list[Any] = termios.tcgetattr(self._in)
        self._handlers: dict[int, Any] = {}
        self._shown: list[list[_Cell]] = []
        self._size = (0, 0)
        self.written = 0

    def __enter__(self) -> Self:
        for number, handler in (
            (signal.SIGWINCH, self._resized),
            (signal.SIGTSTP, self._suspended),
        ):
            self._handlers[number] = signal.signal(number, handler)
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._end()
        os.close(self._wake_start)
        os.close(self._wake_end)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        found = shutil.get_terminal_size()
        with suppress(OSError):  # it is gone
            found = os.get_terminal_size(self._out)
        return max(found.columns, 1), max(found.lines, 1)

    def wake(self) -> None:
        """Have `keys` return; thread-safe, also in a signal handler."""
        with suppress(OSError):  # it will, or there is none any more
            os.write(self._wake_start, b"\0")

    def keys(self, seconds: float) -> list[str]:
        """
        Return the keys that are pressed within *seconds*, as soon as there are some, or
        if `wake` is called.

        Raises:
            EOFError: the terminal is gone.
        """
        ready, _, _ = select.select([self._in, self._wake_end], [], [], seconds)
        if self._wake_end in ready:
            os.read(self._wake_end, 4096)
        return self._pressed() if self._in in ready else []

    def redraw(self) -> None:
        """Draw everything with the next frame."""
        self._size = (0, 0)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show *lines*; what is there already costs nothing."""
        width, height = self.size
        parts = []
        if self._size != (width, height):
            self._size = (width, height)
            self._shown = [[_EMPTY] * width for _ in range(height)]
            parts.append("\x1b[0m\x1b[2J")
        for row in range(height):
            new = _cells(lines[row] if row < len(lines) else (), width)
            parts += self._changes(row, self._shown[row], new)
            self._shown[row] = new
        if parts:
            self._write("".join([*parts, "\x1b[0m"]))

    def _changes(
        self, row: int, old: Sequence[_Cell], new: Sequence[_Cell]
    ) -> list[str]:
        """Return what turns *old* into *new*, both of the same width."""
        parts: list[str] = []
        for first, last in _runs(old, new):
            parts.append(f"\x1b[{row + 1};{first + 1}H")
            style = None
            for text, its in new[first:last]:
                if its != style:
                    style = its
                    parts.append(self._escape(its))
                parts.append(text)
        return parts

    def _escape(self, style: str) -> str:
        codes = ["0"]
        for name in style.split():
            if name in _ATTRIBUTES:
                codes.append(_ATTRIBUTES[name])
            elif self._colours and name in _COLOURS:
                codes.append(_COLOURS[name])
        return f"\x1b[{';'.join(codes)}m"

    def _pressed(self) -> list[str]:
        data = os.read(self._in, 1024)
        if not data:
            raise EOFError
        while data.endswith((b"\x1b", b"\x1b[", b"\x1bO")):
            more, _, _ = select.select([self._in], [], [], _ESCAPE_SECONDS)
            if not more:
                break
            data += os.read(self._in, 1024)
        return parsed(data.decode("utf-8", "replace"))

    def _begin(self) -> None:
        tty.setcbreak(self._in)
        self._write(_ENTER)
        self.redraw()

    def _end(self) -> None:
        with suppress(OSError, termios.error):  # it is gone
            self._write(_LEAVE)
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._mode)

    def _resized(self, *_: object) -> None:
        self.wake()

    def _suspended(self, *_: object) -> None:
        self._end()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()
        self.wake()

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        self.written += len(data)
        while data:
            data = data[os.write(self._out, data) :]


def parsed(text: str) -> list[str]:
    """Return the keys whose codes *text* has; unknown ones are omitted."""
    found, rest = [], text
    while rest:
        if rest[0] == "\x1b":
            end = _sequence_end(rest)
            name = "esc" if end == 1 else _ESCAPES.get(rest[1:end], "")
            rest = rest[end:]
        else:
            name = _CONTROLS.get(rest[0], rest[0] if rest[0].isprintable() else "")
            rest = rest[1:]
        if name:
            found.append(name)
    return found


def _sequence_end(text: str) -> int:
    """Return where the escape sequence ends that *text* begins with."""
    if len(text) == 1 or text[1] not in "[O":
        return 1
    for place in range(2, len(text)):
        if "@" <= text[place] <= "~":
            return place + 1
    return len(text)


def _cells(line: Line, width: int) -> list[_Cell]:
    """Return *line* in *width* cells; a wide character is followed by an empty one."""
    cells: list[_Cell] = []
    for text, style in line:
        for one in text:
            wide = columns(one) > 1
            if len(cells) + 1 + wide > width:
                break
            cells += [(one, style), ("", style)] if wide else [(one, style)]
    return cells + [_EMPTY] * (width - len(cells))


def _runs(old: Sequence[_Cell], new: Sequence[_Cell]) -> list[tuple[int, int]]:
    """Return from where to where *new* differs from *old*."""
    runs: list[tuple[int, int]] = []
    for place, (before, after) in enumerate(zip(old, new, strict=True)):
        if before == after:
            continue
        # The second half of a wide character is drawn with the first.
        first = place - 1 if not after[0] else place
        if runs and first - runs[-1][1] < _LEAST_SKIPPED:
            runs[-1] = runs[-1][0], place + 1
        else:
            runs.append((first, place + 1))
    return runs
