"""Accelerators by host and one by one, and NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, Matcher, counter, eq, gauge, recorded
from jaxmon_alerts.overviews import hosts
from jaxmon_alerts.overviews.hosts import FUNCTION_POWER
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    Thresholds,
    row,
    states,
    table,
    timeseries,
)


# As many as have room for their names.
_ROWS = 10


@row(8, "Accelerators", lines=(3, 2), collapsed=True)
def oncall() -> Iterator[Panel]:
    """Return load, memory, power and health, by host."""
    by = ("job", "instance")
    by_gpu, gpu = (*by, "uuid"), "{{instance}} {{uuid}}"
    worst, least = q.worst_of_services, q.least_of_services
    xid = worst(hosts.XIDS, lambda series: series.sum(*by_gpu, "xid"))
    yield timeseries(702, "Accelerator memory in use")(
        worst(hosts.MEMORY, lambda series: series.max(*by)),
        text="Used by all processes on the fullest accelerator of each host, including "
        "JAX's preallocation, of the 20 fullest hosts; for free memory within that, "
        "see Memory.",
    )
    yield timeseries(705, "Xid errors")(
        Target(xid, f"{gpu} Xid {{{{xid}}}}"),
        text="Errors reported by NVIDIA's driver, within five minutes. 48, 79 and 95, "
        "among others, mean that the GPU or its work is lost.",
        no_value="No Xid errors",
        alerts=("JaxmonGpuFault",),
    )
    yield states(706, "Accelerators up")(
        # The end of a name that does not fit is shown.
        Target(least(hosts.UP, lambda series: series.min(*by), _ROWS), "{{instance}}"),
        text=f"Whether all accelerators of a host respond to their driver, of {_ROWS} "
        "hosts, those that did not first.",
        mappings=q.UP,
        alerts=("JaxmonAcceleratorLost",),
    )
    yield timeseries(707, "Throttled accelerators")(
        worst(hosts.THROTTLED, lambda series: series.max(*by_gpu, "reason")),
        text="Fraction of time throttled by temperature, power supply or board, of the "
        "20 accelerators with the most. One slow accelerator slows its whole job.",
        no_value="None",
        alerts=("JaxmonGpuThrottled",),
    )
    yield timeseries(708, "Uncorrectable memory errors")(
        worst(hosts.UNCORRECTED, lambda series: series.sum(*by_gpu)),
        text="Memory errors that ECC could not correct, within five minutes. Each "
        "terminates the program that reads the affected memory.",
        no_value="None",
        alerts=("JaxmonGpuFault",),
    )


@row(18, "Accelerators", lines=(2,), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return per-accelerator identity, load, power and cost."""
    by = ("job", "instance", "uuid")
    used = q.accelerator(catalog.ACCELERATOR_MEMORY_USED_BYTES).max(*by)
    power = q.accelerator(catalog.ACCELERATOR_POWER_WATTS).max(*by)
    idle = q.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO).max(*by).bottomk(50)
    yield table(1802, "Load by accelerator")(
        Target(idle, "Utilization"),
        Target(used.and_(idle), "Memory"),
        Target(power.and_(idle), "Power"),
        text="Current load of the 50 accelerators with the least; an idle one among "
        "busy ones is waiting for its host.",
        width=12,
        sort="Utilization",
    )
    yield timeseries(1816, "Power by function")(
        recorded(FUNCTION_POWER, *q.FUNCTION, labels=("function",), unit="watts")
        .sum("function")
        .worst(10),
        text="Power of the GPUs of each process, apportioned to its functions by "
        "device time (mean of sampled calls times number of calls).",
        stacked="normal",
    )


_BY = ("job", "instance", "uuid")
_CURRENT, _SM = eq("kind", "current"), eq("clock", "sm")


@row(26, "NVIDIA GPUs", lines=(3, 2, 1, 1, 2), collapsed=True)
def gpus() -> Iterator[Panel]:
    """Return error, link and activity panels."""
    # Only critical Xids have a series from the start; the others are born with 1.
    errors = counter(catalog.GPU_XID_ERRORS, *q.GPUS).mishaps("$__range")
    throttled = counter(catalog.GPU_THROTTLE_SECONDS, *q.GPUS).rate()
    state = _state(catalog.GPU_PERFORMANCE_STATE)
    asked = _state(catalog.GPU_RECOVERY_ACTION)

    def column(expr: Expr, title: str, thresholds: Thresholds | None = None) -> Target:
        """Return a column of the GPUs that need most."""
        return Target(expr.and_(asked.or_(state * 0).topk(50)), title, thresholds)

    yield timeseries(1808, "Throttling by reason")(
        q.of_gpus(throttled.max(*_BY, "reason") > 0).worst(q.FEW),
        text="Fraction of time throttled, by reason, the 20 largest; reasons overlap. "
        "Power is normal under load, temperature is not.",
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
        text="Traffic over all NVLinks of an accelerator, the 20 largest each way. One "
        "below its peers is waiting for one of them.",
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
        text="Traffic between an accelerator and its host, the 20 largest each way. "
        "High traffic during steps: arrays are being moved back and forth.",
        no_value="Not available",
    )
    yield table(1806, "Xid errors by GPU")(
        Target(q.of_gpus(errors.sum(*_BY, "xid")).topk(50), "Errors"),
        text="Errors reported by NVIDIA's driver in the selected time range; see "
        "NVIDIA's Xid catalogue.",
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
        "remappings are pending a reset or have failed; at most 50 each.",
        height=6,
        no_value="None",
        sort="Uncorrected",
        alerts=("JaxmonGpuFault",),
    )
    yield table(1818, "GPU state")(
        column(asked, "Recovery", q.above(1)),
        column(state, "State"),
        column(_state(catalog.GPU_PCIE_LINK_GENERATION, _CURRENT), "PCIe generation"),
        column(_state(catalog.GPU_PCIE_LINK_WIDTH, _CURRENT), "PCIe lanes"),
        column(_state(catalog.GPU_PCIE_LINK_WIDTH, eq("kind", "maximum")), "Of"),
        column(_state(catalog.GPU_FABRIC_STATE), "Fabric"),
        text="50 GPUs, those that request a recovery action first. Requested recovery "
        "action (1 reset, 2 reboot, 3 and above drain first), performance state (0 is "
        "fastest) and PCIe link. Idle GPUs lower the generation; the width should "
        "never change.",
        height=6,
        no_value="Not available",
        sort="Recovery",
        alerts=("JaxmonGpuFault",),
    )
    yield timeseries(1817, "SM clock")(
        _state(catalog.ACCELERATOR_CLOCK_HERTZ, _SM).least(q.FEW),
        text="The 20 lowest. Lower than its peers under load: throttled, see "
        "Throttling by reason.",
        no_value="Not available",
    )
    yield timeseries(1820, "MIG memory in use")(
        promql.ratio(
            _state(catalog.GPU_MIG_MEMORY_USED_BYTES),
            _state(catalog.GPU_MIG_MEMORY_SIZE_BYTES),
        ).worst(q.FEW),
        text="Memory in use of the 20 fullest MIG devices, by the uuid that programs "
        "see.",
        no_value="No MIG devices",
    )


def _memory_errors() -> tuple[Target, ...]:
    severity, scope = eq("severity", "uncorrected"), eq("scope", "volatile")
    errors = counter(catalog.GPU_ECC_ERRORS, *q.GPUS, severity, scope)
    uncorrected = q.of_gpus(errors.increase("$__range").sum(*_BY))
    return (
        Target((uncorrected > 0).topk(50), "Uncorrected"),
        *(
            Target((_state(metric) > 0).topk(50), title)
            for metric, title in (
                (catalog.GPU_ROW_REMAP_PENDING, "Reset pending"),
                (catalog.GPU_ROW_REMAP_FAILURE, "Remap failed"),
            )
        ),
    )


def _state(metric: Metric, *matchers: Matcher) -> Expr:
    """Return a gauge of each accelerator, or of a part of it."""
    return q.gpu(metric, *matchers).max(*_BY)


def _link_errors() -> tuple[Target, ...]:
    """Return errors within five minutes, of links that have any."""
    found = (
        (hosts.NVLINK_ERRORS, ("type",), "{{instance}} {{uuid}} NVLink {{type}}"),
        (hosts.PCIE_ERRORS, ("type",), "{{instance}} {{uuid}} PCIe {{type}}"),
        (hosts.PCIE_REPLAYS, (), "PCIe replays"),
    )
    return tuple(
        Target(q.of_gpus(overview(*q.GPUS)).sum(*_BY, *by).worst(q.FEW), name)
        for overview, by, name in found
    )


def _traffic(
    *, sent: tuple[Metric, Metric], received: tuple[Metric, Metric]
) -> tuple[Target, ...]:
    """Return both directions of a link: by its counter, or the driver's rate."""
    return tuple(
        Target(
            q.of_gpus(
                counter(total, *q.GPUS)
                .rate()
                .sum(*_BY)
                .or_(gauge(rate, *q.GPUS).max(*_BY).of_unit("bytes per second"))
            ).worst(q.FEW),
            direction,
        )
        for (total, rate), direction in ((sent, "sent"), (received, "received"))
    )
