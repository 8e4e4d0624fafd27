"""
All options of the sidecar, in one place.

Options of `jaxmon exporter`, their variables and documentation are derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jaxmon.catalog.values import PUSHED_NAMES, SERVED
from jaxmon.limits import Limits
from jaxmon.settings import SIDECAR_PORT, setting
from jaxmon_exporter.collectors.registry import NAMES


PREFIX = "JAXMON_EXPORTER_"
COMPAT = ("dcgm",)
FINDINGS = ("trusted", "all", "off")

_SECONDS = (0.1, 3600.0)


def _listened(host: str) -> str:
    from jaxmon.host.http.sockets import numeric_address  # noqa: PLC0415 - needs sockets

    try:
        numeric_address(host, 0)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    return host


def _names(chosen: tuple[str, ...]) -> tuple[str, ...]:
    from jaxmon.host.http.routes import HostPolicy  # noqa: PLC0415 - see above

    HostPolicy(chosen)
    return chosen


def _page(url: str) -> str:
    from jaxmon_exporter.collectors.dcgm import usable  # noqa: PLC0415 - and a client

    return usable(url) if url else ""


def _place(address: str) -> str:
    from jaxmon_exporter.collectors.nccl import place_of  # noqa: PLC0415 - see above

    place_of(address)
    return address


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions:
    """Options of the sidecar; `jaxmon exporter` reads prices and limits from files."""

    # All addresses by default, of IPv6 and IPv4: a sidecar is there to be scraped from
    # another host, and serves only metrics.
    host: str = setting(
        "IP address to listen on, by default all; 127.0.0.1 for this host only.",
        default="::",
        check=_listened,
    )
    port: int = setting(
        "TCP port; 0 means any free port.", default=SIDECAR_PORT, within=(0, 65535)
    )
    allowed_hosts: tuple[str, ...] = setting(
        "Also accept this host name from browsers and local proxies: "
        "gpu-7.example.com, *.example.com, or * for any; repeatable. Remote "
        "scrapers may use any name regardless.",
        default=(),
        flag="--allowed-host",
        metavar="NAME",
        check=_names,
    )
    run_dir: Path = setting(  # noqa: RUF009 - a field
        (
            "Directory of the agents' sockets; by default this user's run directory. "
            "It need not exist yet."
        ),
        variable="JAXMON_RUN_DIR",
    )
    agents_interval: float = setting(
        "Seconds between scrapes of the agents.", default=2.0, within=_SECONDS
    )
    linger: float = setting(
        "When stopped, wait up to this many seconds for a scrape of what ended "
        "processes counted: for the sidecar of a Kubernetes Job, less than "
        "`terminationGracePeriodSeconds`. 0 does not wait.",
        default=0.0,
        within=(0, 3600),
    )
    findings: str = setting(
        "Who sees the findings on the landing page, which name files, lines and "
        "values: clients on this host and those with a password or certificate, all, "
        "or no one.",
        default="trusted",
        choices=FINDINGS,
    )
    peer_access: bool = setting(
        "Serve `/job` for `jaxmon job`: what each rank on this host is doing, with "
        "files and lines. Needs TLS or passwords (--web-config), or --host 127.0.0.1.",
        default=False,
    )
    host_interval: float = setting(
        "Seconds between polls of the host.", default=5.0, within=_SECONDS
    )
    disks: tuple[Path, ...] = setting(
        "Watch the file system of this directory; repeatable. By default that of "
        "JAX's persistent cache, if JAX_COMPILATION_CACHE_DIR names one on this "
        "host.",
        default=(),
        flag="--disk",
    )
    nvml_interval: float = setting(
        "Seconds between polls of NVIDIA GPUs.", default=5.0, within=_SECONDS
    )
    gpu_processes: int = setting(
        "Export memory by pid for this many of the largest processes of each GPU; "
        "the others are added up. 0 disables it.",
        default=0,
        within=(0, 1000),
    )
    exit_on_driver_mismatch: bool = setting(
        "Exit with code 1 if NVIDIA's driver is upgraded under this process or "
        "its devices are removed from this container: only a restart restores "
        "access.",
        default=False,
    )
    gpm_interval: float = setting(
        "Seconds between samples of GPU activity (Hopper and later).",
        default=5.0,
        within=_SECONDS,
    )
    dcgm: str = setting(
        "Fill gaps from a dcgm-exporter, such as http://localhost:9400/metrics. "
        "Off by default.",
        default="",
        metavar="URL",
        check=_page,
    )
    dcgm_interval: float = setting(
        "Seconds between scrapes of the dcgm-exporter.", default=10.0, within=_SECONDS
    )
    dcgm_all_gpus: bool = setting(
        "Include its GPUs that NVML does not show to this process.", default=False
    )
    compat: str | None = setting(
        "Export GPU metrics under dcgm-exporter's names as well, for dashboards "
        "made for it.",
        default=None,
        choices=COMPAT,
    )
    tpu_interval: float = setting(
        "Seconds between polls of TPUs.", default=5.0, within=_SECONDS
    )
    nccl_ras: str = setting(
        "Where NCCL's RAS listens, if a job on this host uses NCCL; the variable is "
        "NCCL's own.",
        default="localhost:28028",
        variable="NCCL_RAS_ADDR",
        metavar="HOST:PORT",
        check=_place,
    )
    nccl_interval: float = setting(
        "Seconds between queries of NCCL's RAS beside the first rank of a job; its "
        "other hosts query it more rarely.",
        default=15.0,
        within=_SECONDS,
    )
    nccl_inspector: str = setting(
        "Read the files that NCCL Inspector writes to this directory; the variable is "
        "Inspector's own. It need not exist yet. Off by default.",
        default="",
        variable="NCCL_INSPECTOR_DUMP_DIR",
        metavar="DIR",
    )
    nccl_inspector_host: str = setting(
        "Host name in the names of these files, by default this host's; * for any, in "
        "a directory that only this host writes to.",
        default="",
        metavar="NAME",
    )
    nccl_inspector_interval: float = setting(
        "Seconds between polls of these files.", default=15.0, within=_SECONDS
    )
    disabled: tuple[str, ...] = setting(
        "Disable a collector; repeatable (in the variable, separate by spaces).",
        default=(),
        flag="--disable",
        choices=NAMES,
    )
    prices: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    web_config: Path | None = setting(  # noqa: RUF009 - a field
        (
            "TLS, client certificates and passwords, in the format of Prometheus's "
            "exporters; reloaded when it or a certificate changes."
        ),
        default=None,
    )
    otlp: bool = setting(
        "Push all metrics by OTLP too, as OpenTelemetry's standard variables say, "
        "except those of agents that push their own; needs `jaxmon[otel]`.",
        default=False,
    )
    otlp_names: str = setting(
        "Names of what is pushed by OTLP: as served, or by OpenTelemetry's semantic "
        "conventions where they exist.",
        default=SERVED,
        choices=PUSHED_NAMES,
    )
    demo: bool = setting(
        "Add a synthetic fleet of 8 accelerators and 4 workers.", default=False
    )
