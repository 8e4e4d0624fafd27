"""
Accelerators as their driver sees them.
"""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, gauge


def oncall() -> Row:
    """
    Return load, memory, power and health.
    """
    named = "{{instance}} {{uuid}}"
    by = ("job", "instance", "uuid")
    used = gauge(catalog.ACCELERATOR_MEMORY_USED_BYTES, *q.HOST)
    size = gauge(catalog.ACCELERATOR_MEMORY_SIZE_BYTES, *q.HOST)
    temperature = gauge(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, *q.HOST).max(*by)
    xid = counter(catalog.GPU_XID_ERRORS, *q.HOST).increase().sum(*by, "xid")
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
                        gauge(catalog.ACCELERATOR_UTILIZATION_RATIO, *q.HOST), named
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
                    Target(gauge(catalog.ACCELERATOR_POWER_WATTS, *q.HOST), named),
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
                targets=(Target(xid > 0, f"{named} Xid {{{{xid}}}}"),),
                width=8,
                no_value="No Xid",
                alerts=("JaxmonGpuXid",),
            ),
            Panel(
                id=706,
                title="Accelerators that answer",
                kind="state-timeline",
                text="Whether each accelerator answers its driver.",
                targets=(Target(gauge(catalog.ACCELERATOR_UP, *q.HOST), named),),
                width=8,
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonGpuLost",),
            ),
        ),
        collapsed=True,
    )


def debug() -> Row:
    """
    Return each accelerator: what it is, what it does, what it suffered.
    """
    named = "{{instance}} {{uuid}}"
    by = ("job", "instance", "uuid")
    busy = gauge(catalog.ACCELERATOR_UTILIZATION_RATIO, *q.HOST).max(*by)
    used = gauge(catalog.ACCELERATOR_MEMORY_USED_BYTES, *q.HOST).max(*by)
    power = gauge(catalog.ACCELERATOR_POWER_WATTS, *q.HOST).max(*by)
    limit = gauge(catalog.ACCELERATOR_POWER_LIMIT_WATTS, *q.HOST).max(*by)
    hot = gauge(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, *q.HOST)
    drawn = counter(catalog.ACCELERATOR_ENERGY_JOULES, *q.HOST).rate().sum(*by)
    xid = counter(catalog.GPU_XID_ERRORS, *q.HOST).increase("$__range").sum(*by, "xid")
    identity = ("instance", "index", "vendor", "model", "driver", "uuid")
    present = gauge(catalog.ACCELERATOR_INFO, *q.HOST).count(*identity)
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
                id=1806,
                title="Xid errors by GPU",
                kind="table",
                text="Errors that NVIDIA's driver reported within the chosen time; its "
                "Xid catalogue says what each means.",
                targets=(Target(xid > 0, "Errors"),),
                width=24,
                height=6,
                labels=(*by, "xid"),
                no_value="No Xid",
                sort="Errors",
                alerts=("JaxmonGpuXid",),
            ),
        ),
        collapsed=True,
    )
