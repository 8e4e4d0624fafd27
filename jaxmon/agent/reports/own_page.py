"""
The live page of one process, on its own port.

It shows what the metrics there say, which are labels and numbers: no findings, no
source lines, no command line. A program is not sampled for it: its charts begin when
the page is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from jaxmon.catalog import AGENT_UP
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family, gauge
from jaxmon.facts.reading import read
from jaxmon.facts.recent import Window
from jaxmon.facts.status import HostVerdict, ProcessVerdict
from jaxmon.http.messages import Request, Response
from jaxmon.http.page import shared
from jaxmon.limits.shared import current
from jaxmon.livepage.document import history_page, json_response, landing_page
from jaxmon.report.status.history import ChartSamples, ShownCharts
from jaxmon.report.status.summary import summarise
from jaxmon.version import version


_NOT_HERE = (
    "not shown on a program's own port, because they name files, lines and values: run "
    "`jaxmon explain`, or open the page of `jaxmon exporter`"
)


class OwnPage:
    """
    The endpoints of the page.

    Args:
        collect: returns all families of the process.
        worker: the slot of the process.
        run_dir: the run directory, `None` for the default.
    """

    def __init__(
        self, collect: Callable[[], list[Family]], worker: str, run_dir: str | None
    ) -> None:
        self._run_dir = run_dir
        self._collect = collect
        self._worker = worker
        self._window = Window()
        self._history = ChartSamples()
        self._summary = shared(self._make, lambda _: None)
        self._charts = history_page(self._of)

    def respond(self, request: Request) -> Response:
        """Return the page or its data, by the path of *request*."""
        if request.path == "/":
            return landing_page(request)
        if request.path == "/api/history":
            return self._charts(request)
        return self._summary(request)

    def _make(self, _: None) -> Response:
        families = [*self._collect(), gauge(AGENT_UP, 1, self._worker)]
        now = read(families, time=wall_time(), worker=self._worker)
        before = self._window.before(now.time)
        self._window.add(now)
        if self._history.due(now.time):
            self._history.add(now)
        own = ProcessVerdict(pid=os.getpid())
        verdict = HostVerdict({self._worker: own}, trouble=_NOT_HERE)
        return json_response(
            summarise(
                now,
                before,
                version=version(),
                whole=False,
                verdict=verdict,
                limits=current(self._run_dir),
            )
        )

    def _of(self, worker: str | None) -> ShownCharts | None:
        # The process is all of it.
        return self._history.charts() if worker in (None, self._worker) else None
