"""A program run as a subprocess, under plain Python or under `jaxmon run`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import clean_environ


DEADLINE = 240
JAXMON = (sys.executable, str(Path(sys.executable).with_name("jaxmon")))


@dataclass(frozen=True, slots=True)
class Program:
    """
    A program to run both ways, and what makes the comparison meaningful.

    Args:
        source: text of ``main.py``.
        arguments: what follows ``python`` and ``jaxmon run``.
        status: exit status that the program must have.
        says: text that must stand on its stdout or stderr.
        files: further files beside ``main.py``.
        stdin: what it reads.
        environ: environment variables on top of the test's own.
        signal: sent once the program has printed a line.
    """

    source: str = ""
    arguments: Sequence[str] = ("main.py",)
    status: int = 0
    says: str = ""
    files: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    signal: int | None = None


def execute(
    command: Sequence[str], program: Program, directory: Path
) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr of *program* under *command*."""
    with subprocess.Popen(
        [*command, *program.arguments],
        cwd=directory,
        env=clean_environ(PYTHONDONTWRITEBYTECODE="1", **program.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        first = ""
        if program.signal is not None:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(program.signal)
        try:
            rest, stderr = process.communicate(program.stdin, timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, first + rest, stderr
