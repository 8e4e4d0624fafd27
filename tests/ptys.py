"""A command on a terminal of its own, whose screen can be read."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyte

from tests.support import until


# Makes standard input the terminal that Ctrl-C comes from.
_BECOME = (
    "import fcntl, os, sys, termios; os.setsid(); "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Console:
    """A running command, its terminal, and everything that it wrote."""

    def __init__(
        self, master: int, slave: int, process: subprocess.Popen[bytes]
    ) -> None:
        self.master, self.slave, self.process = master, slave, process
        columns, lines = _size(slave)
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.output = b""
        self.mode = termios.tcgetattr(slave)

    def lines(self) -> list[str]:
        """Return what is on the screen now, line by line."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # no process has the terminal any more
                break
            self.output += data
            self._stream.feed(data)
        return list(self._screen.display)

    def text(self) -> str:
        """Return what is on the screen now."""
        return "\n".join(line.rstrip() for line in self.lines())

    def styles(self, row: int) -> set[tuple[str, bool]]:
        """Return colours, and whether reversed, of the characters in a line."""
        self.lines()
        cells = self._screen.buffer[row]
        return {(cells[x].fg, cells[x].reverse) for x in range(self._screen.columns)}

    def press(self, keys: str) -> None:
        """Send *keys* as a terminal would."""
        os.write(self.master, keys.encode())

    def shows(self, *texts: str) -> str:
        """Wait until all *texts* are on the screen, and return it."""
        try:
            return until(lambda: _with_all(self.text(), texts), "the screen")
        except AssertionError as error:
            msg = f"no {texts} on the screen:\n{self.text()}"
            raise AssertionError(msg) from error

    def hides(self, text: str) -> str:
        """Wait until *text* is no longer on the screen, and return it."""
        return until(
            lambda: now if text not in (now := self.text()) else "", f"{text} to go"
        )

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; its process is told."""
        self.lines()
        _set_size(self.slave, columns, lines)
        self._screen.resize(lines, columns)

    def end(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        until(lambda: (self.text(), self.process.poll() is not None)[1], "the end")
        self.lines()
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """Return whether the mode of the terminal is that of the beginning."""
        return termios.tcgetattr(self.slave) == self.mode


@contextmanager
def console(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    columns: int = 80,
    lines: int = 24,
) -> Iterator[Console]:
    """Run Python with *arguments* on a terminal while the block runs."""
    master, slave = os.openpty()
    try:
        _set_size(slave, columns, lines)
        with subprocess.Popen(
            [sys.executable, "-c", _BECOME, sys.executable, *arguments],
            env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **environ},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        ) as process:
            try:
                yield Console(master, slave, process)
            finally:
                process.send_signal(signal.SIGCONT)
                process.kill()
    finally:
        os.close(master)
        os.close(slave)


def _with_all(text: str, wanted: Sequence[str]) -> str:
    return text if all(one in text for one in wanted) else ""


def _size(number: int) -> Any:
    found = os.get_terminal_size(number)
    return found.columns, found.lines


def _set_size(number: int, columns: int, lines: int) -> None:
    size = struct.pack("HHHH", lines, columns, 0, 0)
    fcntl.ioctl(number, termios.TIOCSWINSZ, size)
