"""
``jaxmon exporter``: the sidecar.
"""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path

import click

from jaxmon import rundir
from jaxmon_exporter.options import COLLECTORS, Options


_ENV = "JAXMON_EXPORTER_"
_SECONDS = click.FloatRange(min=0.1, max=3600.0)
_DEFAULTS = Options(run_dir=Path())

_EPILOG = """
\b
Pages:
  /              what this host is doing, live
  /metrics       for Prometheus, text or OpenMetrics
  /api/summary   the landing page's figures, as JSON
  /-/healthy     200 while this process serves
  /-/ready       200 once every collector was polled

\b
Exit codes:
  0   stopped by SIGTERM or SIGINT
  1   could not start: the address is in use or not of this host
  2   the command line or a variable is wrong

\b
Example:
  jaxmon exporter --port 9467 --run-dir /run/jaxmon
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--host",
    default=_DEFAULTS.host,
    envvar=f"{_ENV}HOST",
    show_default=True,
    show_envvar=True,
    help="IP address to listen on; 127.0.0.1 for this host alone.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_DEFAULTS.port,
    envvar=f"{_ENV}PORT",
    show_default=True,
    show_envvar=True,
    help="TCP port; 0 takes any free one.",
)
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="JAXMON_RUN_DIR",
    show_envvar=True,
    help="Where the agents' sockets are; by default where agents of this user "
    "put them. It need not exist yet.",
)
@click.option(
    "--agents-interval",
    type=_SECONDS,
    default=_DEFAULTS.agents_interval,
    envvar=f"{_ENV}AGENTS_INTERVAL",
    show_default=True,
    show_envvar=True,
    help="Seconds between two looks at the agents.",
)
@click.option(
    "--host-interval",
    type=_SECONDS,
    default=_DEFAULTS.host_interval,
    envvar=f"{_ENV}HOST_INTERVAL",
    show_default=True,
    show_envvar=True,
    help="Seconds between two looks at the host.",
)
@click.option(
    "--nvml-interval",
    type=_SECONDS,
    default=_DEFAULTS.nvml_interval,
    envvar=f"{_ENV}NVML_INTERVAL",
    show_default=True,
    show_envvar=True,
    help="Seconds between two looks at NVIDIA GPUs.",
)
@click.option(
    "--disable",
    "disabled",
    type=click.Choice(COLLECTORS),
    multiple=True,
    envvar=f"{_ENV}DISABLE",
    show_envvar=True,
    help="Leave a collector out; repeat for more (in the variable, separate by "
    "spaces).",
)
@click.option(
    "--demo",
    is_flag=True,
    envvar=f"{_ENV}DEMO",
    show_envvar=True,
    help="Add a synthetic fleet of 8 accelerators and 4 workers.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    envvar=f"{_ENV}LOG_LEVEL",
    show_default=True,
    show_envvar=True,
    help="Least severe messages to write to standard error.",
)
def command(
    *,
    host: str,
    port: int,
    run_dir: Path | None,
    agents_interval: float,
    host_interval: float,
    nvml_interval: float,
    disabled: tuple[str, ...],
    demo: bool,
    log_level: str,
) -> None:
    """
    Serve the metrics of this host: its JAX processes, GPUs and itself.

    Collects from every instrumented process on the host over Unix sockets, so
    Prometheus has one target per host. Runs until SIGTERM or SIGINT.
    """
    from jaxmon_exporter.service import Service

    logging.basicConfig(
        level=log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    options = Options(
        run_dir=run_dir or rundir.locate(),
        host=host,
        port=port,
        agents_interval=agents_interval,
        host_interval=host_interval,
        nvml_interval=nvml_interval,
        disabled=frozenset(disabled),
        demo=demo,
    )
    stopping = _stop_event()
    service = Service(options)
    bound = service.start()
    click.echo(f"jaxmon exporter: http://{_reachable(host)}:{bound}/", err=True)
    click.echo(f"jaxmon exporter: agents in {options.run_dir}", err=True)
    try:
        stopping.wait()
    finally:
        service.stop()


def _reachable(host: str) -> str:
    """
    Return *host* as a browser on this machine wants it.
    """
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return "localhost"
    return f"[{host}]" if ":" in host else host


def _stop_event() -> threading.Event:
    """
    Return what SIGTERM and SIGINT set; a second signal ends the process at once.
    """
    event = threading.Event()

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return event


def main() -> None:
    """
    Run as ``jaxmon-exporter``.
    """
    from jaxmon.cli.main import exporter

    exporter()
