"""One agent: hooks in JAX, a server for their figures, and an orderly end."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from jaxmon import catalog, interrupts, rundir
from jaxmon.agent import serving as local_socket
from jaxmon.agent.agent import Agent
from jaxmon.agent.checks.determinism import Determinism
from jaxmon.agent.compiles.payers import Payers
from jaxmon.agent.context import context_of
from jaxmon.agent.functions import UNKNOWN
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.parts import Parts
from jaxmon.agent.reports import collect
from jaxmon.agent.reports import pages as debug
from jaxmon.agent.reports.overview import Overview
from jaxmon.agent.reports.profile import Profiler
from jaxmon.agent.serving import LocalSocket
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Family, series
from jaxmon.exposition.histogram import Histogram
from jaxmon.http.page import metrics_handler
from jaxmon.http.server import Request, Response, Server
from jaxmon.indicators import recorder
from jaxmon.indicators.figures import Indicators
from jaxmon.resources.container import ContainerFamilies
from jaxmon.resources.process import ProcessFamilies
from jaxmon.settings import SIDECAR_PORT, Settings


if TYPE_CHECKING:
    from jaxmon.agent.memory.profile import MemoryProfile


# How many ports after a busy one are tried.
_PORTS = 64


class RunningAgent(Agent):
    """An agent that observes, or has done so."""

    def __init__(self, jax: ModuleType, settings: Settings) -> None:
        super().__init__(settings)
        self._context = context_of(jax, settings)
        self._guard, self._table = self._context.guard, self._context.table
        self._table.named(UNKNOWN)
        self._indicators = Indicators(
            settings.max_functions, self._guard, on_error=self._see_error
        )
        self._parts = Parts(self._context)
        self._profiler = Profiler(self._context)
        self._hooks = Hooks(self._parts, Payers(self._indicators.timeline))
        self._overview = Overview(self._parts, self._hooks)
        self._process = ProcessFamilies()
        self._container = ContainerFamilies()
        self._scrapes = Histogram(catalog.SCRAPE_SECONDS)
        self._server: Server | None = None
        self._local: LocalSocket | None = None
        self._pid = os.getpid()
        self._print_report = self._report() if settings.report else None

    def start(self) -> None:
        """
        Attach the hooks and serve. Nothing that goes wrong in serving is raised; after
        anything that is raised, everything is as it was before.
        """
        self.running = True
        problem: BaseException | None = None
        try:
            self._hooks.attach()
            recorder.attach(self._indicators)
            atexit.register(self._exit)
            self._begin()
        except BaseException as error:  # noqa: BLE001 - raised below
            problem = error
        # Not while it is handled: what fails now would seem to come of it.
        if problem is not None:
            self.stop()
            try:
                raise problem
            finally:
                del problem  # its traceback and this frame would keep each other

    def stop(self) -> None:
        """
        Detach the hooks, stop threads, close sockets and unlink their files.

        Harmless when repeated. Does everything that it can, whatever fails.
        """
        if not self.running:
            return
        problem: BaseException | None = None
        try:
            self._end()
        except BaseException as error:  # noqa: BLE001 - raised below
            problem = error
        finally:
            self.running = False
        # The program's: what is left has to be done all the same.
        if problem is not None:
            self._end()
            try:
                raise problem
            finally:
                del problem

    def _end(self) -> None:
        self.running = False
        with contextlib.ExitStack() as steps:  # from the last to the first
            todo: tuple[Callable[[], None], ...] = (
                self._close,
                *(part.stop for part in self._parts.by_name.values()),
                self._profiler.stop,
                self._leave_figures,
                self._hooks.detach,
                functools.partial(recorder.detach, self._indicators),
                functools.partial(atexit.unregister, self._exit),
            )
            for step in todo:
                steps.callback(self._do, step)

    def _begin(self) -> None:
        try:
            self._serve()
            for part in self._parts.by_name.values():
                part.start()
        except (OSError, RuntimeError) as error:  # no descriptors or threads left
            interrupts.pass_on(error)
            log.warning("jaxmon observes, but cannot serve what it sees: %s", error)
            self._close()

    def _do(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - contained: the other steps are to be done
            self._guard.failed("stop", stays_on=True)

    def _report(self) -> Callable[[], None]:
        """
        Return what prints the report.

        Loaded and prepared now, not at the end: after an `exec` or `eval`, Python no
        longer knows that an interrupt ends the program, and with which exit code.
        """
        from jaxmon.agent.reports import exit_report  # noqa: PLC0415 - few want a report

        exit_report.prepare()
        return lambda: exit_report.write(exit_report.text(self._parts, self._overview))

    def _exit(self) -> None:
        """
        Report, if that is wanted, while the hooks are still in place, and stop.

        A second signal ends that, too: nobody is left to catch what its handler raises,
        and Python would print where in our code it came.
        """
        try:
            if self._print_report is not None:
                try:
                    self._print_report()
                except Exception:  # noqa: BLE001 - contained: the program ends as it did
                    self._guard.failed("report")
            self.stop()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            if self._guard.strict and isinstance(error, Exception):
                raise

    def _leave_figures(self) -> None:
        if self.settings.figures_dir is None:
            return
        try:
            from jaxmon.agent.reports import baseline as figures  # noqa: PLC0415 - few want them

            figures.leave(self._parts, self.settings.figures_dir)
        except Exception as error:  # noqa: BLE001 - contained: the program goes on
            interrupts.pass_on(error)
            log.warning("jaxmon could not leave its figures: %s", error)

    def _close(self) -> None:
        if self._local is not None:
            self._local.close()
        if self._server is not None:
            self._server.stop()
        self.url = None

    @property
    def socket(self) -> str | None:
        """Path of the Unix socket, `None` when there is none."""
        return None if self._local is None else self._local.path

    @property
    def determinism(self) -> Determinism:
        """Where the outcomes of checks are kept."""
        return self._parts.determinism

    def refresh(self) -> None:
        """Look now."""
        for site, look in (
            ("memory", self._parts.memory.look),
            ("allocations", self._parts.allocations.look),
        ):
            try:
                look()
            except Exception:  # noqa: BLE001 - contained: the program goes on
                self._guard.failed(site, stays_on=True)

    def memory(self) -> MemoryProfile:
        """Return who holds memory now."""
        return self._parts.allocations.profile()

    def abandon(self) -> None:
        """
        Leave everything to the parent process; called in a forked child.

        Threads do not survive a fork and the sockets are the parent's: the hooks
        come off and the descriptors are closed, files stay.
        """
        self.running = False
        atexit.unregister(self._exit)
        recorder.detach(self._indicators)
        self._hooks.detach()
        self._profiler.abandon()
        if self._server is not None:
            self._server.abandon()
        if self._local is not None:
            self._local.abandon()
        self.url = None

    def collect(self) -> list[Family]:
        """Return every family of the page."""
        sources: tuple[tuple[str, Callable[[], list[Family]]], ...] = (
            # It settles what has ended, for the figures of functions.
            ("compiles", lambda: collect.compiles(self._hooks.compiles)),
            ("functions", self._functions),
            ("indicators", self._indicators.collect),
            *((name, part.collect) for name, part in self._parts.by_name.items()),
            ("hooks", self._hooks.collect),
            ("process", self._process.collect),
            ("container", self._container.collect),
        )
        families: list[Family] = []
        for site, source in sources:
            # One source's failure costs its own series only.
            try:
                families += source()
            except Exception:  # noqa: BLE001 - contained and counted
                self._guard.failed(f"collect_{site}", stays_on=True)
        return [*families, *self._own()]

    def _functions(self) -> list[Family]:
        known = self._hooks.is_active("misses")
        return collect.functions(self._table, hits_known=known)

    def _own(self) -> list[Family]:
        errors, overflow = catalog.INTERNAL_ERRORS, catalog.LABEL_OVERFLOW
        dropped = catalog.DROPPED
        server = self._server
        return [
            Family(
                errors,
                [(series(errors, s), n) for s, n in self._guard.failures().items()],
            ),
            Family(
                overflow,
                [
                    (series(overflow, label), count)
                    for label, count in (
                        ("function", self._table.overflow.value),
                        *self._indicators.overflow().items(),
                    )
                ],
            ),
            Family(
                dropped,
                [
                    (series(dropped, "connection"), server.dropped if server else 0),
                    (series(dropped, "figure"), self._parts.device_figures.dropped),
                    (series(dropped, "program"), self._parts.programs.refused.value),
                    (series(dropped, "sample"), self._parts.sampling.dropped),
                ],
            ),
            Family(catalog.SCRAPE_SECONDS, self._scrapes.samples()),
        ]

    def _see_error(self, error: BaseException) -> None:
        self._hooks.see_error(error)

    # --- serving -----------------------------------------------------------------

    def _serve(self) -> None:
        server = Server(
            {
                "/metrics": metrics_handler(
                    self.collect, self._scrapes, failed=self._left_out
                ),
                "/-/healthy": _healthy,
            },
            local_routes={
                **debug.routes(self._overview, self._context.events),
                "/debug/profile": self._profiler.page,
            },
            name="jaxmon-server",
            on_error=self._on_server_error,
        )
        # Known first: whatever goes wrong, it is closed again.
        self._server = server
        listening = [self._listen_tcp(server), self._listen_unix(server)]
        if not any(listening):
            self._server = None
            return
        server.start()

    def _listen_tcp(self, server: Server) -> bool:
        first, host = self.settings.port, self.settings.host
        if first is None:
            return False
        last = min(first + _PORTS, 65535) if first else 0
        for port in range(first, last + 1):
            if port == SIDECAR_PORT != first:
                continue
            try:
                bound = server.listen_tcp(host, port)
            except OSError as error:
                interrupts.pass_on(error)
                problem = error
                continue
            if first and bound != first:
                log.warning(
                    "port %d is taken; jaxmon serves on %d instead", first, bound
                )
            shown = f"[{host}]" if ":" in host else host
            self.url = f"http://{shown}:{bound}/metrics"
            return True
        log.warning(
            "jaxmon serves no TCP port: %s:%d to %d: %s", host, first, last, problem
        )
        return False

    def _listen_unix(self, server: Server) -> bool:
        if not self.settings.socket:
            return False
        local = LocalSocket(server, rundir.locate(self.settings.run_dir))
        # Known first, as the server is.
        self._local = local
        try:
            local.open()
        except (JaxmonError, OSError) as error:
            interrupts.pass_on(error)
            log.warning("jaxmon serves no Unix socket for the sidecar: %s", error)
            self._local = None
            return False
        server.every(local_socket.EVERY, local.look)
        return True

    def _left_out(self, metric: catalog.Metric, error: Exception) -> None:
        del error
        self._guard.failed(f"encode:{metric.name}", stays_on=True)

    def _on_server_error(self, site: str, error: BaseException) -> None:
        del error
        with contextlib.suppress(Exception):
            self._guard.failed(site, stays_on=True)


def _healthy(_: Request) -> Response:
    return Response(b"ok\n")
