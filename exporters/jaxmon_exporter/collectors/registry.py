"""
The collectors of the sidecar, in one list.

A collector takes plain arguments; this module maps options to them. Its module is
imported when it is created, so that a disabled one costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jaxmon_exporter.polling import Collector, CollectorUnavailable


if TYPE_CHECKING:
    from jaxmon.exposition.families import Family
    from jaxmon_exporter.options import SidecarOptions


GiveUp: TypeAlias = Callable[[str], None]


Missing: TypeAlias = Callable[[], tuple[str, str] | None]
"""Returns why there are no devices, in a word and a sentence."""


class CollectorEntry(NamedTuple):
    """
    One of the collectors: its class is at a *place* in this package, and made with
    these *arguments*, `None` if the options do not enable it. If devices are *missing*,
    a `DeviceCollector` stands in for it, with this deadline. What one that *fills_gaps*
    reads from another exporter, the others read at the source, with precedence.
    """

    name: str
    place: str
    arguments: Callable[[SidecarOptions, GiveUp], dict[str, Any] | None]
    missing: Missing = lambda: None
    deadline: float = 5.0
    fills_gaps: bool = False

    def make(self, options: SidecarOptions, give_up: GiveUp) -> Collector | None:
        """Return the collector, `None` if the options do not enable it."""
        arguments = self.arguments(options, give_up)
        if arguments is None or self.missing() is None:
            return None if arguments is None else self.made(arguments)
        return DeviceCollector(self, arguments)

    def made(self, arguments: Mapping[str, Any]) -> Collector:
        """Return the collector, and import its module."""
        module, _, name = self.place.partition(":")
        kind = getattr(import_module(f"{__package__}.{module}"), name)
        collector: Collector = kind(**arguments)
        return collector


class DeviceCollector(Collector):
    """Stands in for the collector of devices *of* an entry until they are there."""

    def __init__(self, of: CollectorEntry, arguments: Mapping[str, Any]) -> None:
        self.name, self.interval = of.name, arguments["interval"]
        self.deadline = of.deadline
        self._of, self._arguments = of, arguments
        self._made: Collector | None = None

    def collect(self) -> Iterable[Family]:
        """Read the devices."""
        if self._made is None:
            if (missing := self._of.missing()) is not None:
                raise CollectorUnavailable(*missing)
            self._made = self._of.made(self._arguments)
        return self._made.collect()

    def close(self) -> None:
        """Release what it holds, if it was made."""
        if self._made is not None:
            self._made.close()


def _no_driver() -> tuple[str, str] | None:
    from jaxmon_exporter.collectors import nvidia  # noqa: PLC0415 - see above

    return None if nvidia.driver_is_here() else nvidia.NO_DRIVER


def _no_tpu() -> tuple[str, str] | None:
    from jaxmon.host import tpus  # noqa: PLC0415 - see above

    # Without its chips, a runtime may still serve where a variable says.
    return None if tpus.is_configured(os.environ) or tpus.find() else tpus.NONE


def _nvml(options: SidecarOptions, give_up: GiveUp) -> dict[str, Any]:
    return {
        "interval": options.nvml_interval,
        "processes": options.gpu_processes,
        "give_up": give_up if options.exit_on_driver_mismatch else None,
    }


def _inspector(options: SidecarOptions, _: GiveUp) -> dict[str, Any] | None:
    if not options.nccl_inspector:
        return None
    return {
        "directory": Path(options.nccl_inspector),
        "run_dir": options.run_dir,
        "host": options.nccl_inspector_host,
        "interval": options.nccl_inspector_interval,
    }


LISTED = (
    CollectorEntry(
        *("host", "host:Host"),
        lambda of, _: {"interval": of.host_interval, "directories": of.disks},
    ),
    CollectorEntry("nvml", "nvidia.collector:NvidiaGpus", _nvml, _no_driver),
    CollectorEntry(
        *("gpm", "nvidia.gpm:Gpm"),
        lambda of, _: {"interval": of.gpm_interval, "all_rates": of.compat == "dcgm"},
        _no_driver,
    ),
    CollectorEntry(
        *("tpu", "tpu.collector:Tpus", lambda of, _: {"interval": of.tpu_interval}),
        *(_no_tpu, 8.0),
    ),
    CollectorEntry(
        *("nccl", "nccl:Nccl"),
        lambda of, _: {"address": of.nccl_ras, "interval": of.nccl_interval},
    ),
    CollectorEntry("nccl_inspector", "inspector:Inspector", _inspector),
    CollectorEntry(
        *("dcgm", "dcgm:Dcgm"),
        lambda of, _: (
            {"url": of.dcgm, "interval": of.dcgm_interval} if of.dcgm else None
        ),
        fills_gaps=True,
    ),
    # After all that read devices: agents report devices that no driver shows us.
    CollectorEntry(
        *("agents", "agents:Agents"),
        lambda of, _: {"run_dir": of.run_dir, "interval": of.agents_interval},
    ),
    CollectorEntry("demo", "synthetic:Demo", lambda of, _: {} if of.demo else None),
)

NAMES = tuple(entry.name for entry in LISTED if entry.name != "demo")
"""Those that run unless disabled, or once their source is configured."""


def make(
    options: SidecarOptions, give_up: GiveUp
) -> tuple[list[Collector], list[Collector]]:
    """Return the collectors that read a source, and those that fill gaps."""
    primary: list[Collector] = []
    secondary: list[Collector] = []
    for entry in LISTED:
        if entry.name in options.disabled:
            continue
        if (collector := entry.make(options, give_up)) is not None:
            (secondary if entry.fills_gaps else primary).append(collector)
    return primary, secondary
