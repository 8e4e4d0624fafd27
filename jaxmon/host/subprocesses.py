"""
Runs subprocesses with limits of time and output: `subprocess.run` waits on for a child
that holds the output open, and buffers everything.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple


class CompletedRun(NamedTuple):
    """How a program exited, negative for a signal, and the end of what it wrote."""

    code: int
    out: str
    err: str


def run(
    command: Sequence[str],
    *,
    seconds: float,
    max_bytes: int = 1 << 20,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> CompletedRun:
    """
    Run *command*, without input, until it exits, or is killed with its children after
    so many *seconds*; the last *max_bytes* of each output are kept. Raises
    `TimeoutError`, or `OSError`: it could not be started.
    """
    with TemporaryFile() as out, TemporaryFile() as err:
        process = subprocess.Popen(  # noqa: S603 - the caller's program
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            # Not pipes, which what it leaves running may hold open.
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                msg = f"{command[0]} took longer than {seconds:g} s"
                raise TimeoutError(msg) from None
            raise
        texts = []
        for file in (out, err):
            file.seek(max(0, file.seek(0, os.SEEK_END) - max_bytes))
            texts.append(file.read(max_bytes).decode("utf-8", "replace"))
        return CompletedRun(process.returncode, *texts)
