"""
Documents whose commands are run as they stand, in one shell, one after the other.

A block of ``console`` has commands after ``$ `` and what each prints; a block whose
first line names a file, as in ``# train.py``, is that file.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support import until


_BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
_REST = "..."
_END = "-- end of the command --"


class Command(NamedTuple):
    """A command, and the lines that it prints; ``...`` stands for any."""

    text: str
    shown: list[str]


def files(document: str) -> dict[str, str]:
    """Return the files that *document* has, by name."""
    return {
        found[1]: text
        for _, text in _BLOCK.findall(document)
        if (found := _FILE.match(text))
    }


def commands(document: str) -> Iterator[Command]:
    """Yield the commands of *document* in order, without comments behind them."""
    for kind, block in _BLOCK.findall(document):
        if kind != "console":
            continue
        for part in re.split(r"^ *\$ ", block, flags=re.MULTILINE)[1:]:
            text, *shown = part.splitlines()
            yield Command(text.partition("   #")[0].rstrip(), shown)


def fits(shown: list[str], printed: str) -> bool:
    """
    Return whether *printed* has the lines *shown* and no others, ``...`` apart; numbers
    other than 0 may differ, and so may spaces and line breaks.
    """
    parts = "\n".join(shown).split(_REST)
    pattern = ".*".join(re.escape(_words(part)) for part in parts)
    return re.fullmatch(pattern, _words(printed), re.DOTALL) is not None


def _words(text: str) -> str:
    """Return *text* without what differs from run to run."""
    # A line may break between a number and its unit.
    text = " ".join(text.split())
    text = re.sub(r"(\d[\d.,]* (µs|ms|s|min|h)\b ?)+", "TIME ", text)
    text = re.sub(r"\d[\d.,]*\d|[1-9]", "NUMBER", text)
    return "".join(text.split())


class Shell:
    """
    A bash, which is not interactive.

    Args:
        directory: where it starts.
        environ: its environment.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._process as process:
            # And all that it started: without job control they are one group.
            os.killpg(process.pid, signal.SIGKILL)

    def run(self, command: str) -> str:
        """Return what *command* prints, and what runs in the background meanwhile."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if command.endswith("&"):
            apart = "" if ">" in command else " >> shell.log 2>&1 "
            stdin.write(f"{command[:-1]}{apart}&\n")
            command = ":"
        stdin.write(f"{{ {command}; }} 2>&1 < /dev/null; echo; echo '{_END}'\n")
        stdin.flush()
        lines: list[str] = []
        while (line := stdout.readline()).rstrip("\n") != _END:
            assert line, f"the shell ended: {''.join(lines)}"
            lines.append(line)
        return "".join(lines)

    def until_fits(self, command: Command) -> None:
        """
        Run *command* until it prints what is shown: what it asks may take its time.
        """
        printed = ""

        def right() -> bool:
            nonlocal printed
            printed = self.run(command.text)
            return not command.shown or fits(command.shown, printed)

        try:
            until(right, f"the output of {command.text}")
        except AssertionError as error:
            expected = "\n".join(command.shown)
            msg = f"{command.text}\nprinted\n{printed}\ninstead of\n{expected}"
            raise AssertionError(msg) from error
