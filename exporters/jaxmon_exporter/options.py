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
    """
    Options of the sidecar; `jaxmon exporter` reads prices and limits from files.

    Attributes:
        host: IP address to listen on, by default all; 127.0.0.1 for this host only.
        port: TCP port; 0 means any free port.
        allowed_hosts: Also accept this host name from browsers and local proxies:
            gpu-7.example.com, *.example.com, or * for any; repeatable. Remote scrapers
            may use any name regardless.
        run_dir: Directory of the agents' sockets; by default this user's run directory.
            It need not exist yet.
        agents_interval: Seconds between scrapes of the agents.
        linger: When stopped, wait up to this many seconds for a scrape of what ended
            processes counted: for the sidecar of a Kubernetes Job, less than
            `terminationGracePeriodSeconds`. 0 does not wait.
        findings: Who sees the findings on the landing page, which name files, lines and
            values: clients on this host and those with a password or certificate, all,
            or no one.
        peer_access: Serve `/job` for `jaxmon job`: what each rank on this host is
            doing, with files and lines. Needs TLS or passwords (--web-config), or
            --host 127.0.0.1.
        host_interval: Seconds between polls of the host.
        disks: Watch the file system of this directory; repeatable. By default that of
            JAX's persistent cache, if JAX_COMPILATION_CACHE_DIR names one on this host.
        nvml_interval: Seconds between polls of NVIDIA GPUs.
        gpu_processes: Export memory by pid for this many of the largest processes of
            each GPU; the others are added up. 0 disables it.
        exit_on_driver_mismatch: Exit with code 1 if NVIDIA's driver is upgraded under
            this process or its devices are removed from this container: only a restart
            restores access.
        gpm_interval: Seconds between samples of GPU activity (Hopper and later).
        dcgm: Fill gaps from a dcgm-exporter, such as http://localhost:9400/metrics. Off
            by default.
        dcgm_interval: Seconds between scrapes of the dcgm-exporter.
        dcgm_all_gpus: Include its GPUs that NVML does not show to this process.
        compat: Export GPU metrics under dcgm-exporter's names as well, for dashboards
            made for it.
        tpu_interval: Seconds between polls of TPUs.
        nccl_ras: Where NCCL's RAS listens, if a job on this host uses NCCL; the
            variable is NCCL's own.
        nccl_interval: Seconds between queries of NCCL's RAS beside the first rank of a
            job; its other hosts query it more rarely.
        nccl_inspector: Read the files that NCCL Inspector writes to this directory; the
            variable is Inspector's own. It need not exist yet. Off by default.
        nccl_inspector_host: Host name in the names of these files, by default this
            host's; * for any, in a directory that only this host writes to.
        nccl_inspector_interval: Seconds between polls of these files.
        disabled: Disable a collector; repeatable (in the variable, separate by spaces).
        web_config: TLS, client certificates and passwords, in the format of
            Prometheus's exporters; reloaded when it or a certificate changes.
        otlp: Push all metrics by OTLP too, as OpenTelemetry's standard variables say,
            except those of agents that push their own; needs `jaxmon[otel]`.
        otlp_names: Names of what is pushed by OTLP: as served, or by OpenTelemetry's
            semantic conventions where they exist.
        demo: Add a synthetic fleet of 8 accelerators and 4 workers.
    """

    # All addresses by default, of IPv6 and IPv4: a sidecar is there to be scraped from
    # another host, and serves only metrics.
    host: str = setting(default="::", check=_listened)
    port: int = setting(default=SIDECAR_PORT, within=(0, 65535))
    allowed_hosts: tuple[str, ...] = setting(
        default=(), flag="--allowed-host", metavar="NAME", check=_names
    )
    run_dir: Path = setting(variable="JAXMON_RUN_DIR")  # noqa: RUF009 - a field
    agents_interval: float = setting(default=2.0, within=_SECONDS)
    linger: float = setting(default=0.0, within=(0, 3600))
    findings: str = setting(default="trusted", choices=FINDINGS)
    peer_access: bool = setting(default=False)
    host_interval: float = setting(default=5.0, within=_SECONDS)
    disks: tuple[Path, ...] = setting(default=(), flag="--disk")
    nvml_interval: float = setting(default=5.0, within=_SECONDS)
    gpu_processes: int = setting(default=0, within=(0, 1000))
    exit_on_driver_mismatch: bool = setting(default=False)
    gpm_interval: float = setting(default=5.0, within=_SECONDS)
    dcgm: str = setting(default="", metavar="URL", check=_page)
    dcgm_interval: float = setting(default=10.0, within=_SECONDS)
    dcgm_all_gpus: bool = setting(default=False)
    compat: str | None = setting(default=None, choices=COMPAT)
    tpu_interval: float = setting(default=5.0, within=_SECONDS)
    nccl_ras: str = setting(
        default="localhost:28028",
        variable="NCCL_RAS_ADDR",
        metavar="HOST:PORT",
        check=_place,
    )
    nccl_interval: float = setting(default=15.0, within=_SECONDS)
    nccl_inspector: str = setting(
        default="", variable="NCCL_INSPECTOR_DUMP_DIR", metavar="DIR"
    )
    nccl_inspector_host: str = setting(default="", metavar="NAME")
    nccl_inspector_interval: float = setting(default=15.0, within=_SECONDS)
    disabled: tuple[str, ...] = setting(default=(), flag="--disable", choices=NAMES)
    prices: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    web_config: Path | None = setting(default=None)  # noqa: RUF009 - a field
    otlp: bool = setting(default=False)
    otlp_names: str = setting(default=SERVED, choices=PUSHED_NAMES)
    demo: bool = setting(default=False)
