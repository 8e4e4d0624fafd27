"""Drawing in place, as a terminal receives it."""

from __future__ import annotations

import io
import re

import pytest

from jaxmon.cli.screen import Screen, cut, is_terminal, wants_colour


class Terminal(io.StringIO):
    """A stream that calls itself a terminal and keeps what stands on it."""

    def isatty(self) -> bool:
        return True

    def visible(self) -> list[str]:
        """Return the lines that a reader sees, from the control sequences used."""
        rows, row = [""], 0
        for piece in re.split(r"(\x1b\[\??\d*[A-Za-z]|\n|\r)", self.getvalue()):
            if piece == "\n":
                row += 1
                rows += [""] * (row - len(rows) + 1)
            elif piece.endswith("A") and piece.startswith("\x1b"):
                row -= int(piece[2:-1])
            elif piece == "\x1b[K":
                rows[row] = ""
            elif piece == "\x1b[J":
                del rows[row + 1 :]
                rows[row] = ""
            elif piece == "\x1b[H":
                row = 0
            elif piece == "\x1b[2J":
                rows = [""] * len(rows)
            elif not piece.startswith("\x1b") and piece != "\r":
                rows[row] += piece
        return rows


def test_drawing_replaces_what_was_drawn() -> None:
    """Shorter lines and fewer of them leave nothing of the longer ones."""
    terminal = Terminal()
    with Screen(terminal) as screen:
        screen.draw(["a long first line", "second", "third"])
        screen.draw(["short", "other"])

    assert terminal.visible() == ["short", "other", ""]


def test_text_above_stays() -> None:
    """What stood on the terminal before is not drawn over."""
    terminal = Terminal()
    terminal.write("above\n")
    with Screen(terminal) as screen:
        screen.draw(["one"])
        screen.draw(["two", "three"])

    assert terminal.visible() == ["above", "two", "three", ""]


def test_new_size_starts_on_an_empty_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a resize the old lines may be anywhere, so all of them go."""
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    with Screen(terminal) as screen:
        screen.draw(["one", "two"])
        monkeypatch.setenv("COLUMNS", "40")
        screen.draw(["three"])

    assert terminal.visible() == ["three", ""]


def test_what_does_not_fit_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Too long a line ends with a mark, and too many lines do not scroll the first away.
    """
    monkeypatch.setenv("COLUMNS", "8")
    monkeypatch.setenv("LINES", "3")
    terminal = Terminal()
    with Screen(terminal) as screen:
        screen.draw(["12345678", "123456789", "third"])

    assert terminal.visible() == ["12345678", "1234567…", ""]


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        (9, "ab\x1b[1mcdef\x1b[0mghi"),
        (8, "ab\x1b[1mcdef\x1b[0mg…"),
        (7, "ab\x1b[1mcdef…\x1b[0m"),
        (4, "ab\x1b[1mc…\x1b[0m"),
        (3, "ab…\x1b[1m\x1b[0m"),
    ],
)
def test_colours_take_no_room_and_end(columns: int, kept: str) -> None:
    """A line is cut by what is seen of it, and no colour runs on into the next line."""
    assert cut("ab\x1b[1mcdef\x1b[0mghi", columns) == kept


def test_cursor_and_wrapping_are_restored_after_an_error() -> None:
    """Whatever ends the block, the terminal is left as it was found."""
    terminal = Terminal()
    with pytest.raises(KeyboardInterrupt), Screen(terminal):
        raise KeyboardInterrupt

    changes = re.findall(r"\x1b\[\?(\d+)([lh])", terminal.getvalue())
    assert sorted(changes) == [("25", "h"), ("25", "l"), ("7", "h"), ("7", "l")]
    assert [how for _, how in changes] == ["l", "l", "h", "h"]


@pytest.mark.parametrize(
    ("stream", "environ", "terminal", "colour"),
    [
        (Terminal(), {"TERM": "xterm"}, True, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        (Terminal(), {"TERM": "dumb"}, False, False),
        (Terminal(), {}, False, False),
        (io.StringIO(), {"TERM": "xterm"}, False, False),
    ],
)
def test_terminal_and_colour_are_told_from_the_environment(
    stream: io.StringIO, environ: dict[str, str], *, terminal: bool, colour: bool
) -> None:
    """Only a terminal that can be drawn on is, and NO_COLOR takes only the colour."""
    assert is_terminal(stream, environ) is terminal
    assert wants_colour(stream, environ) is colour
