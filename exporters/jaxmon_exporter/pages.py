"""
The sidecar's endpoints besides ``/metrics``, and what they show: the status of the host
as it goes on, and values that are made when they are read. `screens.livepage` has the
page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from jaxmon.exposition.families import Family
from jaxmon.facts.charts import ChartSamples
from jaxmon.facts.reading import read
from jaxmon.facts.recent import TEN_MINUTES, Window
from jaxmon.facts.status import CollectorSummary
from jaxmon.host.http.messages import Request, Response, error_response
from jaxmon.host.http.routes import shared
from jaxmon.limits import Limits
from jaxmon.threads import DaemonThread
from jaxmon_exporter.polling import Clock


if TYPE_CHECKING:
    from concurrent.futures import Future

    from jaxmon.facts.charts import ShownCharts
    from jaxmon.facts.status import HostVerdict, Summary
    from jaxmon.symptoms.answer import Onsets

_MOST_OF_A_CORE = 0.1

T = TypeVar("T")


@dataclass(eq=False)
class Refreshed(Generic[T]):
    """
    A value that is made when it is read, on a thread of its own, and kept for a while.

    It is made again after *every* seconds, later if that would take a tenth of a core;
    a reader waits *patience* seconds at most, and gets the value before. *failed* is
    called with what *make* raises. `refresh` is called on one thread; the rest is
    thread-safe.
    """

    make: Callable[[], T]
    failed: Callable[[BaseException], None]
    _: KW_ONLY
    every: float
    patience: float
    clock: Clock = time.monotonic
    cpu: Clock = time.thread_time
    _taken: float = 0.0
    _latest: tuple[T, float] | None = None
    _began: float | None = None
    _making: Future[None] | None = None

    def refresh(self) -> Future[None] | None:
        """Return what is done when the value is recent; `None` if it is, or is late."""
        now = self.clock()
        if (making := self._making) is not None:
            late = self._began is not None and now - self._began > self.patience
            return None if late else making
        pause = max(self.every, self._taken / _MOST_OF_A_CORE)
        if self._began is not None and now - self._began < pause:
            return None
        from concurrent.futures import Future  # noqa: PLC0415 - few hosts have readers

        self._began, self._making = now, (making := Future())
        try:
            DaemonThread("jaxmon-refresh", lambda: self._run(making, now)).start()
        except RuntimeError as error:  # no threads left
            self._making = None
            self.failed(error)
            return None
        return making

    def latest(self) -> tuple[T, float] | None:
        """Return the value and its age in seconds, `None` if there is none yet."""
        if (made := self._latest) is None:
            return None
        return made[0], self.clock() - made[1]

    def _run(self, making: Future[None], began: float) -> None:
        taken = self.cpu()
        try:
            self._latest = self.make(), began
        except Exception as error:  # noqa: BLE001 - contained and counted
            self.failed(error)
        finally:
            self._taken = self.cpu() - taken
            self._making = None
            making.set_result(None)


@dataclass(eq=False)
class Live:
    """Samples what is measured, so that a page that is opened knows the last minute."""

    families: Callable[[], Iterable[Family]]
    _: KW_ONLY
    version: str
    run_dir: str
    limits: Limits | None = None
    clock: Clock = time.time
    _window: Window = field(default_factory=Window)
    _history: ChartSamples = field(default_factory=ChartSamples)
    _onsets: Onsets | None = None

    def sample(self) -> None:
        """Keep the latest values, without those of functions."""
        now = read(self.families(), time=self.clock(), details=False)
        self._window.add(now)
        self._history.add(now)

    def charts(self, worker: str | None) -> ShownCharts | None:
        """Return the samples of the host, or of one process; `None` without any."""
        return self._history.charts(worker)

    def summary(
        self,
        statuses: Sequence[CollectorSummary],
        verdict: HostVerdict,
        worker: str | None = None,
    ) -> Summary | None:
        """Return the status as of now, of the host or of the process *worker*."""
        from jaxmon.facts.reading import by_process  # noqa: PLC0415 - few look
        from jaxmon.screens.status import summarise  # noqa: PLC0415 - likewise
        from jaxmon.symptoms import answer  # noqa: PLC0415 - likewise

        now = read(self.families(), time=self.clock())
        before = self._window.before(now.time)
        earlier = self._window.before(now.time, TEN_MINUTES)
        if worker is not None:
            found = by_process(now).get(worker)
            if found is None or not worker:
                return None
            now, verdict = found, verdict.of(worker)
            before, earlier = (
                None if past is None else by_process(past).get(worker)
                for past in (before, earlier)
            )
        elif self._onsets is None:
            self._onsets = answer.Onsets()
        return summarise(
            now,
            before,
            earlier,
            version=self.version,
            whole=worker is None,
            run_dir=self.run_dir,
            verdict=verdict,
            limits=self.limits,
            onsets=None if worker else self._onsets,
            collectors=[] if worker else statuses,
        )


Page: TypeAlias = Callable[[Request], Response]
SlowPage: TypeAlias = Callable[[Request], "Response | Future[Response]"]

_NO_STORE = {"Cache-Control": "no-store"}


def summary_page(
    summary: Callable[[bool, str | None], Summary | None],
    *,
    admits: Callable[[Request], bool],
    refresh: Callable[[], Future[None] | None],
) -> SlowPage:
    """Return the handler of ``/api/summary``, also of ``?worker=3``."""
    every = shared(lambda admitted: _json(summary(admitted, None)), admits)

    def respond(request: Request) -> Response:
        worker = request.query.get("worker")
        if worker is None:
            return every(request)
        # Not shared: what clients ask for is not bounded, and few ask.
        return _json(summary(admits(request), worker))

    def handle(request: Request) -> Response | Future[Response]:
        if not admits(request) or (refreshed := refresh()) is None:
            return respond(request)
        return after(refreshed, lambda: respond(request))

    return handle


def _json(found: Summary | None) -> Response:
    from jaxmon.screens.livepage import json_response  # noqa: PLC0415 - few look

    if found is None:
        return error_response(HTTPStatus.NOT_FOUND, "no such process")
    return json_response(found)


def landing_page(request: Request) -> Response:
    """Respond to ``/``: one self-contained HTML page."""
    from jaxmon.screens import livepage  # noqa: PLC0415 - most hosts have no viewer

    return livepage.landing_page(request)


def history_page(charts: Callable[[str | None], ShownCharts | None]) -> Page:
    """Return the handler of ``/api/history``."""

    def handle(request: Request) -> Response:
        from jaxmon.screens import livepage  # noqa: PLC0415 - most hosts have no viewer

        return livepage.history_page(charts)(request)

    return handle


def health_page(_: Request) -> Response:
    """
    Respond to ``/-/healthy``. Deliberately ignores collectors: a hung driver would hang
    the replacement too, and a restart would lose the evidence.
    """
    return Response(b"healthy\n", headers=_NO_STORE)


def ready_page(ready: Callable[[], bool]) -> Page:
    """Return the handler of ``/-/ready``: 200 once every collector was polled."""

    def handle(_: Request) -> Response:
        if ready():
            return Response(b"ready\n", headers=_NO_STORE)
        return Response(b"waiting for the first poll\n", status=503, headers=_NO_STORE)

    return handle


def after(first: Future[None], respond: Callable[[], Response]) -> Future[Response]:
    """Return the response to give once *first* is done."""
    from concurrent.futures import Future  # noqa: PLC0415 - see above

    given: Future[Response] = Future()

    def give(_: Future[None]) -> None:
        if given.set_running_or_notify_cancel():  # else the client is gone
            try:
                given.set_result(respond())
            except BaseException as error:  # noqa: BLE001 - the server contains it
                given.set_exception(error)

    first.add_done_callback(give)
    return given
