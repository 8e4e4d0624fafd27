"""
What a user of the sidecar may choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


COLLECTORS = ("agents", "host", "nvml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    Settings of the sidecar; `jaxmon.cli.exporter` fills them in.

    Args:
        run_dir: where the agents' sockets are.
        host: address to bind. All of them by default: a sidecar is there to be
            scraped from another host, and serves nothing but figures.
        port: TCP port; 0 takes any free one.
        agents_interval: seconds between two looks at every agent.
        host_interval: seconds between two looks at the host.
        nvml_interval: seconds between two looks at the GPUs.
        disabled: names out of `COLLECTORS` to leave out.
        demo: add a synthetic fleet.
    """

    run_dir: Path
    host: str = "0.0.0.0"  # noqa: S104 - see above
    port: int = 9467
    agents_interval: float = 2.0
    host_interval: float = 5.0
    nvml_interval: float = 5.0
    disabled: frozenset[str] = frozenset()
    demo: bool = False
