"""What a user of the sidecar may choose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from jaxmon.settings import SIDECAR_PORT


COMPAT = ("dcgm",)
COLLECTORS = ("agents", "host", "nvml", "gpm", "dcgm", "tpu")


class Options(NamedTuple):
    """
    Settings of the sidecar; `jaxmon.cli.exporter` fills them in.

    Args:
        run_dir: where the agents' sockets are.
        host: address to bind. All of them by default, of IPv6 and IPv4: a sidecar
            is there to be scraped from another host, and serves nothing but figures.
        port: TCP port; 0 takes any free one.
        allowed_hosts: names by which clients may ask, besides those of `Hosts`.
        agents_interval: seconds between two looks at every agent.
        host_interval: seconds between two looks at the host.
        disks: directories of which the file systems are watched.
        nvml_interval: seconds between two looks at the GPUs.
        gpu_processes: of how many processes per GPU to tell the memory.
        exit_on_driver_mismatch: end when the GPUs' driver was upgraded under us,
            or taken away.
        gpm_interval: seconds between two samples of what GPUs are busy with.
        dcgm: address of a dcgm-exporter's page; none by default.
        dcgm_interval: seconds between two looks at it.
        dcgm_all_gpus: take from it also GPUs that NVML does not show to us.
        compat: ``"dcgm"`` to give figures dcgm-exporter's names too.
        tpu_interval: seconds between two looks at the TPUs.
        disabled: names out of `COLLECTORS` to leave out.
        prices: dollars per hour by model of accelerator.
        web_config: Prometheus's web configuration: TLS, passwords.
        demo: add a synthetic fleet.
    """

    run_dir: Path
    host: str = "::"
    port: int = SIDECAR_PORT
    allowed_hosts: tuple[str, ...] = ()
    agents_interval: float = 2.0
    host_interval: float = 5.0
    disks: tuple[Path, ...] = ()
    nvml_interval: float = 5.0
    gpu_processes: int = 0
    exit_on_driver_mismatch: bool = False
    gpm_interval: float = 5.0
    dcgm: str = ""
    dcgm_interval: float = 10.0
    dcgm_all_gpus: bool = False
    compat: str = ""
    tpu_interval: float = 5.0
    disabled: frozenset[str] = frozenset()
    prices: Mapping[str, float] = MappingProxyType({})
    web_config: Path | None = None
    demo: bool = False
