"""A running agent: the life cycle of its parts, and operations on all of them."""

from __future__ import annotations

import atexit
import contextlib
import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from jaxmon import catalog
from jaxmon.agent import serving as pushing
from jaxmon.agent.context import context_of
from jaxmon.agent.end_writer import EndWriter
from jaxmon.agent.events import logger as events_log
from jaxmon.agent.functions import UNKNOWN
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink.failures import message_of
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.own_metrics import Markers, OwnMetrics, reduction_of
from jaxmon.agent.part import LatePart, Part, begins
from jaxmon.agent.parts import AgentParts
from jaxmon.agent.serving import LocalSocket, Serving
from jaxmon.clocks import monotonic, wall_time
from jaxmon.exposition.add import added, lasting, read
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Collect, Family, Histogram
from jaxmon.facts.ending import CRASHED
from jaxmon.host.http.messages import Request, Response
from jaxmon.host.http.routes import metrics_handler
from jaxmon.indicators.figures import Indicators
from jaxmon.settings import Settings
from jaxmon.threads import Deadline, is_named


if TYPE_CHECKING:
    from jaxmon.agent.reports.exit_reports import FinalReports
    from jaxmon.agent.reports.overview import Overview
    from jaxmon.agent.reports.pages import OwnPage
    from jaxmon.facts.functions import Program
    from jaxmon.host.http.server import Handler

# Of a program that is run for its costs: executables are analysed on a thread, and at
# exit the last ones may be queued.
_COSTS_SECONDS = 45.0

PartT = TypeVar("PartT", bound=Part)


class Runtime:
    """
    An agent that is running, or has been: its `parts`, in the order of starting, and
    the `hooks` that they have attached to JAX. `loading` is held while a late part is
    loaded.
    """

    def __init__(self, jax: ModuleType, settings: Settings) -> None:
        self.context = context_of(jax, settings)
        self.context.table.named(UNKNOWN)
        self._guard = self.context.guard
        if settings.figures_dir is not None:
            self._guard.deadline = Deadline(_COSTS_SECONDS)
        self._started = wall_time(), self.context.began
        self.hooks = Hooks(jax, self._guard)
        indicators = Indicators(
            settings.max_functions, self._guard, on_error=self._on_surfaced
        )
        self._markers = Markers(indicators)
        self._made = AgentParts(self.context, indicators)
        self.parts = (*self._made, self._markers)
        self.loading = self._made.loading.lock
        self._words = self._made.words
        self._ending = EndWriter()
        self._reduction = reduction_of(settings, self.context.table)
        self._live: OwnPage | None = None
        plan = pushing.planned(settings)
        scrapes = Histogram(catalog.SCRAPE_SECONDS)
        metrics = metrics_handler(self.collect, scrapes, failed=self._on_omitted)
        public: dict[str, Handler] = {"/metrics": metrics, "/-/healthy": _healthy}
        public |= dict.fromkeys(_OWN_PAGE, self._own_page)
        pages: dict[str, Handler] = {
            f"/debug/{name}": functools.partial(self._page, name) for name in _PAGES
        }
        for part in self.parts:
            public.update(part.public_pages())
            pages.update(part.pages())
        self.serving = Serving(
            settings,
            public,
            pages,
            self._on_server_error,
            local=functools.partial(
                LocalSocket,
                ending=self._ending,
                position=self._words.position,
                began=self._started[1],
            ),
            deadline=self._guard.deadline,
        )
        indicators.flush = self.flush
        indicators.place_of = SourceLineFinder(jax).raised_at
        if settings.event_values:
            indicators.message_of = functools.partial(message_of, lines=1)
        indicators.serverless = settings.serverless
        loops = indicators.loops
        loops.on_change = lambda: self._ending.run(loops.running())
        self._words.say, self._words.leave = self._ending.update, self._exit
        self._pusher = pushing.prepared(plan, self.collect, settings, self._guard)
        self._about = OwnMetrics(
            self.context,
            self.parts,
            self._markers,
            self.serving,
            self._pusher,
            scrapes=scrapes,
            began=self._started[1],
        )
        self.running = False
        self._reports: FinalReports | None = None
        if settings.report or settings.summary_dir is not None:
            from jaxmon.agent.reports.exit_reports import FinalReports  # noqa: PLC0415

            self._reports = FinalReports(settings)

    def part(self, kind: type[PartT]) -> PartT | None:
        """Return the part of class *kind*, `None` if disabled by settings."""
        found = self._markers if kind is Markers else self._made.of(kind)
        return found if isinstance(found, kind) else None

    @functools.cached_property
    def overview(self) -> Overview:
        """The debug overview."""
        from jaxmon.agent.reports.overview import Overview  # noqa: PLC0415 - on request

        return Overview(
            *(self.context, self.parts, self.hooks, self._started),
            *(self._about.exports, self.serving.url),
        )

    def start(self) -> None:
        """
        Install the hooks and start serving. Serving failures are not raised; if
        anything is raised, all changes have been rolled back.
        """
        self.running = True
        for logger in _LOGGERS:
            logger.addFilter(is_named)
        problem: BaseException | None = None
        try:
            for part in self.parts:
                part.attach(self.hooks)
            atexit.register(self._exit)
            self._begin()
        except BaseException as error:  # noqa: BLE001 - raised below
            problem = error
        # Not while handling it: failures now would be chained to it.
        if problem is not None:
            self.stop()
            try:
                raise problem
            finally:
                del problem  # its traceback and this frame would keep each other alive

    def stop(self) -> None:
        """
        Detach the hooks, stop threads, close sockets and unlink their files.

        All that is waited for shares one deadline. Idempotent. Does everything that it
        can, whatever fails.
        """
        if not self.running:
            return
        problem: BaseException | None = None
        try:
            self._guard.deadline.begin()
            self._end()
        except BaseException as error:  # noqa: BLE001 - raised below
            problem = error
        finally:
            self.running = False
        # The program's exception: the remaining steps must still be done.
        if problem is not None:
            self._end()
            try:
                raise problem
            finally:
                del problem

    def abandon(self) -> None:
        """
        Release resources in a forked child without touching the parent's files.

        Threads do not survive a fork and the sockets belong to the parent: hooks are
        detached and descriptors closed, files stay.
        """
        self.running = False
        atexit.unregister(self._exit)
        for part in reversed(self.parts):
            part.abandon()
        self.hooks.detach()
        self.serving.abandon()
        if self._pusher is not None:
            self._pusher.abandon()

    def _begin(self) -> None:
        if not begins("serve metrics", self.serving.start):
            self.serving.close()
        for part in self.parts:
            begins(f"start {part.name}", part.start)
        if self._pusher is not None:
            begins("export metrics", self._pusher.start)
        # What that imports, which nothing does at exit: see `exposition.add.prepare`.
        if self._pusher is not None or self._reports is not None:
            begins("collect metrics", self.collect)
        elif self.serving.socket is not None:
            begins("collect metrics", self._counted)

    def _end(self) -> None:
        self.running = False
        pushers = [] if self._pusher is None else [self._pusher]
        with contextlib.ExitStack() as steps:  # last to first
            todo: tuple[Callable[[], None], ...] = (
                *(
                    functools.partial(logger.removeFilter, is_named)
                    for logger in _LOGGERS
                ),
                self.context.scheduler.stop,
                self.serving.close,
                *(part.stop for part in self.parts),
                self._write_baseline,
                functools.partial(self.serving.withdraw, self._last),
                self.hooks.detach,
                self._markers.stop,
                functools.partial(atexit.unregister, self._exit),
                *[functools.partial(of.stop, self._guard.deadline) for of in pushers],
                *(part.send for part in self.parts),
            )
            for step in todo:
                steps.callback(self._do, step)

    def _do(self, step: Callable[[], None]) -> None:  # the others are done as well
        with self._guard.contained("stop", stays_on=True):
            step()

    def _exit(self) -> None:
        """
        At exit: write the reports that are enabled, while the hooks are still
        installed, then stop. All of it has one deadline.
        """
        self._made.loading.closed = True
        self._guard.last(self._report, self.stop)

    def _report(self) -> None:
        self._guard.deadline.begin()
        self._words.on_exit()
        crashed = self._words.crashed()
        if crashed:
            self._ending.end(CRASHED)
        if self._reports is not None:
            with self._guard.contained("report"):  # the program ends as it did
                for part in self.parts:
                    self._refresh(part, "report", asked=False)
                end = self._ending.record
                how = "" if end is None else end.line(None)
                self._reports.write(
                    self.overview,
                    self.context.events,
                    self.collect,
                    worker=str(self.serving.slot or 0),
                    crash=how if crashed else None,
                )

    def _write_baseline(self) -> None:
        directory = self.context.settings.figures_dir
        if directory is not None:
            from jaxmon.agent.compiles.programs import Programs  # noqa: PLC0415
            from jaxmon.agent.reports import baseline  # noqa: PLC0415 - few want them

            found: dict[str, Program] = {}
            if (programs := self.part(Programs)) is not None:
                programs.finish(self._guard.deadline.portion())
                found = programs.snapshot()
            baseline.write_at_end(
                self.context, found, self.part(baseline.ExactTiming), directory
            )

    def flush(self, seconds: float) -> bool:
        """
        Push metrics and spans, waiting at most so many *seconds*; return whether that
        was long enough. Failures are counted, not raised.
        """
        end = monotonic() + seconds
        # At the same time: metrics on their own thread.
        pushed = None if self._pusher is None else self._pusher.push()
        for part in self.parts:
            with self._guard.contained("flush", stays_on=True):  # the program goes on
                part.flush(max(end - monotonic(), 0))
        left = max(end - monotonic(), 0)
        return (pushed is None or pushed.wait(left)) and monotonic() <= end

    def _page(self, name: str, request: Request) -> Response:
        from jaxmon.agent.reports import pages  # noqa: PLC0415 - on request

        return pages.page(name, request, self.overview, self.context.events)

    def _own_page(self, request: Request) -> Response:
        if self._live is None:
            from jaxmon.agent.reports.pages import OwnPage  # noqa: PLC0415

            self._live = OwnPage(
                self.collect, str(self.serving.slot or 0), self.context.settings.run_dir
            )
        return self._live.respond(request)

    def refresh(self) -> None:
        """Update every part now. Failures are counted, not raised."""
        for part in self.parts:
            self._refresh(part, part.name, asked=True)

    def _refresh(self, part: Part, site: str, *, asked: bool) -> None:
        with self._guard.contained(site, stays_on=True):  # the program goes on
            part.refresh(asked=asked)

    def collect(self) -> list[Family]:
        """Return all metric families. Thread-safe; 20 µs per function."""
        return self._collect(self.parts)

    def _counted(self) -> list[Family]:
        """Return the families of the parts that are loaded."""
        loaded = (
            part for part in self.parts if not isinstance(part, LatePart) or part.part
        )
        return self._collect(loaded)

    def _collect(self, parts: Iterable[Part]) -> list[Family]:
        sources: tuple[tuple[str, Collect], ...] = (
            *((part.name, part.collect) for part in parts),
            ("hooks", self.hooks.collect),
        )
        families: list[Family] = []
        for site, source in sources:
            # A source's failure affects only its own series.
            with self._guard.contained(f"collect_{site}", stays_on=True):
                families += source()
        families += self._about.collect()
        return families if self._reduction is None else self._reduction.of(families)

    def _last(self, before: str) -> bytes:
        """
        Return what outlives this agent, added to what the text *before* has.

        Raises:
            PageError: that is invalid.
        """
        families = lasting(self._counted())
        return encode(added(families, read(before)) if before else families)

    def _on_surfaced(self, error: BaseException) -> None:
        for observe in self.context.observers.surfaced:
            observe(error)

    def _on_omitted(self, metric: catalog.Metric, error: Exception) -> None:
        del error
        self._guard.failed(f"encode:{metric.name}", stays_on=True)

    def _on_server_error(self, site: str, error: BaseException) -> None:
        shown = not isinstance(error, OSError)
        del error
        with contextlib.suppress(Exception):
            self._guard.failed(site, stays_on=True, shown=shown)


# What threads of ours log to.
_LOGGERS = log, events_log
# The live page and its data.
_OWN_PAGE = ("/", "/api/summary", "/api/history")
# Debug pages; see `jaxmon.agent.reports.pages`.
_PAGES = ("overview", "functions", "memory", "environment", "events")


def _healthy(_: Request) -> Response:
    return Response(b"ok\n")
