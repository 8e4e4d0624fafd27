"""Accelerators as their driver sees them."""

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
                "Accelerator utilisation",
                Target(
                    hardware.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO), named
                ),
                text="Share of time in which a kernel ran. Low while the service is "
                "busy: the host is the bottleneck.",
                maximum=1,
            ),
            timeseries(
                702,
                "Accelerator memory in use",
                Target(promql.ratio(used.sum(*by), size.sum(*by)), named),
                text="By all processes on the accelerator, JAX's preallocation "
                "included; what JAX has left inside it is under Memory.",
                maximum=1,
            ),
            timeseries(
                703,
                "Power",
                Target(hardware.accelerator(catalog.ACCELERATOR_POWER_WATTS), named),
                text="Power drawn. Much less than usual under load: throttled, or "
                "waiting for the host.",
            ),
        ),
        line(
            timeseries(
                704,
                "Temperature",
                Target(temperature, named),
                text="The hottest sensor of each accelerator. Near its limit it slows "
                "down.",
            ),
            timeseries(
                705,
                "Xid errors",
                Target(xid, f"{named} Xid {{{{xid}}}}"),
                text="Errors that NVIDIA's driver reported. 48, 79 and 95 among others "
                "mean that the GPU or its work is lost.",
                no_value="No Xid",
                alerts=("JaxmonGpuXid",),
            ),
            states(
                706,
                "Accelerators that answer",
                Target(hardware.accelerator(catalog.ACCELERATOR_UP), named),
                text="Whether each accelerator answers its driver.",
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonAcceleratorLost",),
            ),
        ),
        line(
            timeseries(
                707,
                "Accelerators held down",
                Target(held > 0, f"{named} {{{{reason}}}}"),
                text="Share of time in which heat, a power supply or the board held "
                "the clock down. One accelerator slows its whole job.",
                maximum=1,
                no_value="None",
                alerts=("JaxmonGpuThrottled",),
            ),
            timeseries(
                708,
                "Memory errors not corrected",
                Target(gpus.uncorrected().increase().sum(*by) > 0, named),
                text="Errors in the memory of accelerators that ECC could not correct. "
                "Each ends the program that read them.",
                no_value="None",
                alerts=("JaxmonGpuEccErrors",),
            ),
        ),
        collapsed=True,
    )


def debug() -> Row:
    """Return each accelerator: what it is, what it does, what it draws and costs."""
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
                text="Model, driver and uuid of every accelerator. Different drivers "
                "in one fleet: expect different kernels.",
                labels=identity,
            ),
            table(
                1802,
                "Load by accelerator",
                Target(busy, "Utilisation"),
                Target(used, "Memory"),
                Target(power, "Power"),
                text="Each accelerator now; the idle one among busy ones waits for "
                "its host.",
                labels=by,
                sort="Utilisation",
            ),
        ),
        line(
            timeseries(
                1803,
                "Power of its limit",
                Target(promql.ratio(power, limit), named),
                text="Power drawn, as a share of the limit in force. At 100 % the "
                "clock is held down.",
            ),
            timeseries(
                1804,
                "Mean power by energy counter",
                Target(drawn, named),
                text="Energy used over time: steadier than sampled power, and what is "
                "billed.",
            ),
            timeseries(
                1805,
                "Temperature by sensor",
                Target(hot.max(*by, "sensor"), f"{named} {{{{sensor}}}}"),
                text="Of the chip and of its memory.",
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
                text="Power of the GPUs that each process uses; processes that share "
                "one show all of its power. Needs the recording rules of jaxmon.",
                no_value="Not known here",
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
                text="Power of the GPUs of each process, divided among its functions "
                "by their device time: mean of the sampled calls, times all calls. "
                "Needs the recording rules of jaxmon.",
                stacked="normal",
                no_value="Not known here",
            ),
        ),
        line(
            timeseries(
                1807,
                "Cost of 1,000 steps",
                Target(_cost_of_steps(1000), "{{job}}"),
                text="Price of all accelerators of the job, by the sidecar's price "
                "table, while 1,000 steps are made; of those that it uses, where "
                "another job's sidecar reads them. Rises when steps slow down.",
                no_value="No prices given",
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
