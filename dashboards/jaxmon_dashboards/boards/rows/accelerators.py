"""Accelerators by host and one by one, and NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, Matcher, counter, eq, recorded
from jaxmon_alerts.overviews import hosts
from jaxmon_alerts.overviews.hosts import FUNCTION_POWER
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    row,
    states,
    table,
    timeseries,
)


# As many as have room for their names; of tables, for each column.
_ROWS, _LISTED, _EACH = 10, 33, 25
_BY = (*q.BY_HOST, "uuid")


@row(8, "Load and health; empty without accelerators", lines=(3, 2), collapsed=True)
def oncall() -> Iterator[Panel]:
    """Return load, memory, power and health, by host."""
    gpu = "{{instance}} {{uuid}}"
    yield timeseries(702, "Accelerator memory in use")(
        Target(hosts.MEMORY(*q.HOSTS).worst(q.FEW), "{{instance}}"),
        text="Used by all processes on the fullest accelerator of each host, including "
        "JAX's preallocation, of the 20 fullest hosts; for free memory within that, "
        "see Memory.",
    )
    yield timeseries(705, "Xid errors")(
        Target(hosts.XIDS(*q.GPUS).worst(q.FEW), f"{gpu} Xid {{{{xid}}}}"),
        text="Errors reported by NVIDIA's driver, within five minutes. 48, 79 and 95, "
        "among others, mean that the GPU or its work is lost.",
        no_value="No Xid errors",
        alerts=("JaxmonGpuFault",),
    )
    yield states(706, "Accelerators up")(
        # The end of a name that does not fit is shown.
        Target(hosts.UP(*q.HOSTS).least(_ROWS), "{{instance}}"),
        text=f"Whether all accelerators of a host respond to their driver, of {_ROWS} "
        "hosts, those that did not first.",
        mappings=q.UP,
        alerts=("JaxmonAcceleratorLost",),
    )
    yield timeseries(707, "Throttled accelerators")(
        Target(hosts.THROTTLED(*q.GPUS).worst(q.FEW), f"{gpu} {{{{reason}}}}"),
        text="Fraction of time throttled by temperature, power supply or board, of the "
        "20 accelerators with the most. One slow accelerator slows its whole job.",
        no_value="None",
        alerts=("JaxmonGpuThrottled",),
    )
    yield timeseries(708, "Uncorrectable memory errors")(
        Target(hosts.UNCORRECTED(*q.GPUS).worst(q.FEW), gpu),
        text="Memory errors that ECC could not correct, within five minutes. Each "
        "terminates the program that reads the affected memory.",
        no_value="None",
        alerts=("JaxmonGpuFault",),
    )


@row(18, "Power and identity; empty without accelerators", lines=(2,), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return per-accelerator identity, load, power and cost."""
    load = _state(catalog.ACCELERATOR_UTILIZATION_RATIO).bottomk(_LISTED)
    yield table(1802, "Load by accelerator")(
        Target(load, "Utilization"),
        Target(_state(catalog.ACCELERATOR_MEMORY_USED_BYTES).topk(_LISTED), "Memory"),
        Target(_state(catalog.ACCELERATOR_POWER_WATTS).topk(_LISTED), "Power"),
        text=f"Current load of the {_LISTED} accelerators with the least, and of those "
        "with most memory in use and most power; - for others. An idle one among busy "
        "ones is waiting for its host.",
        width=12,
        sort="Utilization",
    )
    yield timeseries(1816, "Power by function")(
        recorded(FUNCTION_POWER, *q.FUNCTION, labels=("function",), unit="watts").sum(
            "function"
        ),
        text="Power of the GPUs of each process, apportioned to its functions by "
        "device time (mean of sampled calls times number of calls).",
        stacked="normal",
    )


_CURRENT, _SM = eq("kind", "current"), eq("clock", "sm")


@row(26, "NVIDIA GPUs; empty without any", lines=(3, 2, 1, 1, 2), collapsed=True)
def gpus() -> Iterator[Panel]:
    """Return error, link and activity panels."""
    throttled = counter(catalog.GPU_THROTTLE_SECONDS, *q.GPUS).rate()
    lanes = _state(catalog.GPU_PCIE_LINK_WIDTH, _CURRENT).bottomk(_EACH)
    xids = hosts.XIDS(*q.GPUS).over_range("max").max(*_BY, "xid")
    mig = q.accelerator(catalog.GPU_MIG_MEMORY_USED_BYTES) / q.accelerator(
        catalog.GPU_MIG_MEMORY_SIZE_BYTES
    )
    yield timeseries(1808, "Throttling by reason")(
        throttled.max("reason"),
        text="Fraction of time throttled, by reason, of the GPU with most; reasons "
        "overlap. Power is normal under load, temperature is not.",
        no_value="Not available",
        alerts=("JaxmonGpuThrottled",),
    )
    yield timeseries(1809, "NVLink traffic")(
        *_traffic(
            sent=(
                catalog.GPU_NVLINK_TRANSMIT_BYTES,
                catalog.GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND,
            ),
            received=(
                catalog.GPU_NVLINK_RECEIVE_BYTES,
                catalog.GPU_NVLINK_RECEIVE_BYTES_PER_SECOND,
            ),
        ),
        text="Traffic over all NVLinks of the accelerator with most. Far below what "
        "the same program had: its GPUs wait for one of them, or for the host.",
        no_value="No NVLink",
    )
    yield timeseries(1810, "PCIe traffic")(
        *_traffic(
            sent=(
                catalog.GPU_PCIE_TRANSMIT_BYTES,
                catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND,
            ),
            received=(
                catalog.GPU_PCIE_RECEIVE_BYTES,
                catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND,
            ),
        ),
        text="Traffic between accelerator and host, of the one with most. High "
        "traffic during steps: arrays are being moved back and forth.",
        no_value="Not available",
    )
    yield table(1806, "Xid errors by GPU")(
        Target(xids.topk(50), "Errors"),
        text="Errors reported by NVIDIA's driver, the most within five minutes of the "
        "selected time range; see NVIDIA's Xid catalogue.",
        height=6,
        width=16,
        no_value="No Xid",
        sort="Errors",
        alerts=("JaxmonGpuFault",),
    )
    yield timeseries(1819, "Link errors")(
        *_link_errors(),
        text="NVLink and PCIe errors and recoveries, within five minutes. Recoveries "
        "cost time; a link with many is about to fail, or is loose.",
        no_value="None",
    )
    yield table(1811, "Memory health")(
        *_memory_errors(),
        text="GPUs with memory errors in the selected time range, or whose row "
        "remappings are pending a reset or have failed; at most 33 each.",
        height=6,
        no_value="None",
        sort="Uncorrected",
        alerts=("JaxmonGpuFault",),
    )
    yield table(1818, "GPU state")(
        Target(_state(catalog.GPU_RECOVERY_ACTION).topk(_EACH), "Recovery", q.above(1)),
        Target(_state(catalog.GPU_PERFORMANCE_STATE).topk(_EACH), "State"),
        Target(lanes, "PCIe lanes"),
        Target(_state(catalog.GPU_FABRIC_STATE).topk(_EACH), "Fabric"),
        text=f"{_EACH} GPUs each: those that request a recovery action (1 reset, 2 "
        "reboot, 3 and above drain first), in the slowest performance states (0 is "
        "fastest), with the fewest PCIe lanes, which should never change, and in the "
        "highest fabric states; - for others.",
        height=6,
        no_value="Not available",
        sort="Recovery",
        alerts=("JaxmonGpuFault",),
    )
    yield timeseries(1817, "SM clock")(
        Target(
            q.accelerator(catalog.ACCELERATOR_CLOCK_HERTZ, _SM).least(q.FEW),
            "{{instance}} {{uuid}}",
        ),
        text="The 20 lowest. Lower than its peers under load: throttled, see "
        "Throttling by reason.",
        no_value="Not available",
    )
    yield timeseries(1820, "MIG memory in use")(
        Target(mig.max(), "highest"),
        text="Memory in use of the fullest MIG device.",
        no_value="No MIG devices",
    )


def _memory_errors() -> tuple[Target, ...]:
    severity, scope = eq("severity", "uncorrected"), eq("scope", "volatile")
    errors = counter(catalog.GPU_ECC_ERRORS, *q.GPUS, severity, scope)
    uncorrected = errors.increase("$__range").sum(*_BY)
    return (
        Target((uncorrected > 0).topk(_LISTED), "Uncorrected"),
        *(
            Target((_state(metric) > 0).topk(_LISTED), title)
            for metric, title in (
                (catalog.GPU_ROW_REMAP_PENDING, "Reset pending"),
                (catalog.GPU_ROW_REMAP_FAILURE, "Remap failed"),
            )
        ),
    )


def _state(metric: Metric, *matchers: Matcher) -> Expr:
    """Return a gauge of each accelerator, or of a part of it."""
    return q.accelerator(metric, *matchers).max(*_BY)


def _link_errors() -> tuple[Target, ...]:
    """Return errors within five minutes, of links that have any."""
    found = (
        (hosts.NVLINK_ERRORS, "NVLink {{type}}"),
        (hosts.PCIE_ERRORS, "PCIe {{type}}"),
        (hosts.PCIE_REPLAYS, "PCIe replays"),
    )
    return tuple(
        Target(overview(*q.GPUS).worst(q.FEW), f"{{{{instance}}}} {{{{uuid}}}} {name}")
        for overview, name in found
    )


def _traffic(
    *, sent: tuple[Metric, Metric], received: tuple[Metric, Metric]
) -> Iterator[Target]:
    """Yield both directions of a link: by its counter, or the driver's rate."""
    for (total, rate), direction in ((sent, "sent"), (received, "received")):
        told = q.accelerator(rate).of_unit("bytes per second")
        yield Target(counter(total, *q.GPUS).rate().or_(told).max(), direction)
