"""NVIDIA-specific panels: errors, links, throttling, activity."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, Matcher, counter, eq, gauge
from jaxmon_alerts.overviews import accelerators as overviews
from jaxmon_dashboards.boards import hardware
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    Thresholds,
    row,
    table,
    timeseries,
)


_BY, _NAMED = ("job", "instance", "uuid"), "{{instance}} {{uuid}}"
_CURRENT, _SM = eq("kind", "current"), eq("clock", "sm")


@row(26, "NVIDIA GPUs", lines=(3, 2, 1, 1, 3, 2), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return error, link and activity panels."""
    # Only critical Xids have a series from the start; the others are born with 1.
    errors = counter(catalog.GPU_XID_ERRORS, *hardware.GPUS).mishaps("$__range")
    xid = hardware.of_gpus(errors.sum(*_BY, "xid"))
    throttled = counter(catalog.GPU_THROTTLE_SECONDS, *hardware.GPUS).rate()
    broken = _memory_errors()
    state = _state(catalog.GPU_PERFORMANCE_STATE)
    asked = _state(catalog.GPU_RECOVERY_ACTION)
    chosen = asked.or_(state * 0).topk(50)

    def column(expr: Expr, title: str, thresholds: Thresholds | None = None) -> Target:
        """Return a column of the GPUs that need most."""
        return Target(expr.and_(chosen), title, thresholds)

    by_reason = hardware.of_gpus(throttled.max(*_BY, "reason") > 0)
    yield timeseries(1808, "Throttling by reason")(
        Target(by_reason.worst(q.FEW), f"{_NAMED} {{{{reason}}}}"),
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
        Target(xid.topk(50), "Errors"),
        text="Errors reported by NVIDIA's driver in the selected time range; see "
        "NVIDIA's Xid catalogue.",
        height=6,
        width=16,
        labels=(*_BY, "xid"),
        no_value="No Xid",
        sort="Errors",
        alerts=("JaxmonGpuXid",),
    )
    yield timeseries(1819, "Link errors")(
        *_link_errors(),
        text="NVLink and PCIe errors and recoveries, within five minutes. Recoveries "
        "cost time; a link with many is about to fail, or is loose.",
        no_value="None",
    )
    yield table(1811, "Memory health")(
        *broken,
        text="GPUs with memory errors in the selected time range, or whose row "
        "remappings are pending a reset or have failed; at most 50 each.",
        height=6,
        labels=_BY,
        no_value="None",
        sort="Uncorrected",
        alerts=("JaxmonGpuEccErrors", "JaxmonGpuNeedsReset"),
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
        labels=_BY,
        no_value="Not available",
        sort="Recovery",
        alerts=("JaxmonGpuNeedsReset",),
    )
    yield timeseries(1812, "Tensor cores busy")(
        Target(_activity(catalog.GPU_TENSOR_ACTIVE_RATIO).least(q.FEW), _NAMED),
        text="Fraction of cycles the tensor cores were active, the 20 lowest: how well "
        "the program uses the accelerator. Low on a busy GPU: other work, or stalls.",
        no_value="Not available",
    )
    yield timeseries(1813, "SMs busy")(
        Target(_activity(catalog.GPU_SM_ACTIVE_RATIO).least(q.FEW), _NAMED),
        text="Mean fraction of time an SM had work, the 20 lowest. Below utilization: "
        "kernels too small for the GPU.",
        no_value="Not available",
    )
    yield timeseries(1814, "Memory bandwidth in use")(
        Target(_activity(catalog.GPU_DRAM_ACTIVE_RATIO).worst(q.FEW), _NAMED),
        text="Fraction of peak memory bandwidth, the 20 highest. Near 80 % the program "
        "is memory-bound.",
        no_value="Not available",
    )
    yield timeseries(1817, "SM clock")(
        Target(_state(catalog.ACCELERATOR_CLOCK_HERTZ, _SM).least(q.FEW), _NAMED),
        text="The 20 lowest. Lower than its peers under load: throttled, see "
        "Throttling by reason.",
        no_value="Not available",
    )
    filled = promql.ratio(
        _state(catalog.GPU_MIG_MEMORY_USED_BYTES),
        _state(catalog.GPU_MIG_MEMORY_SIZE_BYTES),
    )
    yield timeseries(1820, "MIG memory in use")(
        Target(filled.worst(q.FEW), _NAMED),
        text="Memory in use of the 20 fullest MIG devices, by the uuid that programs "
        "see.",
        no_value="No MIG devices",
    )


def _memory_errors() -> tuple[Target, ...]:
    severity, scope = eq("severity", "uncorrected"), eq("scope", "volatile")
    errors = counter(catalog.GPU_ECC_ERRORS, *hardware.GPUS, severity, scope)
    uncorrected = hardware.of_gpus(errors.increase("$__range").sum(*_BY))
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
    return hardware.gpu(metric, *matchers).max(*_BY)


def _activity(metric: Metric) -> Expr:
    """Return what a part of each accelerator, or of an instance of it, is busy with."""
    return hardware.gpu(metric).max(*_BY)


def _link_errors() -> tuple[Target, ...]:
    """Return errors within five minutes, of links that have any."""
    found = (
        (overviews.NVLINK_ERRORS, ("type",), "NVLink {{type}}"),
        (overviews.PCIE_ERRORS, ("type",), "PCIe {{type}}"),
        (overviews.PCIE_REPLAYS, (), "PCIe replays"),
    )
    return tuple(
        Target(
            hardware.of_gpus(overview(*hardware.GPUS)).sum(*_BY, *by).worst(q.FEW),
            f"{_NAMED} {name}",
        )
        for overview, by, name in found
    )


def _traffic(
    *, sent: tuple[Metric, Metric], received: tuple[Metric, Metric]
) -> tuple[Target, ...]:
    """
    Return both directions of a link: by its counter, else by the rate that the driver
    gives instead.
    """
    return tuple(
        Target(
            hardware.of_gpus(
                counter(total, *hardware.GPUS)
                .rate()
                .sum(*_BY)
                .or_(gauge(rate, *hardware.GPUS).max(*_BY).of_unit("bytes per second"))
            ).worst(q.FEW),
            f"{_NAMED} {direction}",
        )
        for (total, rate), direction in ((sent, "sent"), (received, "received"))
    )
