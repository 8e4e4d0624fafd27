"""Accelerators as their driver sees them."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts.power import FUNCTION_POWER, PROCESS_POWER
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
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
    return Row(
        8,
        "Accelerators",
        (
            Panel(
                id=701,
                title="Accelerator utilisation",
                kind="timeseries",
                text="Share of time in which a kernel ran. Low while the service is "
                "busy: the host is the bottleneck.",
                targets=(
                    Target(
                        hardware.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO),
                        named,
                    ),
                ),
                width=8,
                maximum=1,
            ),
            Panel(
                id=702,
                title="Accelerator memory in use",
                kind="timeseries",
                text="By all processes on the accelerator, JAX's preallocation "
                "included; what JAX has left inside it is under Memory.",
                targets=(Target(promql.ratio(used.sum(*by), size.sum(*by)), named),),
                width=8,
                maximum=1,
            ),
            Panel(
                id=703,
                title="Power",
                kind="timeseries",
                text="Power drawn. Much less than usual under load: throttled, or "
                "waiting for the host.",
                targets=(
                    Target(
                        hardware.accelerator(catalog.ACCELERATOR_POWER_WATTS), named
                    ),
                ),
                width=8,
            ),
            Panel(
                id=704,
                title="Temperature",
                kind="timeseries",
                text="The hottest sensor of each accelerator. Near its limit it slows "
                "down.",
                targets=(Target(temperature, named),),
                width=8,
            ),
            Panel(
                id=705,
                title="Xid errors",
                kind="timeseries",
                text="Errors that NVIDIA's driver reported. 48, 79 and 95 among others "
                "mean that the GPU or its work is lost.",
                targets=(Target(xid, f"{named} Xid {{{{xid}}}}"),),
                width=8,
                no_value="No Xid",
                alerts=("JaxmonGpuXid",),
            ),
            Panel(
                id=706,
                title="Accelerators that answer",
                kind="state-timeline",
                text="Whether each accelerator answers its driver.",
                targets=(Target(hardware.accelerator(catalog.ACCELERATOR_UP), named),),
                width=8,
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonAcceleratorLost",),
            ),
            Panel(
                id=707,
                title="Accelerators held down",
                kind="timeseries",
                text="Share of time in which heat, a power supply or the board held "
                "the clock down. One accelerator slows its whole job.",
                targets=(Target(held > 0, f"{named} {{{{reason}}}}"),),
                width=12,
                maximum=1,
                no_value="None",
                alerts=("JaxmonGpuThrottled",),
            ),
            Panel(
                id=708,
                title="Memory errors not corrected",
                kind="timeseries",
                text="Errors in the memory of accelerators that ECC could not correct. "
                "Each ends the program that read them.",
                targets=(Target(gpus.uncorrected().increase().sum(*by) > 0, named),),
                width=12,
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
    return Row(
        18,
        "Accelerators",
        (
            Panel(
                id=1801,
                title="Accelerators",
                kind="table",
                text="Model, driver and uuid of every accelerator. Different drivers "
                "in one fleet: expect different kernels.",
                targets=(Target(present, "Present"),),
                labels=identity,
            ),
            Panel(
                id=1802,
                title="Load by accelerator",
                kind="table",
                text="Each accelerator now; the idle one among busy ones waits for "
                "its host.",
                targets=(
                    Target(busy, "Utilisation"),
                    Target(used, "Memory"),
                    Target(power, "Power"),
                ),
                labels=by,
                sort="Utilisation",
            ),
            Panel(
                id=1803,
                title="Power of its limit",
                kind="timeseries",
                text="Power drawn, as a share of the limit in force. At 100 % the "
                "clock is held down.",
                targets=(Target(promql.ratio(power, limit), named),),
                width=8,
            ),
            Panel(
                id=1804,
                title="Mean power by energy counter",
                kind="timeseries",
                text="Energy used over time: steadier than sampled power, and what is "
                "billed.",
                targets=(Target(drawn, named),),
                width=8,
            ),
            Panel(
                id=1805,
                title="Temperature by sensor",
                kind="timeseries",
                text="Of the chip and of its memory.",
                targets=(Target(hot.max(*by, "sensor"), f"{named} {{{{sensor}}}}"),),
                width=8,
            ),
            Panel(
                id=1815,
                title="Power by process",
                kind="timeseries",
                text="Power of the GPUs that each process uses; processes that share "
                "one show all of its power. Needs the recording rules of jaxmon.",
                targets=(
                    Target(
                        recorded(
                            PROCESS_POWER,
                            *q.PROCESS,
                            labels=q.BY_PROCESS,
                            unit="watts",
                        ),
                        q.NAMED_PROCESS,
                    ),
                ),
                no_value="Not known here",
            ),
            Panel(
                id=1816,
                title="Power by function",
                kind="timeseries",
                text="Power of the GPUs of each process, divided among its functions "
                "by their device time: mean of the sampled calls, times all calls. "
                "Needs the recording rules of jaxmon.",
                targets=(
                    Target(
                        recorded(
                            FUNCTION_POWER,
                            *q.FUNCTION,
                            labels=("function",),
                            unit="watts",
                        )
                        .sum("function")
                        .topk(10),
                        "{{function}}",
                    ),
                ),
                stacked="normal",
                no_value="Not known here",
            ),
            Panel(
                id=1807,
                title="Cost of 1,000 steps",
                kind="timeseries",
                text="Price of all accelerators of the job, by the sidecar's price "
                "table, while 1,000 steps are made; of those that it uses, where "
                "another job's sidecar reads them. Rises when steps slow down.",
                targets=(Target(_cost_of_steps(1000), "{{job}}"),),
                width=24,
                height=6,
                no_value="No prices given",
            ),
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
