"""
Reports at the end of a process: a summary on standard error, and the run as files.

Loaded and prepared when the agent starts, not at exit: after an `exec` or `eval`,
Python no longer knows that an interrupt ended the program, and with which exit code.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from typing import Any

from jaxmon.agent.events import EventLog
from jaxmon.agent.guard import log
from jaxmon.agent.reports.directory import ReportDirectory, ReportKind, stem_of
from jaxmon.agent.reports.overview import Overview
from jaxmon.clocks import monotonic, original, wall_time
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Collect
from jaxmon.facts.process import read
from jaxmon.facts.record import encoded
from jaxmon.host import disclosure
from jaxmon.limits.shared import current
from jaxmon.screens.html.page import files_of
from jaxmon.screens.runs import MOST_BYTES, Facts
from jaxmon.screens.text import summary
from jaxmon.settings import Settings
from jaxmon.symptoms.findings import find


RUN = ReportKind("run", 200, MOST_BYTES, "JAXMON_SUMMARY_DIR")

# A blocked standard error must not keep the program alive.
_PATIENCE = 2.0


def prepare() -> None:
    """Load what a report needs; to read records needs `eval`."""
    from jaxmon.agent.memory import leaks, profile  # noqa: F401, PLC0415 - for a look
    from jaxmon.agent.tracing import reader  # noqa: F401, PLC0415 - for what waits

    read({}, {"events": [{"kind": "recompile"}]})


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
        elif stream is not None:  # the program's, or a notebook's
            stream.write(report)
            stream.flush()


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


class FinalReports:
    """The reports that the *settings* ask for."""

    def __init__(self, settings: Settings) -> None:
        self._run_dir = settings.run_dir
        self._prints = settings.report
        self._directory = None
        if settings.summary_dir is not None:
            self._directory = ReportDirectory(settings.summary_dir, RUN)
            recompile = {"events": [{"kind": "recompile"}]}
            files_of(Facts({}, recompile, {}, (), "", "0", "finished"))
        prepare()

    def write(
        self,
        overview: Overview,
        events: EventLog,
        collect: Collect,
        *,
        worker: str,
        crash: str | None,
    ) -> None:
        """
        Write them; a file that cannot be written is logged, and nothing else. *crash*:
        how an exception ends the program, in a sentence; empty if that is unknown,
        `None` if none does.
        """
        kept = ""
        if self._directory is not None:
            facts = Facts(
                overview=overview.snapshot(),
                events=events_of(events),
                environment=overview.environment(),
                families=collect(),
                host=platform.node(),
                worker=worker,
                state="finished" if crash is None else "crashed",
                crash=crash or "",
                redacted=disclosure.document,
                limits=current(self._run_dir),
            )
            kept = _save(self._directory, facts)
        if self._prints:
            snapshot = overview.judged_by(current(self._run_dir))
            text = summary(snapshot, find(snapshot), crash=crash or "", kept=kept)
            write(disclosure.document("\n".join(["", *text, ""])))


def _save(directory: ReportDirectory, facts: Facts) -> str:
    """Return the path, empty if it could not be written."""
    stem = stem_of(wall_time(), 1, RUN)
    try:
        files = files_of(facts)
        path = directory.write(stem, {".html": files.page, ".json": files.summary})
    except (JaxmonError, OSError) as error:
        log.warning("jaxmon could not write the report of this run: %s", error)
        return ""
    log.info("report of this run: %s", path)
    return str(path)


def events_of(log: EventLog) -> dict[str, Any]:
    """Return the events as ``/debug/events`` does."""
    return {"events": [encoded(event._asdict()) for event in log.since()]}
