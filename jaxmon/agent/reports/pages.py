"""
Debug endpoints, on the Unix socket only.

The live page of one process, on its own port. It shows what the metrics there say,
which are labels and numbers: no findings, no source lines, no command line. A program
is not sampled for it: its charts begin when the page is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from http import HTTPStatus

from jaxmon.agent.events import KINDS, EventLog
from jaxmon.agent.reports.overview import Overview
from jaxmon.catalog import AGENT_UP
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family, gauge
from jaxmon.facts.charts import ChartSamples, ShownCharts
from jaxmon.facts.reading import read
from jaxmon.facts.recent import TEN_MINUTES, Window
from jaxmon.facts.record import dumps, last
from jaxmon.facts.status import HostVerdict, ProcessVerdict
from jaxmon.host.http.messages import Request, Response, error_response
from jaxmon.host.http.routes import shared
from jaxmon.limits.shared import current
from jaxmon.screens.livepage import history_page, json_response, landing_page
from jaxmon.screens.status import summarise
from jaxmon.version import version


_JSON = "application/json"
_MOST_BYTES = 4 << 20


def page(name: str, request: Request, overview: Overview, log: EventLog) -> Response:
    """Return the page called *name*."""
    if name == "events":
        return _events(log, request)
    read = {
        "overview": overview.whole,
        "functions": overview.functions,
        "memory": overview.memory,
        "environment": overview.environment,
    }[name]
    return Response(dumps(read()).encode(), _JSON)


def _events(log: EventLog, request: Request) -> Response:
    """Return the requested events, oldest first; only the latest if not all fit."""
    kind, since = request.query.get("kind"), request.query.get("since", "0")
    if kind is not None and kind not in KINDS:
        message = f"kind must be one of {', '.join(KINDS)}"
        return error_response(HTTPStatus.BAD_REQUEST, message)
    if not (since.isascii() and since.isdigit() and len(since) <= len(str(1 << 63))):
        message = "since must be the number of the last event seen"
        return error_response(HTTPStatus.BAD_REQUEST, message)
    found = log.since(int(since), kind)
    texts, left_out = last((event._asdict() for event in found), size=_MOST_BYTES)
    body = f'{{"events":[{",".join(texts)}],"left_out":{left_out}}}'
    return Response(body.encode(), _JSON)


_NOT_HERE = (
    "not shown on a program's own port, because they name files, lines and values: run "
    "`jaxmon explain {}` on its host, or open the page of `jaxmon exporter`"
)


class OwnPage:
    """The endpoints of the page, of the process in the slot *worker*."""

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
        earlier = self._window.before(now.time, TEN_MINUTES)
        self._window.add(now)
        if self._history.due(now.time):
            self._history.add(now)
        process = ProcessVerdict(pid=os.getpid())
        trouble = _NOT_HERE.format(self._worker)
        verdict = HostVerdict({self._worker: process}, trouble=trouble)
        return json_response(
            summarise(
                now,
                before,
                earlier,
                version=version(),
                whole=False,
                verdict=verdict,
                limits=current(self._run_dir),
            )
        )

    def _of(self, worker: str | None) -> ShownCharts | None:
        # The process is all of it.
        return self._history.charts() if worker in (None, self._worker) else None
