"""Accelerators at a glance, by service, and the worst of them; TPUs."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, counter, gauge, histogram
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


_BY = ("job", "instance", "uuid")
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
        text="Accelerators that the selected services use or their sidecars read.",
    )
    yield stat(3702, "Lost")(
        q.or_zero(up.equals(0).count(), up),
        text="Accelerators that do not respond to their driver. Work on them fails or "
        "hangs; see Accelerators up for which.",
        thresholds=q.above(1),
    )
    yield stat(3703, "Mean load")(
        busy.avg(),
        text="Fraction of time that a kernel was running, over all accelerators. Low: "
        "paid for, and idle.",
    )
    yield stat(3704, "Idle now")(
        q.or_zero((busy < slos.limits.accelerator_idle).count(), busy),
        text="Accelerators that are hardly used at the moment. Sort Load by "
        "accelerator for which.",
    )
    yield stat(3705, "Memory in use")(
        promql.ratio(used.sum(), size.sum()),
        text="Memory in use of all accelerators, JAX's preallocation included.",
    )
    yield stat(3706, "Power drawn")(
        q.accelerator(catalog.ACCELERATOR_POWER_WATTS).sum(),
        text="Power of all accelerators that report it; TPUs do not.",
        no_value="Not available",
    )
    yield stat(3707, "Hottest sensor")(
        q.accelerator(catalog.ACCELERATOR_TEMPERATURE_CELSIUS).max(),
        text="Hottest sensor of any accelerator; see Temperature margin for how far "
        "each is from throttling.",
        no_value="Not available",
    )
    yield stat(3708, "Price per hour")(
        q.accelerator(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR)
        .sum()
        .of_unit("dollars"),
        text="Price of all accelerators, from the sidecars' price tables.",
        no_value="No prices",
    )
    busy = q.of_job(catalog.ACCELERATOR_UTILIZATION_RATIO)
    used = q.of_job(catalog.ACCELERATOR_MEMORY_USED_BYTES)
    size = q.of_job(catalog.ACCELERATOR_MEMORY_SIZE_BYTES)
    price = q.of_job(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR)
    model = q.accelerator(catalog.ACCELERATOR_INFO)
    yield table(3709, "Accelerators by service")(
        Target(q.of_job(catalog.ACCELERATOR_UP).count("job"), "Used"),
        Target(busy.avg("job"), "Utilization"),
        Target(busy.min("job"), "Lowest"),
        Target(promql.ratio(used.sum("job"), size.sum("job")), "Memory"),
        Target(q.of_job(catalog.GPU_TENSOR_ACTIVE_RATIO).avg("job"), "Tensor"),
        Target(q.of_job(catalog.ACCELERATOR_POWER_WATTS).sum("job"), "Power"),
        Target(price.sum("job").of_unit("dollars"), "Per hour"),
        text="What each service uses; one that is shared counts for each. Tensor: the "
        "fraction of time its tensor cores were busy. The name selects the service.",
        height=7,
        cell_links=(q.opening("job", "Show only this service", "accelerators"),),
        width=16,
        sort="Used",
    )
    yield table(3710, "Models and drivers")(
        Target(model.count("vendor", "model", "driver"), "Number"),
        text="Different drivers of one model may run different kernels: upgrade them "
        "together.",
        labels=("vendor", "model", "driver"),
        no_value=_NONE,
        sort="Number",
    )


@row(38, "By service, and the worst", lines=(2, 3))
def worst() -> Iterator[Panel]:
    """Return utilisation by service, and the accelerators that stand out."""
    margin = q.accelerator(catalog.ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS)
    yield timeseries(3801, "Utilization by service")(
        hosts.UTILIZATION_OF_JOBS(q.JOB).least(10),
        text="Mean utilization of the accelerators of the services that use theirs "
        "least. Low in training: the input or the host is too slow.",
        no_value=_NONE,
    )
    yield timeseries(3802, "Power by service")(
        hosts.POWER_OF_JOBS(q.JOB).worst(10),
        text="Power of the GPUs of each service. A drop with the same load: throttled, "
        "or fewer of them.",
        no_value="Not available",
    )
    yield timeseries(3803, "Least utilized accelerators")(
        q.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO).max(*_BY).least(10),
        text="One idle accelerator among busy ones waits for its host, or belongs to a "
        "process that hangs.",
        no_value=_NONE,
    )
    yield timeseries(3804, "Temperature margin")(
        margin.max(*_BY).least(10),
        text="How far the hottest accelerators are from throttling. Near 0: airflow, "
        "or a neighbour; the service loses speed.",
        thresholds=q.below(5),
        alerts=("JaxmonGpuThrottled",),
        no_value="Not available",
    )
    yield timeseries(3805, "Memory bandwidth of accelerators")(
        _bandwidth().max(*_BY).worst(10),
        text="Fraction of the memory bandwidth in use, GPUs and TPUs alike. Near 80 % "
        "the program is memory-bound.",
        no_value="Not available",
    )


def _bandwidth() -> Expr:
    gpus = q.gpu(catalog.GPU_DRAM_ACTIVE_RATIO)
    return gpus.or_(gauge(catalog.ACCELERATOR_MEMORY_BANDWIDTH_RATIO, *q.HOST))


@row(25, "TPUs", lines=(3, 1, 3), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return load, times, and the position of each core."""
    by_core = ("job", "instance", "uuid", "core")
    executions = histogram(catalog.TPU_HLO_EXECUTION_SECONDS, *q.HOST)
    waiting = gauge(catalog.TPU_CORE_QUEUED_PROGRAMS, *q.HOST).max(*by_core).topk(50)

    def core(
        metric: Metric, title: str, thresholds: Thresholds | None = None
    ) -> Target:
        """Return a column of the cores with most programs queued."""
        values = gauge(metric, *q.HOST).max(*by_core)
        return Target(values.and_(waiting), title, thresholds)

    yield timeseries(2501, "TPU duty cycle")(
        gauge(catalog.TPU_DUTY_CYCLE_RATIO, *q.HOST).least(q.FEW),
        text="Fraction of time each chip was busy. One below its peers: they are "
        "waiting for it, or it is waiting for its host.",
    )
    yield states(2503, "TPU runtimes up")(
        gauge(catalog.TPU_RUNTIME_UP, *q.HOST).least(q.FEW),
        text="Whether each process's runtime responds; none does while no program uses "
        "the chips.",
        thresholds=None,
        mappings=q.UP,
        alerts=("JaxmonMonitoringDegraded",),
    )
    yield timeseries(2504, "TPU execution time")(
        Target(q.defined(executions.quantile(0.95, *by_core)).worst(10), "95 %"),
        text="Execution time on the slowest cores, as measured by the runtime.",
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
    sent = (
        counter(catalog.TPU_DCN_TRANSMIT_BYTES, *q.HOST).rate().sum("job", "instance")
    )
    resent = (
        counter(catalog.TPU_DCN_RETRANSMIT_BYTES, *q.HOST).rate().sum("job", "instance")
    )
    yield timeseries(2509, "Traffic between TPU slices")(
        Target(sent.worst(q.FEW), "{{instance}} sent"),
        Target(resent.worst(q.FEW), "{{instance}} retransmitted"),
        text="Bytes sent over the DCN, and retransmitted. Retransmits mean a lossy "
        "network.",
        no_value="Single slice",
    )
    yield timeseries(2510, "TPU link health")(
        gauge(catalog.TPU_ICI_LINK_HEALTH, *q.HOST).worst(q.FEW),
        text="Worst link of a chip: 0 healthy, 1-5 transient faults, 6-9 persistent "
        "faults, 10 unusable.",
        maximum=10,
        thresholds=q.above(1, 6),
        no_value="Not reported by this libtpu",
    )
    yield timeseries(2511, "TPU throttling")(
        gauge(catalog.TPU_THROTTLE_SCORE, *q.HOST).worst(q.FEW),
        text="Worst throttling of any chip: 0 none, 10 constant.",
        maximum=10,
        thresholds=q.above(1, 5),
        no_value="Not reported by this libtpu",
    )
