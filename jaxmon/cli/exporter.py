"""``jaxmon exporter``: the sidecar."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import click

from jaxmon.cli import output
from jaxmon.cli.options import FILE, from_file, option, sidecar_options, subcommand
from jaxmon.errors import CommandError, raised
from jaxmon.host import rundir
from jaxmon.host.formats.layout import clean
from jaxmon.limits import Limits
from jaxmon_exporter.options import PREFIX, SidecarOptions


@subcommand()
def command(
    *,
    chosen: dict[str, Any] = sidecar_options(),
    price_table: Path | None = option(FILE, "--prices", envvar=f"{PREFIX}PRICES"),
    prices: tuple[str, ...] = option(
        str, "--price", metavar="MODEL=DOLLARS", multiple=True, envvar=f"{PREFIX}PRICE"
    ),
    limits_file: Path | None = option(FILE, "--limits", envvar="JAXMON_LIMITS"),
    log_level: str = option(
        click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="info",
        envvar=f"{PREFIX}LOG_LEVEL",
    ),
) -> None:
    """
    Serve the metrics of this host: JAX processes, GPUs, itself.

    Collects from every instrumented process on the host over Unix sockets, so
    Prometheus has one target per host. Runs until SIGTERM or SIGINT.

    Options:
        price_table: Price table, dollars per hour: YAML 'model: dollars' or CSV
            'model,dollars'.
        prices: Dollars per hour for one model, overrides --prices: H100=2.5;
            repeatable.
        limits_file: Judge by the limits in this slo.yaml, or JSON; agents and commands
            that use the same run directory then do, too.
        log_level: Minimum severity of log messages on standard error.

    Endpoints:
      /              live overview of this host
      /metrics       for Prometheus, text or OpenMetrics
      /api/summary   data of the landing page, as JSON
      /api/history   its charts, as JSON
      /-/healthy     200 while this process is serving
      /-/ready       200 once every collector has been polled

    Signals:
      SIGTERM, SIGINT   stop, even during startup; a second one exits immediately
      SIGHUP            reload --web-config and its certificates; options and prices
                        need a restart

    Exit codes:
      0   stopped by SIGTERM or SIGINT
      1   could not start: the address is in use or not local; or, if enabled, exited
          because the GPU driver was upgraded or removed

    Example:
      jaxmon exporter --port 9467 --run-dir /run/jaxmon
    """
    handler = logging.StreamHandler()
    handler.setFormatter(
        LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    signals = Signals()
    chosen["run_dir"] = chosen["run_dir"] or rundir.locate()
    chosen["disks"] = chosen["disks"] or _cache_directory()
    try:
        with _loading():
            from jaxmon_exporter.service import Service

            options = SidecarOptions(
                **chosen,
                prices=_prices(price_table, prices),
                limits=from_file(limits_file) if limits_file else Limits(),
            )
            service = Service(options, give_up=signals.give_up)
            bound = service.start()
        signals.loaded()
    except Stopped:
        return
    scheme = "https" if service.encrypted else "http"
    output.line(
        f"jaxmon exporter: {scheme}://{_reachable(options.host)}:{bound}/", err=True
    )
    output.line(f"jaxmon exporter: agents in {options.run_dir}", err=True)
    try:
        reason = signals.wait(service.reload)
    finally:
        service.stop()
    if reason:
        raise CommandError(reason)


class LogFormatter(logging.Formatter):
    """Formats what others say as sanitised lines, none of which looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as text."""
        first, *rest = super().format(record).split("\n")
        return "\n".join([clean(first), *(f"  {clean(line)}" for line in rest)])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        """Return the message of *record* with the time and the rest."""
        record.message = clean(record.message)
        return super().formatMessage(record)


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    """Load without collecting garbage, which takes a tenth of the start, and freeze."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _prices(table: Path | None, flags: Sequence[str]) -> Mapping[str, float]:
    if not table and not flags:
        return {}
    from jaxmon_exporter.prices import from_file, from_flags

    with raised(click.UsageError, "", CommandError):
        found = from_flags(flags)
    return {**(from_file(table) if table else {}), **found}


def _cache_directory() -> tuple[Path, ...]:
    directory = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    return (Path(directory),) if directory and "://" not in directory else ()


def _reachable(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return "localhost"
    return f"[{host}]" if ":" in host else host


_STOP, _RELOAD = "stop", "reload"
# A signal that comes just before the main thread blocks does not interrupt it.
_LOOK_SECONDS = 0.5


class Stopped(BaseException):
    """SIGTERM or SIGINT came before `Signals.wait`; no error handling swallows it."""


class Signals:
    """
    Handles this process's signals, on the main thread, and stop requests from other
    threads. SIGTERM and SIGINT stop, a second one immediately; SIGHUP reloads.
    """

    def __init__(self) -> None:
        # Its put() may interrupt its get() on the same thread, as a handler does.
        self._events: SimpleQueue[str] = SimpleQueue()
        self._loading = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, lambda *_: self._events.put(_RELOAD))

    def give_up(self, reason: str) -> None:
        """End `wait` with *reason*; thread-safe."""
        self._events.put(reason)

    def loaded(self) -> None:
        """From now on, stop signals end `wait` instead of raising `Stopped`."""
        self._loading = False

    def wait(self, reload: Callable[[], None]) -> str:
        """Wait until stopped; return the reason of a failure, ``""`` without one."""
        while True:
            with suppress(Empty):
                event = self._events.get(timeout=_LOOK_SECONDS)
                if event != _RELOAD:
                    return "" if event == _STOP else event
                reload()

    def _stop(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # Also where it is raised into something that swallows it.
        self._events.put(_STOP)
        if self._loading:
            raise Stopped
