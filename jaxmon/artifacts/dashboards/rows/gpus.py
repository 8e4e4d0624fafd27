"""What only the driver of NVIDIA GPUs tells: errors, links, throttling, activity."""

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
    """Return what each GPU suffered, what its links carry, what its parts do."""
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
                text="Share of time in which each reason held the clock down; reasons "
                "overlap. Power is normal under load, heat is not.",
                maximum=1,
                no_value="Not known here",
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
                text="Data over all NVLinks of each accelerator, both ways. An "
                "accelerator below its peers waits for one of them.",
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
                text="Data between each accelerator and its host. Much of it during "
                "steps: arrays that are moved to and fro.",
                no_value="Not known here",
            ),
        ),
        line(
            table(
                1806,
                "Xid errors by GPU",
                Target(xid, "Errors"),
                text="Errors that NVIDIA's driver reported within the chosen time; its "
                "Xid catalogue says what each means.",
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
                text="Errors and repairs of NVLink and PCIe. Repairs cost time; a link "
                "that has many is about to fail, or sits loose.",
                no_value="None",
            ),
            height=6,
        ),
        line(
            table(
                1811,
                "Memory health",
                Target(uncorrected().increase("$__range").sum(*_BY), "Not corrected"),
                Target(
                    gauge(catalog.GPU_ROW_REMAP_PENDING, hardware.GPU).max(*_BY),
                    "Waiting for a reset",
                ),
                Target(
                    gauge(catalog.GPU_ROW_REMAP_FAILURE, hardware.GPU).max(*_BY),
                    "Not replaced",
                ),
                text="Memory errors within the chosen time, and whether bad rows wait "
                "for a reset or could not be replaced.",
                labels=_BY,
                no_value="Not known here",
                sort="Not corrected",
                alerts=("JaxmonGpuEccErrors", "JaxmonGpuNeedsReset"),
            ),
            height=6,
        ),
        line(
            table(
                1818,
                "State of each GPU",
                Target(_state(catalog.GPU_RECOVERY_ACTION), "Asks for", q.above(1)),
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
                text="What the driver asks for (1 reset, 2 reboot, 3 and more drain "
                "first), performance state from 0, the fastest, and the PCIe link. An "
                "idle GPU lowers the generation, none lowers the lanes.",
                labels=_BY,
                no_value="Not known here",
                sort="Asks for",
                alerts=("JaxmonGpuNeedsReset",),
            ),
            height=6,
        ),
        line(
            timeseries(
                1812,
                "Tensor cores busy",
                *_activity(catalog.GPU_TENSOR_ACTIVE_RATIO),
                text="Share of cycles in which tensor cores worked: what a program "
                "gets out of the accelerator. Low on a busy one: other work, or waits.",
                maximum=1,
                no_value="Not known here",
            ),
            timeseries(
                1813,
                "Multiprocessors busy",
                *_activity(catalog.GPU_SM_ACTIVE_RATIO),
                text="Mean share of time in which a multiprocessor had work. Below the "
                "utilisation: kernels too small for the accelerator.",
                maximum=1,
                no_value="Not known here",
            ),
            timeseries(
                1814,
                "Memory bandwidth in use",
                *_activity(catalog.GPU_DRAM_ACTIVE_RATIO),
                text="Share of the bandwidth of the accelerator's memory. Near 80 % "
                "the program is bound by it.",
                maximum=1,
                no_value="Not known here",
            ),
        ),
        line(
            timeseries(
                1817,
                "Clock of the multiprocessors",
                Target(_state(catalog.ACCELERATOR_CLOCK_HERTZ, _SM), _NAMED),
                text="Lower under load than that of its peers: held down, see "
                "throttling by reason.",
                no_value="Not known here",
            ),
            timeseries(
                1820,
                "Memory of MIG devices in use",
                Target(
                    promql.ratio(
                        _state(catalog.GPU_MIG_MEMORY_USED_BYTES),
                        _state(catalog.GPU_MIG_MEMORY_SIZE_BYTES),
                    ),
                    _NAMED,
                ),
                text="Of each part of a divided GPU, by the uuid that programs see.",
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
