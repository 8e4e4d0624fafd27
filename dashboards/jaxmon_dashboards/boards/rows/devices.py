"""Accelerators at a glance, by service, and the worst of them; TPUs."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.promql import gauge, histogram, ne
from jaxmon_alerts.overviews import hosts
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    Thresholds,
    row,
    stat,
    states,
    table,
    timeseries,
)


_NONE = "No accelerators"


@row(37, "Accelerators at a glance", lines=(8, 2))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the state of all accelerators, and one line for each service."""
    up = q.accelerator(catalog.ACCELERATOR_UP)
    busy = q.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO)
    used = q.accelerator(catalog.ACCELERATOR_MEMORY_USED_BYTES)
    size = q.accelerator(catalog.ACCELERATOR_MEMORY_SIZE_BYTES)
    yield stat(3701, "Visible")(
        up.count(),
        text="Accelerators that the selected services use or their sidecars read. "
        "Without any, nothing on this board has data.",
        no_value=_NONE,
    )
    yield stat(3702, "Lost")(
        up.below(1).sum(),
        text="Accelerators that do not respond to their driver. Work on them fails or "
        "hangs; see Accelerators up for which.",
        thresholds=q.above(1),
        no_value="-",
    )
    yield stat(3703, "Mean load")(
        busy.avg(),
        text="Fraction of time that a kernel was running, over all accelerators. Low: "
        "paid for, and idle.",
        no_value="-",
    )
    yield stat(3704, "Idle now")(
        busy.below(slos.limits.accelerator_idle).sum(),
        text="Accelerators that are hardly used at the moment. Sort Load by "
        "accelerator for which.",
        no_value="-",
    )
    yield stat(3705, "Memory in use")(
        promql.ratio(used.sum(), size.sum()),
        text="Memory in use of all accelerators, JAX's preallocation included.",
        no_value="-",
    )
    yield stat(3706, "Power drawn")(
        q.accelerator(catalog.ACCELERATOR_POWER_WATTS).sum(),
        text="Power of all accelerators that report it; TPUs do not.",
        no_value="-",
    )
    yield stat(3707, "Hottest sensor")(
        q.accelerator(catalog.ACCELERATOR_TEMPERATURE_CELSIUS).max(),
        text="Hottest sensor of any accelerator; see Temperature margin for how far "
        "each is from throttling.",
        no_value="-",
    )
    yield stat(3708, "Price per hour")(
        q.accelerator(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR)
        .sum()
        .of_unit("dollars"),
        text="Price of all accelerators, from the sidecars' price tables.",
        no_value="-",
    )
    devices = gauge(catalog.DEVICE_INFO, ne("uuid", ""), *q.PROCESS)
    model = q.accelerator(catalog.ACCELERATOR_INFO)
    yield table(3709, "Accelerators by service")(
        Target(devices.max(*q.BY_HOST, "uuid").count("job"), "Used"),
        Target(hosts.UTILIZATION_OF_JOBS(q.JOB).max("job"), "Utilization"),
        Target(hosts.POWER_OF_JOBS(q.JOB).max("job"), "Power"),
        Target(hosts.PRICE_OF_JOBS(q.JOB).max("job").of_unit("dollars"), "Per hour"),
        text="What each service uses; one that is shared counts for each. The name "
        "selects the service.",
        height=7,
        cell_links=(q.opening("job", "Show only this service", "accelerators"),),
        width=16,
        sort="Used",
        no_value="-",
    )
    yield table(3710, "Models and drivers")(
        Target(model.count("vendor", "model", "driver"), "Number"),
        text="Different drivers of one model may run different kernels: upgrade them "
        "together.",
        labels=("vendor", "model", "driver"),
        no_value="-",
        sort="Number",
    )


@row(38, "By service, and the worst; empty without any", lines=(2, 3), collapsed=True)
def worst() -> Iterator[Panel]:
    """Return utilisation by service, and the accelerators that stand out."""
    device = "{{instance}} {{uuid}}"
    margin = q.accelerator(catalog.ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS)
    idle = q.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO)
    gpus = q.accelerator(catalog.GPU_DRAM_ACTIVE_RATIO)
    chips = q.accelerator(catalog.ACCELERATOR_MEMORY_BANDWIDTH_RATIO)
    yield timeseries(3801, "Utilization by service")(
        q.least_of(hosts.UTILIZATION_OF_JOBS(), 10),
        text="Mean utilization of the accelerators of the services that use theirs "
        "least. Low in training: the input or the host is too slow.",
        no_value=_NONE,
    )
    yield timeseries(3803, "Least utilized accelerators")(
        Target(idle.least(10), device),
        text="One idle accelerator among busy ones waits for its host, or belongs to a "
        "process that hangs.",
        no_value=_NONE,
    )
    yield timeseries(3804, "Temperature margin")(
        Target(margin.least(10), device),
        text="How far the hottest accelerators are from throttling. Near 0: airflow, "
        "or a neighbour; the service loses speed.",
        thresholds=q.below(5),
        alerts=("JaxmonGpuThrottled",),
        no_value="Not available",
    )
    yield timeseries(3806, "Tensor cores in use")(
        Target(q.accelerator(catalog.GPU_TENSOR_ACTIVE_RATIO).least(10), device),
        text="Fraction of time that tensor cores were busy, of the 10 lowest. Low with "
        "high utilization: small products, or no matrix products at all.",
        no_value="Not available",
    )
    yield timeseries(3805, "Memory bandwidth of accelerators")(
        *(Target(values.worst(10), device) for values in (gpus, chips)),
        text="Fraction of the memory bandwidth in use, GPUs and TPUs alike. Near 80 % "
        "the program is memory-bound.",
        no_value="Not available",
    )


@row(25, "TPUs; empty without any", lines=(3, 1, 3), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return load, times, and the position of each core."""
    by_core = ("instance", "uuid", "core")
    seconds = histogram(catalog.TPU_HLO_EXECUTION_SECONDS, *q.HOSTS)
    waiting = q.host(catalog.TPU_CORE_QUEUED_PROGRAMS).topk(50)
    runtime = "{{instance}} {{runtime}}"

    def core(
        metric: Metric, title: str, thresholds: Thresholds | None = None
    ) -> Target:
        """Return a column of the cores with most programs queued."""
        values = q.host(metric).max(*by_core)
        return Target(values.and_(waiting, *by_core), title, thresholds)

    yield timeseries(2501, "TPU duty cycle")(
        Target(
            q.host(catalog.TPU_DUTY_CYCLE_RATIO).least(q.FEW), "{{instance}} {{uuid}}"
        ),
        text="Fraction of time each chip was busy. One below its peers: they are "
        "waiting for it, or it is waiting for its host.",
    )
    yield states(2503, "TPU runtimes up")(
        Target(q.host(catalog.TPU_RUNTIME_UP).least(q.FEW), runtime),
        text="Whether each process's runtime responds; none does while no program uses "
        "the chips.",
        thresholds=None,
        mappings=q.UP,
        alerts=("JaxmonMonitoringDegraded",),
    )
    yield table(2504, "TPU execution time")(
        Target(q.defined(seconds.quantile(0.95, *by_core)).topk(10), "p95"),
        text="Execution time on the slowest cores, as measured by the runtime.",
        sort="p95",
    )
    yield table(2506, "TPU core position")(
        core(catalog.TPU_CORE_PROGRAM_ID, "Program"),
        core(catalog.TPU_CORE_RUN_ID, "Run"),
        core(catalog.TPU_CORE_PROGRAM_POSITION, "Instruction"),
        core(catalog.TPU_CORE_QUEUED_PROGRAMS, "Waiting"),
        core(catalog.TPU_CORE_IDLE_SECONDS, "Idle"),
        core(catalog.TPU_CORE_ERROR, "Error", q.above(1)),
        text="Run, program counter and queued programs of the 50 cores with most "
        "queued. No progress with programs queued means a hang; see the sidecar's log.",
        sort="Waiting",
    )
    yield timeseries(2509, "Traffic between TPU slices")(
        Target(q.host_rate(catalog.TPU_DCN_TRANSMIT_BYTES).sum(), "sent"),
        Target(q.host_rate(catalog.TPU_DCN_RETRANSMIT_BYTES).sum(), "retransmitted"),
        text="Bytes sent over the DCN, and retransmitted. Retransmits mean a lossy "
        "network.",
        no_value="Single slice",
    )
    yield timeseries(2510, "TPU link health")(
        Target(q.host(catalog.TPU_ICI_LINK_HEALTH).worst(q.FEW), runtime),
        text="Worst link of a chip: 0 healthy, 1-5 transient faults, 6-9 persistent "
        "faults, 10 unusable.",
        maximum=10,
        thresholds=q.above(1, 6),
        no_value="Not reported by this libtpu",
    )
    yield timeseries(2511, "TPU throttling")(
        Target(q.host(catalog.TPU_THROTTLE_SCORE).worst(q.FEW), runtime),
        text="Worst throttling of any chip: 0 none, 10 constant.",
        maximum=10,
        thresholds=q.above(1, 5),
        no_value="Not reported by this libtpu",
    )
