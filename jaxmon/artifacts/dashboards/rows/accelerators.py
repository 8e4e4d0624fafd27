"""Accelerator panels."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts.power import FUNCTION_POWER, PROCESS_POWER
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, states, table, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.dashboards.rows import gpus
from jaxmon.artifacts.promql import Expr, counter, gauge, recorded


def oncall() -> Row:
    """Return load, memory, power and health."""
    named = "{{instance}} {{uuid}}"
    by = ("job", "instance", "uuid")
    used = hardware.accelerator(catalog.ACCELERATOR_MEMORY_USED_BYTES)
    size = hardware.accelerator(catalog.ACCELERATOR_MEMORY_SIZE_BYTES)
    temperature = hardware.accelerator(catalog.ACCELERATOR_TEMPERATURE_CELSIUS).max(*by)
    # Only critical Xids have a series from the start; the others are born with 1.
    xid = counter(catalog.GPU_XID_ERRORS, hardware.GPU).mishaps().sum(*by, "xid")
    undue = promql.re("reason", "|".join(catalog.UNDUE_THROTTLING))
    held = counter(catalog.GPU_THROTTLE_SECONDS, hardware.GPU, undue).rate()
    held = held.max(*by, "reason")
    return row(
        8,
        "Accelerators",
        line(
            timeseries(
                701,
                "Accelerator utilization",
                Target(
                    hardware.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO), named
                ),
                text=(
                    "Fraction of time a kernel was running. If low while the service "
                    "is busy, the host is the bottleneck."
                ),
                maximum=1,
                alerts=("JaxmonAcceleratorUnderused", "JaxmonAcceleratorIdle"),
            ),
            timeseries(
                702,
                "Accelerator memory in use",
                Target(promql.ratio(used.sum(*by), size.sum(*by)), named),
                text=(
                    "Used by all processes on the accelerator, including JAX's "
                    "preallocation; for free memory within that, see Memory."
                ),
                maximum=1,
            ),
            timeseries(
                703,
                "Power",
                Target(hardware.accelerator(catalog.ACCELERATOR_POWER_WATTS), named),
                text=(
                    "Power draw. Much lower than usual under load: throttled, or "
                    "waiting for the host."
                ),
            ),
        ),
        line(
            timeseries(
                704,
                "Temperature",
                Target(temperature, named),
                text="Hottest sensor of each accelerator. Near the limit it throttles.",
            ),
            timeseries(
                705,
                "Xid errors",
                Target(xid, f"{named} Xid {{{{xid}}}}"),
                text=(
                    "Errors reported by NVIDIA's driver. 48, 79 and 95, among others, "
                    "mean that the GPU or its work is lost."
                ),
                no_value="No Xid errors",
                alerts=("JaxmonGpuXid",),
            ),
            states(
                706,
                "Accelerators up",
                Target(hardware.accelerator(catalog.ACCELERATOR_UP), named),
                text="Whether each accelerator responds to its driver.",
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonAcceleratorLost",),
            ),
        ),
        line(
            timeseries(
                707,
                "Throttled accelerators",
                Target(held > 0, f"{named} {{{{reason}}}}"),
                text=(
                    "Fraction of time throttled by temperature, power supply or "
                    "board. One slow accelerator slows its whole job."
                ),
                maximum=1,
                no_value="None",
                alerts=("JaxmonGpuThrottled",),
            ),
            timeseries(
                708,
                "Uncorrectable memory errors",
                Target(gpus.uncorrected().increase().sum(*by) > 0, named),
                text=(
                    "Memory errors that ECC could not correct. Each terminates the "
                    "program that reads the affected memory."
                ),
                no_value="None",
                alerts=("JaxmonGpuEccErrors",),
            ),
        ),
        collapsed=True,
    )


def debug() -> Row:
    """Return per-accelerator identity, load, power and cost."""
    named = "{{instance}} {{uuid}}"
    by = ("job", "instance", "uuid")
    busy = hardware.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO).max(*by)
    used = hardware.accelerator(catalog.ACCELERATOR_MEMORY_USED_BYTES).max(*by)
    power = hardware.accelerator(catalog.ACCELERATOR_POWER_WATTS).max(*by)
    limit = hardware.accelerator(catalog.ACCELERATOR_POWER_LIMIT_WATTS).max(*by)
    hot = hardware.accelerator(catalog.ACCELERATOR_TEMPERATURE_CELSIUS)
    drawn = counter(catalog.ACCELERATOR_ENERGY_JOULES, hardware.GPU).rate().max(*by)
    identity = ("instance", "index", "vendor", "model", "driver", "uuid")
    present = hardware.accelerator(catalog.ACCELERATOR_INFO).count(*identity)
    return row(
        18,
        "Accelerators",
        line(
            table(
                1801,
                "Accelerators",
                Target(present, "Present"),
                text=(
                    "Model, driver and uuid of every accelerator. Different drivers "
                    "in one fleet may mean different kernels."
                ),
                labels=identity,
            ),
            table(
                1802,
                "Load by accelerator",
                Target(busy, "Utilization"),
                Target(used, "Memory"),
                Target(power, "Power"),
                text=(
                    "Current load of each accelerator; an idle one among busy ones is "
                    "waiting for its host."
                ),
                labels=by,
                sort="Utilization",
            ),
        ),
        line(
            timeseries(
                1803,
                "Power vs limit",
                Target(promql.ratio(power, limit), named),
                text=(
                    "Power draw as a fraction of the enforced limit. At 100 % the GPU "
                    "throttles."
                ),
            ),
            timeseries(
                1804,
                "Average power (energy counter)",
                Target(drawn, named),
                text=(
                    "Power derived from the energy counter: steadier than sampled "
                    "power, and what is billed."
                ),
            ),
            timeseries(
                1805,
                "Temperature by sensor",
                Target(hot.max(*by, "sensor"), f"{named} {{{{sensor}}}}"),
                text="Chip and memory temperatures.",
            ),
        ),
        line(
            timeseries(
                1815,
                "Power by process",
                Target(
                    recorded(
                        PROCESS_POWER, *q.PROCESS, labels=q.BY_PROCESS, unit="watts"
                    ),
                    q.NAMED_PROCESS,
                ),
                text=(
                    "Power of the GPUs used by each process; a shared GPU counts in "
                    "full for each process. Requires jaxmon's recording rules."
                ),
                no_value="No data",
            ),
            timeseries(
                1816,
                "Power by function",
                Target(
                    recorded(
                        FUNCTION_POWER, *q.FUNCTION, labels=("function",), unit="watts"
                    )
                    .sum("function")
                    .topk(10),
                    "{{function}}",
                ),
                text=(
                    "Power of the GPUs of each process, apportioned to its "
                    "functions by device time (mean of sampled calls times number "
                    "of calls). Requires jaxmon's recording rules."
                ),
                stacked="normal",
                no_value="No data",
            ),
        ),
        line(
            timeseries(
                1807,
                "Cost of 1,000 steps",
                Target(_cost_of_steps(1000), "{{job}}"),
                text=(
                    "Cost of all the job's accelerators per 1,000 steps, from the "
                    "sidecar's price table; if another job's sidecar reads them, of "
                    "the accelerators the job uses. Rises when steps slow down."
                ),
                no_value="No prices configured",
            ),
            height=6,
        ),
        collapsed=True,
    )


def _cost_of_steps(number: int) -> Expr:
    """
    Return dollars for *number* steps of each job; ranks of one step count it once.
    """
    own = gauge(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR, *q.HOST).sum("job")
    # Where a sidecar of another job reads them: those that the job uses.
    each = gauge(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR, hardware.GPU).max("uuid")
    uses = gauge(catalog.DEVICE_INFO, *q.HOST, hardware.GPU).max("job", "uuid")
    used = uses.joined(each, on=("uuid",), take=()).sum("job").of_unit("dollars")
    price = own.or_(used)
    ranks = counter(catalog.STEPS, *q.HOST).rate().max("job", "loop").sum("job")
    cost = price / 3600 * number
    return (cost / (ranks > 0)).of_unit("dollars")
