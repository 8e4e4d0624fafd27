"""
A terminal that is drawn on: lines of harmless text, of which only what changed is sent;
its keys. It is restored whatever ends the block, also while Ctrl-Z stops us.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeAlias

from jaxmon.cli import output
from jaxmon.errors import CommandError
from jaxmon.host.formats.layout import columns, shortened


QUIET, STRONG, CHOSEN = "dim", "bold", "reverse"
BAD, DOUBTFUL, GOOD = "red", "yellow", "green"
OF_STATE = {"failing": BAD, "degraded": DOUBTFUL, "fine": GOOD, "unknown": ""}
"""How it looks whether users are all right."""

# The alternate screen, without a cursor and without lines that wrap; and back.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[0m\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_ATTRIBUTES = {STRONG: "1", QUIET: "2", CHOSEN: "7"}
_COLOURS = {BAD: "31", GOOD: "32", DOUBTFUL: "33"}
# Bytes of one key may arrive one by one.
_ESCAPE_SECONDS = 0.1
_LETTERS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
_DIGITS = {"1": "home", "7": "home", "4": "end", "8": "end"}
_PAGES = {"5": "pageup", "6": "pagedown"}
_ESCAPES = {
    **{f"{lead}{code}": key for lead in "[O" for code, key in _LETTERS.items()},
    **{f"[{code}~": key for code, key in {**_DIGITS, **_PAGES}.items()},
}
_CONTROLS = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x0c": "redraw",
    "\x04": "q",
}


class Span(NamedTuple):
    """Text in one style: names joined by spaces, as above."""

    text: str
    style: str = ""


Line: TypeAlias = tuple[Span, ...]
BLANK: Line = ()


def line(*parts: str | tuple[str, str]) -> Line:
    """Return a line of *parts*: texts, or texts with a style. They are sanitised."""
    spans = [Span(part) if isinstance(part, str) else Span(*part) for part in parts]
    return tuple(Span(output.safe(text), style) for text, style in spans if text)


def styled(lines: Iterable[str], style: str = "") -> list[Line]:
    """Return *lines* in one *style*."""
    return [line((text, style)) for text in lines]


def bar(part: float | None, size: int) -> Span:
    """Return a bar that is filled by *part*, from 0 to 1."""
    if part is None:
        return Span("░" * size, QUIET)
    filled = round(min(max(part, 0.0), 1.0) * size)
    return Span("█" * filled + "░" * (size - filled))


def fitted(text: str, room: int) -> str:
    """Return *text*, sanitised, in exactly *room* columns."""
    cut = shortened(output.safe(text), room)
    return cut + " " * (room - columns(cut))


class Terminal:
    """The terminal of standard input and output."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        if not output.is_terminal(sys.stdout, environ) or not sys.stdin.isatty():
            msg = (
                "needs a terminal that can be drawn on; `jaxmon ps` and "
                "`jaxmon explain --watch` do not"
            )
            raise CommandError(msg)
        self._colours = output.has_colours(environ)
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._encoding = sys.stdout.encoding or "ascii"
        self._wake_end, self._wake_start = os.pipe()
        os.set_blocking(self._wake_start, False)
        os.set_blocking(self._wake_end, False)
        self._mode: list[Any] = termios.tcgetattr(self._in)
        self._handlers: dict[int, Any] = {}
        self._shown: list[Line] = []
        self._size = (0, 0)

    def __enter__(self) -> Self:
        resized, stopped = signal.SIGWINCH, signal.SIGTSTP
        self._handlers[resized] = signal.signal(resized, lambda *_: self.wake())
        self._handlers[stopped] = signal.signal(stopped, self._suspended)
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
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
        """Return keys within *seconds*, or once woken. Raises `EOFError`: it ended."""
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
            self._shown = [cells((), width)] * height
            parts.append("\x1b[0m\x1b[2J")
        for row in range(height):
            new = cells(lines[row] if row < len(lines) else (), width)
            parts += self._changes(row, self._shown[row], new)
            self._shown[row] = new
        if parts:
            self._write("".join([*parts, "\x1b[0m"]))

    def _changes(self, row: int, old: Line, new: Line) -> list[str]:
        first, last = changed(old, new)
        if first == last:
            return []
        parts, style = [f"\x1b[{row + 1};{first + 1}H"], None
        for cell in new[first:last]:
            if cell.style != style:
                style = cell.style
                parts.append(self._escape(style))
            parts.append(cell.text)
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

    def _suspended(self, *_: object) -> None:
        self._end()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()
        self.wake()

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
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
    if len(text) == 1 or text[1] not in "[O":
        return 1
    for place in range(2, len(text)):
        if "@" <= text[place] <= "~":
            return place + 1
    return len(text)


def cells(line: Line, width: int) -> Line:
    """Return *line* in *width* cells; a wide character is followed by an empty one."""
    found: list[Span] = []
    for text, style in line:
        for character in text:
            room = columns(character)
            if len(found) + room > width:
                break
            found += [Span(character, style), *[Span("", style)] * (room - 1)]
    return (*found, *[Span(" ")] * (width - len(found)))


def changed(old: Line, new: Line) -> tuple[int, int]:
    """Return from where to where the cells *new* differ from *old*."""
    places = [
        place
        for place, pair in enumerate(zip(old, new, strict=True))
        if pair[0] != pair[1]
    ]
    if not places:
        return 0, 0
    # The second half of a wide character is drawn with the first.
    return places[0] - (not new[places[0]].text), places[-1] + 1
