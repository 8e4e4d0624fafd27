"""
Reports at the end of a process: a summary on standard error, and the run as files.

Loaded and prepared when the agent starts, not at exit: after an `exec` or `eval`,
Python no longer knows that an interrupt ended the program, and with which exit code.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from jaxmon import disclosure
from jaxmon.agent.events import EventLog
from jaxmon.agent.guard import log
from jaxmon.agent.reports import exit_report
from jaxmon.agent.reports.directory import RUN, ReportDirectory, stem_of
from jaxmon.agent.reports.json_types import plain
from jaxmon.agent.reports.overview import Overview
from jaxmon.clocks import wall_time
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Family
from jaxmon.limits.shared import current
from jaxmon.report.html.page import files_of
from jaxmon.report.runs.summary import Facts
from jaxmon.settings import Settings


class Source(NamedTuple):
    """
    What a report is made of.

    Attributes:
        overview: returns the debug overview.
        events: the event log.
        collect: returns the metrics.
        worker: returns the number of the slot.
        refresh: updates what is only updated now and then.
    """

    overview: Callable[[], Overview]
    events: EventLog
    collect: Callable[[], Iterable[Family]]
    worker: Callable[[], str]
    refresh: Callable[[], None]


class FinalReports:
    """The reports that the *settings* ask for."""

    def __init__(self, settings: Settings, source: Source) -> None:
        self._source = source
        self._run_dir = settings.run_dir
        self._prints = settings.report
        self._directory = None
        if settings.summary_dir is not None:
            self._directory = ReportDirectory(settings.summary_dir, RUN)
            _prepare()
        exit_report.prepare()

    def write(self, *, crashed: bool) -> None:
        """
        Write them; a file that cannot be written is logged, and nothing else.

        Args:
            crashed: whether an exception ends the program.
        """
        source = self._source
        source.refresh()
        if self._directory is not None:
            self._save(self._directory, "crashed" if crashed else "finished")
        if self._prints:
            text = exit_report.text(
                source.overview(), source.events, current(self._run_dir)
            )
            exit_report.write(disclosure.document(text))

    def _save(self, directory: ReportDirectory, state: str) -> None:
        source = self._source
        overview = source.overview()
        facts = Facts(
            overview=overview.whole(),
            events=events_of(source.events),
            environment=overview.environment(),
            families=source.collect(),
            host=platform.node(),
            worker=source.worker(),
            state=state,
            redacted=disclosure.document,
            limits=current(self._run_dir),
        )
        stem = stem_of(wall_time(), 1, RUN)
        try:
            files = files_of(facts)
            path = directory.write(stem, {".html": files.page, ".json": files.summary})
        except (JaxmonError, OSError) as error:
            log.warning("jaxmon could not write the report of this run: %s", error)
        else:
            log.info("report of this run: %s", path)


def events_of(log: EventLog) -> dict[str, Any]:
    """Return the events as ``/debug/events`` does."""
    return {"events": [plain(event._asdict()) for event in log.since()]}


def _prepare() -> None:
    """Load what a report needs, and read what it is made of."""
    recompile = {"events": [{"kind": "recompile"}]}
    files_of(Facts({}, recompile, {}, (), "", "0", "finished"))
