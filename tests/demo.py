"""`jaxmon demo` as a subprocess."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import QUICK_COMPILES, clean_environ, free_port


DEADLINE = 240

_COMMAND = (sys.executable, str(Path(sys.executable).with_name("jaxmon")), "demo")


@contextmanager
def demo(
    directory: Path, *options: str, terminal: int = subprocess.PIPE, **environ: str
) -> Iterator[subprocess.Popen[str]]:
    """
    Run the demo; whatever is left of it at the end was the demo's to stop.

    Args:
        directory: a short path, for the demo's own directory holds Unix sockets.
        options: of the command line.
        terminal: descriptor for what it prints; pipes by default.
        environ: further environment variables.
    """
    with subprocess.Popen(
        [*_COMMAND, "--port", str(free_port()), *options],
        env={
            **clean_environ(TMPDIR=str(directory), TERM="xterm", COLUMNS="80"),
            # Its programs would take the usual port, as do those of other tests.
            "JAXMON_PORT": str(free_port()),
            **QUICK_COMPILES,
            **environ,
        },
        text=True,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """
    Return what the demo prints, up to the line that *pattern* finds something in.

    Raises:
        AssertionError: the demo ended before.
    """
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if re.search(pattern, line):
            return seen
    if process.stderr is not None:
        seen += process.stderr.read()
    msg = f"the demo ended without {pattern!r}:\n{seen}"
    raise AssertionError(msg)
