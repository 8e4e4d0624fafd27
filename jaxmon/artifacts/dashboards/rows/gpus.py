"""NVIDIA-specific panels: errors, links, throttling, activity."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, table, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.promql import Counter, Expr, Matcher, counter, eq, gauge
from jaxmon.catalog import Metric


_BY, _NAMED = ("job", "instance", "uuid"), "{{instance}} {{uuid}}"
_CURRENT, _SM = eq("kind", "current"), eq("clock", "sm")


def debug() -> Row:
    """Return error, link and activity panels."""
    # Only critical Xids have a series from the start; the others are born with 1.
    xid = (
        counter(catalog.GPU_XID_ERRORS, hardware.GPU)
        .mishaps("$__range")
        .sum(*_BY, "xid")
    )
    return row(
        26,
        "NVIDIA GPUs",
        line(
            timeseries(
                1808,
                "Throttling by reason",
                Target(
                    counter(catalog.GPU_THROTTLE_SECONDS, hardware.GPU)
                    .rate()
                    .max(*_BY, "reason"),
                    f"{_NAMED} {{{{reason}}}}",
                ),
                text=(
                    "Fraction of time throttled, by reason; reasons overlap. Power is "
                    "normal under load, temperature is not."
                ),
                maximum=1,
                no_value="Not available",
                alerts=("JaxmonGpuThrottled",),
            ),
            timeseries(
                1809,
                "NVLink traffic",
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
                text=(
                    "Traffic over all NVLinks of each accelerator, both directions. "
                    "One below its peers is waiting for one of them."
                ),
                no_value="No NVLink",
            ),
            timeseries(
                1810,
                "PCIe traffic",
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
                text=(
                    "Traffic between each accelerator and its host. High traffic "
                    "during steps: arrays are being moved back and forth."
                ),
                no_value="Not available",
            ),
        ),
        line(
            table(
                1806,
                "Xid errors by GPU",
                Target(xid, "Errors"),
                text=(
                    "Errors reported by NVIDIA's driver in the selected time range; "
                    "see NVIDIA's Xid catalogue."
                ),
                width=16,
                labels=(*_BY, "xid"),
                no_value="No Xid",
                sort="Errors",
                alerts=("JaxmonGpuXid",),
            ),
            timeseries(
                1819,
                "Link errors",
                *_link_errors(),
                text=(
                    "NVLink and PCIe errors and recoveries. Recoveries cost time; a "
                    "link with many is about to fail, or is loose."
                ),
                no_value="None",
            ),
            height=6,
        ),
        line(
            table(
                1811,
                "Memory health",
                Target(uncorrected().increase("$__range").sum(*_BY), "Uncorrected"),
                Target(
                    gauge(catalog.GPU_ROW_REMAP_PENDING, hardware.GPU).max(*_BY),
                    "Reset pending",
                ),
                Target(
                    gauge(catalog.GPU_ROW_REMAP_FAILURE, hardware.GPU).max(*_BY),
                    "Remap failed",
                ),
                text=(
                    "Memory errors in the selected time range, and whether row "
                    "remappings are pending a reset or have failed."
                ),
                labels=_BY,
                no_value="Not available",
                sort="Uncorrected",
                alerts=("JaxmonGpuEccErrors", "JaxmonGpuNeedsReset"),
            ),
            height=6,
        ),
        line(
            table(
                1818,
                "GPU state",
                Target(
                    _state(catalog.GPU_RECOVERY_ACTION), "Recovery action", q.above(1)
                ),
                Target(_state(catalog.GPU_PERFORMANCE_STATE), "State"),
                Target(
                    _state(catalog.GPU_PCIE_LINK_GENERATION, _CURRENT),
                    "PCIe generation",
                ),
                Target(_state(catalog.GPU_PCIE_LINK_WIDTH, _CURRENT), "PCIe lanes"),
                Target(
                    _state(catalog.GPU_PCIE_LINK_WIDTH, eq("kind", "maximum")), "Of"
                ),
                Target(_state(catalog.GPU_FABRIC_STATE), "Fabric"),
                text=(
                    "Requested recovery action (1 reset, 2 reboot, 3 and above drain "
                    "first), performance state (0 is fastest) and PCIe link. Idle "
                    "GPUs lower the generation; the width should never change."
                ),
                labels=_BY,
                no_value="Not available",
                sort="Recovery action",
                alerts=("JaxmonGpuNeedsReset",),
            ),
            height=6,
        ),
        line(
            timeseries(
                1812,
                "Tensor cores busy",
                *_activity(catalog.GPU_TENSOR_ACTIVE_RATIO),
                text=(
                    "Fraction of cycles the tensor cores were active: how well the "
                    "program uses the accelerator. Low on a busy GPU: other work, or "
                    "stalls."
                ),
                maximum=1,
                no_value="Not available",
            ),
            timeseries(
                1813,
                "SMs busy",
                *_activity(catalog.GPU_SM_ACTIVE_RATIO),
                text=(
                    "Mean fraction of time an SM had work. Below utilization: kernels "
                    "too small for the GPU."
                ),
                maximum=1,
                no_value="Not available",
            ),
            timeseries(
                1814,
                "Memory bandwidth in use",
                *_activity(catalog.GPU_DRAM_ACTIVE_RATIO),
                text=(
                    "Fraction of peak memory bandwidth. Near 80 % the program is "
                    "memory-bound."
                ),
                maximum=1,
                no_value="Not available",
            ),
        ),
        line(
            timeseries(
                1817,
                "SM clock",
                Target(_state(catalog.ACCELERATOR_CLOCK_HERTZ, _SM), _NAMED),
                text=(
                    "Lower than its peers under load: throttled, see Throttling by "
                    "reason."
                ),
                no_value="Not available",
            ),
            timeseries(
                1820,
                "MIG memory in use",
                Target(
                    promql.ratio(
                        _state(catalog.GPU_MIG_MEMORY_USED_BYTES),
                        _state(catalog.GPU_MIG_MEMORY_SIZE_BYTES),
                    ),
                    _NAMED,
                ),
                text="Memory in use per MIG device, by the uuid that programs see.",
                maximum=1,
                no_value="No MIG devices",
            ),
        ),
        collapsed=True,
    )


def uncorrected() -> Counter:
    """Return memory errors that ECC could not correct, since the driver was loaded."""
    severity, scope = eq("severity", "uncorrected"), eq("scope", "volatile")
    return counter(catalog.GPU_ECC_ERRORS, hardware.GPU, severity, scope)


def _state(metric: Metric, *matchers: Matcher) -> Expr:
    return gauge(metric, hardware.GPU, *matchers).max(*_BY)


def _activity(metric: Metric) -> tuple[Target, ...]:
    """Return what a part of each accelerator, or of an instance of it, is busy with."""
    return (Target(gauge(metric, hardware.GPU), _NAMED),)


def _link_errors() -> tuple[Target, ...]:
    """Return errors a minute, of links that have any."""
    by_type = tuple(
        Target(
            q.per_minute(counter(metric, hardware.GPU).rate().sum(*_BY, "type")) > 0,
            f"{_NAMED} {name} {{{{type}}}}",
        )
        for metric, name in (
            (catalog.GPU_NVLINK_ERRORS, "NVLink"),
            (catalog.GPU_PCIE_ERRORS, "PCIe"),
        )
    )
    replays = counter(catalog.GPU_PCIE_REPLAYS, hardware.GPU).rate().sum(*_BY)
    return (*by_type, Target(q.per_minute(replays) > 0, f"{_NAMED} PCIe replays"))


def _traffic(
    *, sent: tuple[Metric, Metric], received: tuple[Metric, Metric]
) -> tuple[Target, ...]:
    """
    Return both directions of a link: by its counter, else by the rate that the driver
    gives instead.
    """
    return tuple(
        Target(
            counter(total, hardware.GPU)
            .rate()
            .sum(*_BY)
            .or_(gauge(rate, hardware.GPU).max(*_BY).of_unit("bytes per second")),
            f"{_NAMED} {direction}",
        )
        for (total, rate), direction in ((sent, "sent"), (received, "received"))
    )
