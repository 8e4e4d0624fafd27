"""
Out-of-memory reports: what requested memory, what holds it, what was left.

The process may be about to exit, so the failing thread waits for the report, for a
bounded time: gathering may hang with the device, and writing with the disk. Nothing is
ever allocated on a device.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from jaxmon import catalog, disclosure
from jaxmon.agent.context import Context
from jaxmon.agent.counters import Tally
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink import failures
from jaxmon.agent.observers import CountedError
from jaxmon.agent.oom.facts import Failure, Lines, ReportBuilder, encoded
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.reports.directory import (
    MAX_REPORTS,
    ReportDirectory,
    ReportDirError,
    stem_of,
)
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic, wall_time
from jaxmon.exposition.families import Family, gauge
from jaxmon.threads import Event, Lock


PAUSE_SECONDS = 10.0
"""Minimum time between two reports; errors in between are only counted."""

_MAX_TEXT = 16 * 1024
# The failing thread waits at most this long for its report.
_WAIT_SECONDS = 2.0
# Freed when memory has run out, so that there is some for the report and for loading
# the modules it needs. What runs out is address space, or the kernel's commit limit.
# `bytes` reserves both by `calloc`; as nothing is written to it, none is resident.
_RESERVE_BYTES = 4 << 20


class OomReports(Part):
    """
    Writes out-of-memory reports, one at a time and rate-limited.

    Attributes:
        facts: gathers the contents of reports.
    """

    name = "oom"

    def __init__(
        self,
        context: Context,
        *,
        lines: Lines,
        programs: Callable[[], dict[str, Any]],
    ) -> None:
        self.facts = ReportBuilder(context, lines, programs)
        context.observers.error.append(self.on_error)
        self._context = context
        self._guard = context.guard
        self._directory = ReportDirectory(context.settings.report_dir)
        self._worker = Worker("oom", context.scheduler)
        self._written: deque[str] = deque(maxlen=MAX_REPORTS)
        self._count = Tally()
        self._numbers = itertools.count(1)
        # Acquired without blocking: a thread that finds it held leaves the report to
        # the other.
        self._busy = Lock()
        self._due = 0.0
        self._skipped = Tally()
        self._reported = 0
        self._reserve: bytes | None = None
        self._stopped = False

    @property
    def count(self) -> int:
        """Number of reports written."""
        return self._count.value

    def paths(self) -> list[str]:
        """Return the paths of this process's reports, oldest first."""
        return list(self._written)

    def start(self) -> None:
        """
        Prepare what may be impossible to get when memory has run out: a thread, some
        memory, and the contents of files.
        """
        self._reserve = bytes(_RESERVE_BYTES)
        self.facts.prepare()
        self._context.scheduler.prepare(self.name)

    def stop(self) -> None:
        """Let a report in progress finish, and write no more."""
        self._stopped = True
        self._worker.stop()
        self._reserve = None

    def on_error(self, seen: CountedError) -> None:
        """Write a report if an error is out of memory."""
        if seen.kind != "oom":
            return
        text = failures.message_of(seen.error, limit=_MAX_TEXT, lines=None)
        self.write(
            Failure(
                function=seen.function.name,
                kind=seen.kind,
                type=type(seen.error).__name__,
                message=seen.message,
                text=text if seen.quoted else "",
                stage=seen.stage,
                where=seen.where,
                time=wall_time(),
            )
        )

    def explain(self) -> Explanation:
        """Return the paths of this process's reports, oldest first."""
        return Explanation({"errors": lambda: {"oom_reports": self.paths()}})

    def collect(self) -> list[Family]:
        """Return the number of reports."""
        return [gauge(catalog.OOM_REPORTS, self.count)]

    def write(self, failure: Failure) -> None:
        """
        Write a report on *failure* and wait for it: usually 10 to 100 ms, at most 2 s.
        """
        now = monotonic()
        if self._stopped or not self._busy.acquire(blocking=False):
            self._skipped.add()
            return
        if now < self._due:
            self._skipped.add()
            self._busy.release()
            return
        self._due = now + PAUSE_SECONDS
        self._reserve = None
        done = Event()

        def job() -> None:
            try:
                self._report(failure)
            finally:
                self._busy.release()
                done.set()
                self._refill()

        if self._worker.submit(job, urgent=True):
            done.wait(_WAIT_SECONDS)
        else:
            self._busy.release()

    # --- on the worker's thread --------------------------------------------------

    def _report(self, failure: Failure) -> None:
        from jaxmon.agent.oom.text import render  # noqa: PLC0415

        skipped = self._skipped.value
        stem = stem_of(failure.time, next(self._numbers))
        try:
            report = self.facts.build(failure, skipped=skipped - self._reported)
            path = self._directory.write(
                stem,
                {
                    ".json": disclosure.document(encoded(report)),
                    ".txt": disclosure.document(render(report)),
                },
            )
        except (ReportDirError, OSError, MemoryError) as error:
            # The disk may be full too; the user should know what is missing.
            log.warning(
                "%s ran out of memory; jaxmon could not write its report: %s",
                failure.function,
                str(error) or type(error).__name__,
            )
            return
        self._reported = skipped
        self._count.add()
        self._written.append(str(path))
        readable = path.with_suffix(".txt")
        log.warning("%s ran out of memory; report: %s", failure.function, readable)
        self._context.events.add(
            "oom",
            failure.function,
            f"{failure.message}\nreport: {readable}",
            report=str(path),
            text=str(readable),
            advice=report["advice"],
        )

    def _refill(self) -> None:
        try:
            self._reserve = bytes(_RESERVE_BYTES)
        except MemoryError:
            self._reserve = None
