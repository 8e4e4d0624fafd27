"""
The sidecar: collectors, their pollers, and the server in front of them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator

from jaxmon.catalog import BUILD_INFO, DROPPED, INTERNAL_ERRORS, SCRAPE_SECONDS
from jaxmon.errors import CommandError
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.exposition.histogram import Histogram
from jaxmon.exposition.process import ProcessFamilies
from jaxmon.exposition.server import Server, metrics_handler
from jaxmon.version import version
from jaxmon_exporter import pages
from jaxmon_exporter.collectors.agents import Agents
from jaxmon_exporter.collectors.demo import Demo
from jaxmon_exporter.collectors.host import Host
from jaxmon_exporter.collectors.nvml import NvidiaGpus
from jaxmon_exporter.options import Options
from jaxmon_exporter.polling import Collector, Polling
from jaxmon_exporter.summary import Summary, summarise


log = logging.getLogger("jaxmon.exporter")


class Service:
    """
    A running sidecar: made, started once, stopped once.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._version = version()
        self._process = ProcessFamilies()
        self._seconds = Histogram(SCRAPE_SECONDS)
        self._errors: Counter[str] = Counter()
        self._polling = Polling(_collectors(options))
        self._server = Server(
            {
                "/": pages.landing_page(),
                "/metrics": metrics_handler(self.families, self._seconds),
                "/api/summary": pages.summary_page(self.summary),
                "/-/healthy": pages.health_page(),
                "/-/ready": pages.ready_page(self._polling.ready),
            },
            name="jaxmon-exporter",
            on_error=self._count_error,
        )

    def start(self) -> int:
        """
        Bind, then start serving and polling; return the port.

        Raises:
            CommandError: the address cannot be bound.
        """
        host, wanted = self._options.host, self._options.port
        try:
            port = self._server.listen_tcp(host, wanted)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            msg = (
                f"cannot listen on {host} port {wanted}: {reason}; stop what uses it, "
                "or choose another with --host and --port (0 takes any free port)"
            )
            raise CommandError(msg) from error
        self._polling.start()
        self._server.start()
        return port

    def stop(self) -> None:
        """
        Finish the responses under way and stop, within some eight seconds.
        """
        self._server.stop()
        if stuck := self._polling.stop():
            log.warning("left behind, still waiting: %s", ", ".join(stuck))

    def families(self) -> Iterator[Family]:
        """
        Return what ``/metrics`` shows; reads memory and ``/proc/self`` alone.
        """
        yield gauge(BUILD_INFO, 1, self._version)
        yield from self._polling.families()
        yield from self._process.collect()
        yield gauge(DROPPED, self._server.dropped, "connection")
        yield Family(SCRAPE_SECONDS, self._seconds.samples())
        if self._errors:
            yield Family(
                INTERNAL_ERRORS,
                [
                    (series(INTERNAL_ERRORS, site), count)
                    for site, count in self._errors.copy().items()
                ],
            )

    def summary(self) -> Summary:
        """
        Return what ``/api/summary`` shows.
        """
        return summarise(
            self._polling.families(),
            self._polling.statuses(),
            version=self._version,
            time=time.time(),
            run_dir=self._options.run_dir,
        )

    def _count_error(self, site: str, error: BaseException) -> None:
        self._errors[site] += 1
        if self._errors[site] == 1:
            log.error("%s failed; counted from now on", site, exc_info=error)


def _collectors(options: Options) -> list[Collector]:
    known: dict[str, Callable[[], Collector]] = {
        "agents": lambda: Agents(options.run_dir, interval=options.agents_interval),
        "host": lambda: Host(interval=options.host_interval),
        "nvml": lambda: NvidiaGpus(interval=options.nvml_interval),
    }
    chosen = [make() for name, make in known.items() if name not in options.disabled]
    return [*chosen, Demo()] if options.demo else chosen
