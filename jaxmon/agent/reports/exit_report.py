"""The exit report."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, TextIO

from jaxmon.agent.reports.overview import Overview
from jaxmon.clocks import monotonic
from jaxmon.facts.process import read
from jaxmon.limits import Limits
from jaxmon.originals import original
from jaxmon.report.text import summary
from jaxmon.symptoms.findings import find


# A blocked standard error must not keep the program alive.
_PATIENCE = 2.0


def prepare() -> None:
    """Load what a report needs; to read records needs `eval`."""
    from jaxmon.agent.memory import leaks, profile  # noqa: F401, PLC0415 - for a look

    read({}, {"events": [{"kind": "recompile"}]})


def text(overview: Overview, limits: Limits) -> str:
    """Return the current report, by *limits*; takes some milliseconds."""
    snapshot = overview.judged_by(limits)
    return "\n".join(["", *summary(snapshot, find(snapshot)), ""])


def write(report: str) -> None:
    """
    Write *report* to standard error; never raises, waits two seconds at most.

    Nothing stays in a buffer: if Python cannot flush it at exit, the exit code changes.
    """
    stream = sys.stderr
    with contextlib.suppress(Exception):
        if stream is sys.__stderr__ and stream is not None:
            stream.flush()
            encoding = stream.encoding or "utf-8"
            _write(stream.fileno(), report.encode(encoding, "replace"))
        elif stream is not None:
            _print(report, stream)


def _write(descriptor: int, data: bytes) -> None:
    """Write to *descriptor* until done or the reader is gone."""
    select: Any = original("select")  # gevent's and eventlet's do not poll files
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    end = monotonic() + _PATIENCE
    while data and (left := end - monotonic()) > 0:
        ready = poll.poll(left * 1000)
        # A closed pipe is not written to: SIGPIPE might kill the program.
        if not ready or ready[0][1] & (select.POLLERR | select.POLLNVAL):
            return
        # The amount that a ready pipe accepts without blocking.
        data = data[os.write(descriptor, data[: select.PIPE_BUF]) :]


def _print(report: str, stream: TextIO) -> None:
    """Write to the program's, or a notebook's, replacement of standard error."""
    stream.write(report)
    stream.flush()
