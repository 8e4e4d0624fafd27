"""
Runs subprocesses with limits of time and output: `subprocess.run` waits on for a child
that holds the output open, and buffers everything.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


_CHUNK = 1 << 16
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class CompletedRun:
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
    end = time.monotonic() + seconds
    process = subprocess.Popen(  # noqa: S603 - the caller's program
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    written = bytearray(), bytearray()
    try:
        _listen(process, written, end, max_bytes)
        process.wait(max(end - time.monotonic(), 0))
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, (TimeoutError, subprocess.TimeoutExpired)):
            msg = f"{command[0]} took longer than {seconds:g} s"
            raise TimeoutError(msg) from None
        raise
    out, err = (kept.decode("utf-8", "replace") for kept in written)
    return CompletedRun(process.returncode, out, err)


def _listen(
    process: subprocess.Popen[bytes],
    written: tuple[bytearray, bytearray],
    end: float,
    most: int,
) -> None:
    """Read what *process* writes, until it is silent for good, or time out at *end*."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    assert process.stderr is not None  # noqa: S101 - it, too
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, written[0])
        selector.register(process.stderr, selectors.EVENT_READ, written[1])
        while selector.get_map():
            ready = selector.select(_LOOK_SECONDS)
            # What it left running may hold its output open.
            if not ready and process.poll() is not None:
                return
            if time.monotonic() > end:
                raise TimeoutError
            for key, _ in ready:
                if data := os.read(key.fd, _CHUNK):
                    key.data.extend(data)
                    del key.data[:-most]
                else:
                    selector.unregister(key.fileobj)
