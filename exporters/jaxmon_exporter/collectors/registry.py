"""
The collectors of the sidecar, in one list.

A collector takes plain arguments; this module maps options to them, and lists the
libraries it needs. Its module is imported when it is created, so that a disabled one
costs nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jaxmon_exporter.polling import Collector, CollectorUnavailable


if TYPE_CHECKING:
    from jaxmon.exposition.families import Family
    from jaxmon_exporter.options import SidecarOptions


GiveUp: TypeAlias = Callable[[str], None]


class CollectorEntry(NamedTuple):
    """
    One of the collectors.

    Args:
        name: for ``--disable``; the collector's own.
        make: returns it if the options enable it, else `None`.
        library: returns the library that it will load, ``""`` if none.
        fills_gaps: reads from another exporter what the others read at the source;
            their values take precedence.
    """

    name: str
    make: Callable[[SidecarOptions, GiveUp], Collector | None]
    library: Callable[[], str] = str
    fills_gaps: bool = False


class DeviceCollector(Collector):
    """
    Stands in for a collector of devices on a host without them: it is made, and its
    modules are loaded, once *missing* no longer returns why there are none.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        deadline: float,
        missing: Callable[[], tuple[str, str] | None],
        make: Callable[[], Collector],
    ) -> None:
        self.name = name
        self.interval = interval
        self.deadline = deadline
        self._missing = missing
        self._make = make
        self._made: Collector | None = None

    def collect(self) -> Iterable[Family]:
        """Read the devices."""
        if self._made is None:
            if (missing := self._missing()) is not None:
                raise CollectorUnavailable(*missing)
            self._made = self._make()
        return self._made.collect()

    def close(self) -> None:
        """Release what it holds, if it was made."""
        if self._made is not None:
            self._made.close()


def _host(options: SidecarOptions, _: GiveUp) -> Collector:
    from jaxmon_exporter.collectors.host import Host  # noqa: PLC0415 - see above

    return Host(interval=options.host_interval, directories=options.disks)


def _nvml(options: SidecarOptions, give_up: GiveUp) -> Collector:
    def make() -> Collector:
        from jaxmon_exporter.collectors.nvidia.collector import NvidiaGpus  # noqa: PLC0415 - see above

        return NvidiaGpus(
            interval=options.nvml_interval,
            processes=options.gpu_processes,
            give_up=give_up if options.exit_on_driver_mismatch else None,
        )

    later = DeviceCollector("nvml", options.nvml_interval, 5.0, _no_driver, make)
    return later if _no_driver() else make()


def _gpm(options: SidecarOptions, _: GiveUp) -> Collector:
    def make() -> Collector:
        from jaxmon_exporter.collectors.nvidia.gpm import Gpm  # noqa: PLC0415 - see above

        return Gpm(interval=options.gpm_interval, all_rates=options.compat == "dcgm")

    later = DeviceCollector("gpm", options.gpm_interval, 5.0, _no_driver, make)
    return later if _no_driver() else make()


def _tpu(options: SidecarOptions, _: GiveUp) -> Collector:
    def make() -> Collector:
        from jaxmon_exporter.collectors.tpu.collector import Tpus  # noqa: PLC0415 - see above

        return Tpus(interval=options.tpu_interval)

    later = DeviceCollector("tpu", options.tpu_interval, 8.0, _no_tpu, make)
    return later if _no_tpu() else make()


def _nccl(options: SidecarOptions, _: GiveUp) -> Collector:
    from jaxmon_exporter.collectors.nccl.collector import Nccl  # noqa: PLC0415 - see above

    return Nccl(options.nccl_ras, interval=options.nccl_interval)


def _inspector(options: SidecarOptions, _: GiveUp) -> Collector | None:
    if not options.nccl_inspector:
        return None
    from pathlib import Path  # noqa: PLC0415 - see above

    from jaxmon_exporter.collectors.inspector.collector import Inspector  # noqa: PLC0415 - see above

    return Inspector(
        Path(options.nccl_inspector),
        options.run_dir,
        host=options.nccl_inspector_host,
        interval=options.nccl_inspector_interval,
    )


def _dcgm(options: SidecarOptions, _: GiveUp) -> Collector | None:
    if not options.dcgm:
        return None
    from jaxmon_exporter.collectors.dcgm import Dcgm  # noqa: PLC0415 - see above

    return Dcgm(options.dcgm, interval=options.dcgm_interval)


def _agents(options: SidecarOptions, _: GiveUp) -> Collector:
    from jaxmon_exporter.collectors.agents.collector import Agents  # noqa: PLC0415 - see above

    return Agents(options.run_dir, interval=options.agents_interval)


def _demo(options: SidecarOptions, _: GiveUp) -> Collector | None:
    if not options.demo:
        return None
    from jaxmon_exporter.collectors.synthetic import Demo  # noqa: PLC0415 - see above

    return Demo()


def _no_driver() -> tuple[str, str] | None:
    from jaxmon_exporter.collectors import nvidia  # noqa: PLC0415 - see above

    return None if nvidia.driver_is_here() else nvidia.NO_DRIVER


def _no_tpu() -> tuple[str, str] | None:
    from jaxmon.host import tpus  # noqa: PLC0415 - see above

    # Without its chips, a runtime may still serve where a variable says.
    return None if tpus.is_configured(os.environ) or tpus.find() else tpus.NONE


def _pynvml() -> str:
    return "pynvml" if _no_driver() is None else ""


LISTED = (
    CollectorEntry("host", _host, lambda: "psutil"),
    CollectorEntry("nvml", _nvml, _pynvml),
    CollectorEntry("gpm", _gpm, _pynvml),
    CollectorEntry("tpu", _tpu),
    CollectorEntry("nccl", _nccl),
    CollectorEntry("nccl_inspector", _inspector),
    CollectorEntry("dcgm", _dcgm, fills_gaps=True),
    # After all that read devices: agents report devices that no driver shows us.
    CollectorEntry("agents", _agents),
    CollectorEntry("demo", _demo),
)

NAMES = tuple(entry.name for entry in LISTED if entry.name != "demo")
"""Those that run unless disabled, or once their source is configured."""


def make(
    options: SidecarOptions, give_up: GiveUp
) -> tuple[list[Collector], list[Collector]]:
    """Return the collectors that read a source, and those that fill gaps."""
    primary: list[Collector] = []
    secondary: list[Collector] = []
    for entry in _enabled(options):
        if (collector := entry.make(options, give_up)) is not None:
            (secondary if entry.fills_gaps else primary).append(collector)
    return primary, secondary


def load_libraries(options: SidecarOptions) -> None:
    """
    Load the collectors' libraries before their threads start: threads that import at
    the same time take turns at every file, which costs a tenth of the startup time.
    """
    for library in dict.fromkeys(entry.library() for entry in _enabled(options)):
        if library:
            # Missing, or broken: its collector says so.
            with contextlib.suppress(Exception, SystemExit):
                import_module(library)


def _enabled(options: SidecarOptions) -> Iterator[CollectorEntry]:
    return (entry for entry in LISTED if entry.name not in options.disabled)
