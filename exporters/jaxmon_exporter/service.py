"""The sidecar service: collectors, pollers and the HTTP server."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.errors import CommandError, JaxmonError, OtlpError, raised
from jaxmon.exposition.families import (
    Family,
    Histogram,
    Sample,
    by_label,
    gauge,
    samples_of,
)
from jaxmon.facts.charts import EVERY
from jaxmon.facts.status import HostVerdict
from jaxmon.host.http.routes import HostPolicy
from jaxmon.host.http.server import Request, Server, metrics_handler
from jaxmon.host.resources import container
from jaxmon.host.resources.process import ProcessFamilies
from jaxmon.version import version
from jaxmon_exporter import pages
from jaxmon_exporter.collectors import registry
from jaxmon_exporter.options import SidecarOptions
from jaxmon_exporter.pages import Live, Refreshed
from jaxmon_exporter.polling import Clock, PollerGroup


if TYPE_CHECKING:
    from jaxmon.facts.status import Summary
    from jaxmon.otel.pusher import Pusher
    from jaxmon_exporter.gate import AccessGate
    from jaxmon_exporter.polling import Collector
    from jaxmon_exporter.ranks import Ranks


_LOOK_EVERY = 0.1


@dataclass(eq=False)
class Unseen:
    """Which ended processes were in a response, or a push, of the latest *families*."""

    families: Callable[[], Iterable[Family]]
    clock: Clock
    _seen: set[tuple[str, float]] = field(default_factory=set)

    def seen(self, families: Iterable[Family]) -> None:
        """Note that *families* are about to be sent."""
        self._seen = _ended(families)

    def wait(self, seconds: float, *, least: float) -> None:
        """Wait until all have been seen, *least* to *seconds* seconds."""
        begun = self.clock()
        pause = threading.Event()
        while (waited := self.clock() - begun) < seconds:
            if waited >= least and _ended(self.families()) <= self._seen:
                return
            pause.wait(_LOOK_EVERY)


def _ended(families: Iterable[Family]) -> set[tuple[str, float]]:
    """Return the workers that have ended, with how many started in their slot."""
    page = list(families)
    starts = {
        name.partition("{")[2]: number
        for name, number in samples_of(page, catalog.AGENT_STARTS)
    }
    ended = samples_of(page, catalog.AGENT_ENDED_SECONDS)
    workers = {name.partition("{")[2] for name, _ in ended}
    return {(worker, starts.get(worker, 0)) for worker in workers}


log = logging.getLogger("jaxmon.exporter")

_FINDINGS_EVERY = 10.0
# For each of the two responses of an agent. A reader waits somewhat longer than for
# both, and the landing page longer than that.
_FINDINGS_TIMEOUT = 3.0
_FINDINGS_PATIENCE = 8.0
_RANKS_EVERY = 5.0
_NOT_READ = {
    "": "being read",
    "agents": "unknown, because the agents collector is disabled",
    "off": "disabled by --findings off",
    "trusted": (
        "not shown here, because they name files, lines and values: open this page on "
        "the host itself or through a port forwarded to it, protect it with "
        "--web-config, or show them to all with --findings all"
    ),
}

_ADVICE = {
    errno.EADDRINUSE: (
        "stop the program that uses it, or choose another --port (0 picks a free one)"
    ),
    errno.EADDRNOTAVAIL: "use a local address for --host, or omit it",
    errno.EACCES: "choose a --port from 1024 up",
}


class Service:
    """A running sidecar; *give_up* is called if only a new process can continue."""

    def __init__(
        self, options: SidecarOptions, *, give_up: Callable[[str], None] = log.error
    ) -> None:
        self._options = options
        self._version = version()
        self._seconds = Histogram(catalog.SCRAPE_SECONDS)
        self._errors: Counter[str] = Counter()
        self._gate: AccessGate | None = None
        # By site: what makes further families of those that are polled. What few use
        # is loaded on demand: half a megabyte, and startup time.
        self._sources: dict[str, Callable[[list[Family]], Iterable[Family]]] = {}
        if options.compat == "dcgm":
            from jaxmon_exporter.dcgm_fields import DcgmNames  # noqa: PLC0415 - see above

            self._sources["compat"] = DcgmNames().families
        if options.prices:
            from jaxmon_exporter.prices import Prices  # noqa: PLC0415 - see above

            prices = Prices(options.prices)
            self._sources["prices"] = lambda found: [prices.family(found)]
        process = ProcessFamilies()
        self._sources["process"] = lambda _: process.collect()
        self._sources["container"] = lambda _: container.families()
        if options.web_config:
            from jaxmon_exporter.gate import AccessGate  # noqa: PLC0415 - see above

            gate = self._gate = AccessGate(options.web_config)
            self._sources["web_config"] = lambda _: [gate.family()]
        primary, secondary = registry.make(options, give_up)
        self._polling = PollerGroup(
            primary,
            secondary=secondary,
            all_gpus=options.dcgm_all_gpus,
            all_rates=options.compat == "dcgm",
        )
        self._verdict = Refreshed(
            self._judge,
            partial(self._count_error, "findings"),
            every=_FINDINGS_EVERY,
            patience=_FINDINGS_PATIENCE,
        )
        self._live = Live(
            self._polling.families,
            version=self._version,
            run_dir=str(options.run_dir),
            limits=options.limits,
        )
        self._unseen = Unseen(self._polling.families, clock=time.monotonic)
        self._ranks = self._make_ranks(primary) if options.peer_access else None
        self._pusher = self._make_pusher() if options.otlp else None
        self._server = Server(
            {
                "/": pages.landing_page,
                "/metrics": metrics_handler(
                    self.families,
                    self._seconds,
                    failed=lambda of, error: self._count_error(
                        f"encode:{of.name}", error
                    ),
                ),
                "/api/summary": pages.summary_page(
                    self.summary, admits=self._admits, refresh=self._verdict.refresh
                ),
                "/api/history": pages.history_page(self._live.charts),
                **({} if self._ranks is None else {"/job": self._ranks.page}),
                "/-/healthy": pages.health_page,
                "/-/ready": pages.ready_page(self._polling.ready),
            },
            name="jaxmon-exporter",
            hosts=HostPolicy(options.allowed_hosts),
            on_error=self._count_error,
        )

    def start(self) -> int:
        """Bind, then start all; return the port. Raises `CommandError`."""
        host, wanted = self._options.host, self._options.port
        try:
            port = self._server.listen_tcp(host, wanted, gate=self._gate)
        except (OSError, OverflowError) as error:
            msg = f"cannot listen on {host} port {wanted}: {_reason(error)}"
            raise CommandError(msg) from error
        self._server.every(EVERY, self._live.sample)
        if self._ranks is not None:
            self._ranks.refresh()
            self._server.every(_RANKS_EVERY, self._ranks.refresh)
        self._publish_limits()
        self._polling.start()
        self._server.start()
        if self._pusher is not None:
            self._pusher.start()
        return port

    def stop(self) -> None:
        """Finish responses and stop within about eleven seconds, after `linger`."""
        if self._options.linger and "agents" not in self._options.disabled:
            # A process that has just ended is seen by the next poll.
            least = 2 * self._options.agents_interval
            self._unseen.wait(self._options.linger, least=least)
        if self._pusher is not None:
            self._pusher.stop()
        self._server.stop()
        if self._ranks is not None:
            self._ranks.close()
        if self._gate is not None:
            self._gate.close()
        if stuck := self._polling.stop():
            log.warning("collectors still blocked at shutdown: %s", ", ".join(stuck))

    def reload(self) -> None:
        """Reload what can change at run time; never raises."""
        if self._gate is None:
            log.info("nothing to reload: no --web-config")
        elif self._gate.reload():
            log.info("reloaded: %s", self._options.web_config)

    @property
    def encrypted(self) -> bool:
        """Return whether clients must use TLS."""
        return self._gate is not None and self._gate.encrypted

    def families(self) -> Iterator[Family]:
        """Return what ``/metrics`` shows; reads only memory and ``/proc/self``."""
        yield gauge(catalog.BUILD_INFO, 1, self._version)
        found = self._contained("polling", self._polling.families)
        self._unseen.seen(found)
        yield from found
        for site, source in self._sources.items():
            yield from self._contained(site, partial(source, found))
        yield gauge(catalog.DROPPED, self._server.dropped, "connection")
        yield gauge(catalog.DROPPED, self._polling.dropped, "figure")
        yield Family(catalog.SCRAPE_SECONDS, self._seconds.samples())
        if (pusher := self._pusher) is not None:
            yield from pusher.families()
        if self._errors:
            yield by_label(catalog.INTERNAL_ERRORS, self._errors.copy())

    def summary(
        self,
        admitted: bool,  # noqa: FBT001 - one of two variants
        worker: str | None = None,
    ) -> Summary | None:
        """Return what ``/api/summary`` shows, with findings to the *admitted*."""
        found = HostVerdict(trouble=_NOT_READ[""])
        if not admitted:
            found = HostVerdict(trouble=_NOT_READ[self._withheld() or "trusted"])
        elif (latest := self._verdict.latest()) is not None:
            verdict, age = latest
            found = verdict.replace(age=age)
        return self._live.summary(self._polling.statuses(), found, worker)

    def _publish_limits(self) -> None:
        """Let the agents and the commands of the run directory judge alike."""
        from jaxmon.limits.shared import publish  # noqa: PLC0415 - once

        try:
            publish(self._options.run_dir, self._options.limits)
        except (JaxmonError, OSError) as error:
            log.warning(
                "agents and commands judge by their own limits: cannot write those of "
                "--limits to the run directory: %s",
                error,
            )

    def _judge(self) -> HostVerdict:
        from jaxmon_exporter.judge import judge  # noqa: PLC0415 - few look

        options = self._options
        return judge(options.run_dir, options.limits, timeout=_FINDINGS_TIMEOUT)

    def _withheld(self) -> str:
        if "agents" in self._options.disabled:
            return "agents"
        return "off" if self._options.findings == "off" else ""

    def _admits(self, request: Request) -> bool:
        shown = self._options.findings == "all" or request.trusted
        return shown and not self._withheld()

    def _make_ranks(self, collectors: Iterable[Collector]) -> Ranks:
        from jaxmon_exporter.endings import xids  # noqa: PLC0415 - few serve peers
        from jaxmon_exporter.ranks import HostSources, Ranks, throttled  # noqa: PLC0415 - likewise

        guarded = self._gate is not None and self._gate.guards
        if not guarded and not ip_address(self._options.host).is_loopback:
            msg = (
                "--peer-access shows files and lines of programs to all who can reach "
                f"{self._options.host}: protect it with TLS or passwords "
                "(--web-config), or listen with --host 127.0.0.1"
            )
            raise CommandError(msg)
        sources = HostSources(
            lambda: xids(self._contained("xids", self._polling.families), time.time()),
            lambda: throttled(self._contained("gpus", self._polling.families)),
        )
        found: dict[str, Any] = {of.name: of for of in collectors}
        for kind, name in (("nccl", "nccl"), ("collectives", "nccl_inspector")):
            if name in found:
                sources = replace(sources, **{kind: found[name].found})
        failed = partial(self._count_error, "ranks")
        return Ranks(self._options.run_dir, failed, sources=sources)

    def _make_pusher(self) -> Pusher:
        from jaxmon.otel.environment import plan  # noqa: PLC0415 - few push
        from jaxmon.otel.pusher import Pusher  # noqa: PLC0415 - likewise

        made = Pusher(
            lambda: unpushed(self.families()),
            plan(os.environ)._replace(
                from_zero=False, name="jaxmon-exporter", names=self._options.otlp_names
            ),
            failed=self._count_current_error,
        )
        with raised(CommandError, "", OtlpError):
            made.prepare()
        return made

    def _contained(
        self, site: str, source: Callable[[], Iterable[Family]]
    ) -> list[Family]:
        """Collect from *source*; a failure only drops its own series."""
        try:
            return list(source())
        except Exception as error:  # noqa: BLE001 - contained and counted
            self._count_error(site, error)
            return []

    def _count_current_error(self, site: str) -> None:
        if (error := sys.exception()) is not None:
            self._count_error(site, error)

    def _count_error(self, site: str, error: BaseException) -> None:
        self._errors[site] += 1
        if self._errors[site] == 1:
            log.error(
                "%s failed; further failures are only counted", site, exc_info=error
            )


def _reason(error: OSError | OverflowError) -> str:
    number = getattr(error, "errno", None)
    if number in _ADVICE:
        return f"{os.strerror(number)}; {_ADVICE[number]}"
    return getattr(error, "strerror", None) or str(error)


def unpushed(families: Iterable[Family]) -> list[Family]:
    """Return *families* without the series of agents that push themselves."""
    from jaxmon.exposition.parse import labels  # noqa: PLC0415 - few push

    page = list(families)
    exports = (labels(name) for name, _ in samples_of(page, catalog.OTLP_EXPORTS))
    workers = {of.get("worker", "") for of in exports if of.get("signal") == "metrics"}
    # The label is put first when a series is relayed.
    starts = tuple(
        f'worker="{worker}"{end}' for worker in workers - {""} for end in (",", "}")
    )

    def is_kept(sample: Sample) -> bool:
        return not sample[0].partition("{")[2].startswith(starts)

    return [
        family
        if family.metric.sources == catalog.SIDECAR
        else family._replace(samples=list(filter(is_kept, family.samples)))
        for family in page
    ]
