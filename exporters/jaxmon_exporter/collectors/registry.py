"""
The collectors of the sidecar, in one list.

A collector takes plain arguments; this module maps options to them, and lists the
libraries it needs. Its module is imported when it is created, so that a disabled one
costs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jaxmon_exporter.polling import Collector


if TYPE_CHECKING:
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


def _host(options: SidecarOptions, _: GiveUp) -> Collector:
    from jaxmon_exporter.collectors.host import Host  # noqa: PLC0415 - see above

    return Host(interval=options.host_interval, directories=options.disks)


def _nvml(options: SidecarOptions, give_up: GiveUp) -> Collector:
    from jaxmon_exporter.collectors.nvidia.collector import NvidiaGpus  # noqa: PLC0415 - see above

    return NvidiaGpus(
        interval=options.nvml_interval,
        processes=options.gpu_processes,
        give_up=give_up if options.exit_on_driver_mismatch else None,
    )


def _gpm(options: SidecarOptions, _: GiveUp) -> Collector:
    from jaxmon_exporter.collectors.nvidia.gpm import Gpm  # noqa: PLC0415 - see above

    return Gpm(interval=options.gpm_interval, all_rates=options.compat == "dcgm")


def _tpu(options: SidecarOptions, _: GiveUp) -> Collector:
    from jaxmon_exporter.collectors.tpu.collector import Tpus  # noqa: PLC0415 - see above

    return Tpus(interval=options.tpu_interval)


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


def _pynvml() -> str:
    from jaxmon_exporter.collectors.nvidia.calls import driver_is_here  # noqa: PLC0415 - see above

    return "pynvml" if driver_is_here() else ""


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
