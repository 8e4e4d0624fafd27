"""What only the driver of NVIDIA GPUs tells: errors, links, throttling, activity."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import Counter, Expr, Matcher, counter, eq, gauge
from jaxmon.catalog import Metric


_BY, _NAMED = ("job", "instance", "uuid"), "{{instance}} {{uuid}}"
_CURRENT, _SM = eq("kind", "current"), eq("clock", "sm")


def debug() -> Row:
    """Return what each GPU suffered, what its links carry, what its parts do."""
    # Only critical Xids have a series from the start; the others are born with 1.
    xid = (
        counter(catalog.GPU_XID_ERRORS, hardware.GPU)
        .mishaps("$__range")
        .sum(*_BY, "xid")
    )
    return Row(
        26,
        "NVIDIA GPUs",
        (
            Panel(
                id=1808,
                title="Throttling by reason",
                kind="timeseries",
                text="Share of time in which each reason held the clock down; reasons "
                "overlap. Power is normal under load, heat is not.",
                targets=(
                    Target(
                        counter(catalog.GPU_THROTTLE_SECONDS, hardware.GPU)
                        .rate()
                        .max(*_BY, "reason"),
                        f"{_NAMED} {{{{reason}}}}",
                    ),
                ),
                width=8,
                maximum=1,
                no_value="Not known here",
                alerts=("JaxmonGpuThrottled",),
            ),
            Panel(
                id=1809,
                title="NVLink traffic",
                kind="timeseries",
                text="Data over all NVLinks of each accelerator, both ways. An "
                "accelerator below its peers waits for one of them.",
                targets=_traffic(
                    sent=(
                        catalog.GPU_NVLINK_TRANSMIT_BYTES,
                        catalog.GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND,
                    ),
                    received=(
                        catalog.GPU_NVLINK_RECEIVE_BYTES,
                        catalog.GPU_NVLINK_RECEIVE_BYTES_PER_SECOND,
                    ),
                ),
                width=8,
                no_value="No NVLink",
            ),
            Panel(
                id=1810,
                title="PCIe traffic",
                kind="timeseries",
                text="Data between each accelerator and its host. Much of it during "
                "steps: arrays that are moved to and fro.",
                targets=_traffic(
                    sent=(
                        catalog.GPU_PCIE_TRANSMIT_BYTES,
                        catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND,
                    ),
                    received=(
                        catalog.GPU_PCIE_RECEIVE_BYTES,
                        catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND,
                    ),
                ),
                width=8,
                no_value="Not known here",
            ),
            Panel(
                id=1806,
                title="Xid errors by GPU",
                kind="table",
                text="Errors that NVIDIA's driver reported within the chosen time; its "
                "Xid catalogue says what each means.",
                targets=(Target(xid, "Errors"),),
                width=16,
                height=6,
                labels=(*_BY, "xid"),
                no_value="No Xid",
                sort="Errors",
                alerts=("JaxmonGpuXid",),
            ),
            Panel(
                id=1819,
                title="Link errors",
                kind="timeseries",
                text="Errors and repairs of NVLink and PCIe. Repairs cost time; a link "
                "that has many is about to fail, or sits loose.",
                targets=_link_errors(),
                width=8,
                height=6,
                no_value="None",
            ),
            Panel(
                id=1811,
                title="Memory health",
                kind="table",
                text="Memory errors within the chosen time, and whether bad rows wait "
                "for a reset or could not be replaced.",
                targets=(
                    Target(
                        uncorrected().increase("$__range").sum(*_BY), "Not corrected"
                    ),
                    Target(
                        gauge(catalog.GPU_ROW_REMAP_PENDING, hardware.GPU).max(*_BY),
                        "Waiting for a reset",
                    ),
                    Target(
                        gauge(catalog.GPU_ROW_REMAP_FAILURE, hardware.GPU).max(*_BY),
                        "Not replaced",
                    ),
                ),
                width=24,
                height=6,
                labels=_BY,
                no_value="Not known here",
                sort="Not corrected",
                alerts=("JaxmonGpuEccErrors", "JaxmonGpuNeedsReset"),
            ),
            Panel(
                id=1818,
                title="State of each GPU",
                kind="table",
                text="What the driver asks for (1 reset, 2 reboot, 3 and more drain "
                "first), performance state from 0, the fastest, and the PCIe link. An "
                "idle GPU lowers the generation, none lowers the lanes.",
                targets=(
                    Target(_state(catalog.GPU_RECOVERY_ACTION), "Asks for", q.above(1)),
                    Target(_state(catalog.GPU_PERFORMANCE_STATE), "State"),
                    Target(
                        _state(catalog.GPU_PCIE_LINK_GENERATION, _CURRENT),
                        "PCIe generation",
                    ),
                    Target(_state(catalog.GPU_PCIE_LINK_WIDTH, _CURRENT), "PCIe lanes"),
                    Target(
                        _state(catalog.GPU_PCIE_LINK_WIDTH, eq("kind", "maximum")),
                        "Of",
                    ),
                    Target(_state(catalog.GPU_FABRIC_STATE), "Fabric"),
                ),
                width=24,
                height=6,
                labels=_BY,
                no_value="Not known here",
                sort="Asks for",
                alerts=("JaxmonGpuNeedsReset",),
            ),
            Panel(
                id=1812,
                title="Tensor cores busy",
                kind="timeseries",
                text="Share of cycles in which tensor cores worked: what a program "
                "gets out of the accelerator. Low on a busy one: other work, or waits.",
                targets=_activity(catalog.GPU_TENSOR_ACTIVE_RATIO),
                width=8,
                maximum=1,
                no_value="Not known here",
            ),
            Panel(
                id=1813,
                title="Multiprocessors busy",
                kind="timeseries",
                text="Mean share of time in which a multiprocessor had work. Below the "
                "utilisation: kernels too small for the accelerator.",
                targets=_activity(catalog.GPU_SM_ACTIVE_RATIO),
                width=8,
                maximum=1,
                no_value="Not known here",
            ),
            Panel(
                id=1814,
                title="Memory bandwidth in use",
                kind="timeseries",
                text="Share of the bandwidth of the accelerator's memory. Near 80 % "
                "the program is bound by it.",
                targets=_activity(catalog.GPU_DRAM_ACTIVE_RATIO),
                width=8,
                maximum=1,
                no_value="Not known here",
            ),
            Panel(
                id=1817,
                title="Clock of the multiprocessors",
                kind="timeseries",
                text="Lower under load than that of its peers: held down, see "
                "throttling by reason.",
                targets=(Target(_state(catalog.ACCELERATOR_CLOCK_HERTZ, _SM), _NAMED),),
                width=12,
                no_value="Not known here",
            ),
            Panel(
                id=1820,
                title="Memory of MIG devices in use",
                kind="timeseries",
                text="Of each part of a divided GPU, by the uuid that programs see.",
                targets=(
                    Target(
                        promql.ratio(
                            _state(catalog.GPU_MIG_MEMORY_USED_BYTES),
                            _state(catalog.GPU_MIG_MEMORY_SIZE_BYTES),
                        ),
                        _NAMED,
                    ),
                ),
                width=12,
                maximum=1,
                no_value="No MIG device",
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
