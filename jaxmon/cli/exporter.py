"""``jaxmon exporter``: the sidecar."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from jaxmon import rundir
from jaxmon.cli import addresses, output
from jaxmon.cli.logs import LogFormatter
from jaxmon.cli.options import Number, Whole
from jaxmon.cli.signals import Signals, Stopped
from jaxmon.errors import CommandError
from jaxmon_exporter.options import COLLECTORS, COMPAT, Options


_ENV = "JAXMON_EXPORTER_"
_SECONDS = Number(min=0.1, max=3600.0)
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
Signals:
  SIGTERM, SIGINT   stop, also while files are loaded; the second at once
  SIGHUP            read --web-config and its certificates again; options and
                    prices take a restart

\b
Exit codes:
  0   stopped by SIGTERM or SIGINT
  1   could not start: the address is in use or not of this host; or, if asked to,
      ended because the driver of the GPUs was upgraded or taken away
  2   the command line or a variable is wrong

\b
Example:
  jaxmon exporter --port 9467 --run-dir /run/jaxmon
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--host",
    default=_DEFAULTS.host,
    callback=addresses.listened,
    envvar=f"{_ENV}HOST",
    show_default=True,
    show_envvar=True,
    help="IP address to listen on, by default all; 127.0.0.1 for this host alone.",
)
@click.option(
    "--port",
    type=Whole(0, 65535),
    default=_DEFAULTS.port,
    envvar=f"{_ENV}PORT",
    show_default=True,
    show_envvar=True,
    help="TCP port; 0 takes any free one.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    callback=addresses.names,
    envvar=f"{_ENV}ALLOWED_HOST",
    show_envvar=True,
    help="Answer browsers and local proxies by this name, too: gpu-7.example.com, "
    "*.example.com, or * for any; repeat for more. Scrapers elsewhere may use every "
    "name as it is.",
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
    "--disk",
    "disks",
    type=click.Path(path_type=Path),
    multiple=True,
    envvar=f"{_ENV}DISK",
    show_envvar=True,
    help="Watch the file system of this directory; repeat for more. By default "
    "that of JAX's persistent cache, if JAX_COMPILATION_CACHE_DIR names one here.",
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
    "--gpu-processes",
    type=Whole(0, 1000),
    default=_DEFAULTS.gpu_processes,
    envvar=f"{_ENV}GPU_PROCESSES",
    show_default=True,
    show_envvar=True,
    help="Tell the memory of this many processes per GPU, the largest, by their "
    "number; the rest as one. 0: none.",
)
@click.option(
    "--exit-on-driver-mismatch",
    is_flag=True,
    envvar=f"{_ENV}EXIT_ON_DRIVER_MISMATCH",
    show_envvar=True,
    help="End with code 1 when NVIDIA's driver was upgraded under this process, or "
    "its devices were taken from this container: only a new one reaches them again.",
)
@click.option(
    "--gpm-interval",
    type=_SECONDS,
    default=_DEFAULTS.gpm_interval,
    envvar=f"{_ENV}GPM_INTERVAL",
    show_default=True,
    show_envvar=True,
    help="Seconds between two samples of what GPUs are busy with (Hopper and later).",
)
@click.option(
    "--dcgm",
    metavar="URL",
    default="",
    callback=addresses.page,
    envvar=f"{_ENV}DCGM",
    show_envvar=True,
    help="Fill gaps from a dcgm-exporter: http://localhost:9400/metrics. Off by "
    "default.",
)
@click.option(
    "--dcgm-interval",
    type=_SECONDS,
    default=_DEFAULTS.dcgm_interval,
    envvar=f"{_ENV}DCGM_INTERVAL",
    show_default=True,
    show_envvar=True,
    help="Seconds between two looks at the dcgm-exporter.",
)
@click.option(
    "--dcgm-all-gpus",
    is_flag=True,
    envvar=f"{_ENV}DCGM_ALL_GPUS",
    show_envvar=True,
    help="Take from it also GPUs that NVML does not show to this process.",
)
@click.option(
    "--compat",
    type=click.Choice(COMPAT),
    default=None,
    envvar=f"{_ENV}COMPAT",
    show_envvar=True,
    help="Give GPU figures dcgm-exporter's names too, for dashboards made for it.",
)
@click.option(
    "--tpu-interval",
    type=_SECONDS,
    default=_DEFAULTS.tpu_interval,
    envvar=f"{_ENV}TPU_INTERVAL",
    show_default=True,
    show_envvar=True,
    help="Seconds between two looks at TPUs.",
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
    "--prices",
    "price_table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar=f"{_ENV}PRICES",
    show_envvar=True,
    help="What accelerators cost: YAML 'model: dollars', or CSV 'model,dollars', per "
    "hour.",
)
@click.option(
    "--price",
    "prices",
    metavar="MODEL=DOLLARS",
    multiple=True,
    envvar=f"{_ENV}PRICE",
    show_envvar=True,
    help="Dollars per hour of one model, wins over --prices: H100=2.5; repeat for "
    "more.",
)
@click.option(
    "--web-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar=f"{_ENV}WEB_CONFIG",
    show_envvar=True,
    help="TLS, client certificates and passwords, in the format of Prometheus's "
    "exporters; read again when it or a certificate changes.",
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
    allowed_hosts: tuple[str, ...],
    run_dir: Path | None,
    agents_interval: float,
    host_interval: float,
    disks: tuple[Path, ...],
    nvml_interval: float,
    gpu_processes: int,
    exit_on_driver_mismatch: bool,
    gpm_interval: float,
    dcgm: str,
    dcgm_interval: float,
    dcgm_all_gpus: bool,
    compat: str | None,
    tpu_interval: float,
    disabled: tuple[str, ...],
    price_table: Path | None,
    prices: tuple[str, ...],
    web_config: Path | None,
    demo: bool,
    log_level: str,
) -> None:
    """
    Serve the metrics of this host: its JAX processes, GPUs and itself.

    Collects from every instrumented process on the host over Unix sockets, so
    Prometheus has one target per host. Runs until SIGTERM or SIGINT.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(
        LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    signals = Signals()
    options = Options(
        run_dir=run_dir or rundir.locate(),
        host=host,
        port=port,
        allowed_hosts=allowed_hosts,
        agents_interval=agents_interval,
        host_interval=host_interval,
        disks=disks or _cache_directory(),
        nvml_interval=nvml_interval,
        gpu_processes=gpu_processes,
        exit_on_driver_mismatch=exit_on_driver_mismatch,
        gpm_interval=gpm_interval,
        dcgm=dcgm,
        dcgm_interval=dcgm_interval,
        dcgm_all_gpus=dcgm_all_gpus,
        compat=compat or "",
        tpu_interval=tpu_interval,
        disabled=frozenset(disabled),
        web_config=web_config,
        demo=demo,
    )
    try:
        with _loading():
            from jaxmon_exporter.service import Service

            if price_table or prices:
                options = options._replace(prices=_prices(price_table, prices))
            service = Service(options, give_up=signals.give_up)
            bound = service.start()
        signals.loaded()
    except Stopped:
        return
    scheme = "https" if service.encrypted else "http"
    output.line(f"jaxmon exporter: {scheme}://{_reachable(host)}:{bound}/", err=True)
    output.line(f"jaxmon exporter: agents in {options.run_dir}", err=True)
    try:
        reason = signals.wait(service.reload)
    finally:
        service.stop()
    if reason:
        raise CommandError(reason)


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    """
    Collect no garbage in the block, and never look through what is loaded by then:
    modules stay, and to look through them again and again is a tenth of the start.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _prices(table: Path | None, flags: Sequence[str]) -> Mapping[str, float]:
    """Return dollars per hour by model; those of *flags* win."""
    from jaxmon_exporter.prices import from_file, from_flags

    try:
        found = from_flags(flags)
    except CommandError as error:
        raise click.UsageError(error.message) from error
    return {**(from_file(table) if table else {}), **found}


def _cache_directory() -> tuple[Path, ...]:
    """Return the directory of JAX's persistent cache, if it is a local one."""
    directory = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    return (Path(directory),) if directory and "://" not in directory else ()


def _reachable(host: str) -> str:
    """Return *host* as a browser on this machine wants it."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return "localhost"
    return f"[{host}]" if ":" in host else host
