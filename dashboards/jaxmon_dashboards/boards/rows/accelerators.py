"""Accelerators at a glance, by service, by host and one by one; NVIDIA GPUs, TPUs."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, Matcher, counter, eq, gauge, histogram, ne, recorded
from jaxmon_alerts.overviews import hosts
from jaxmon_alerts.overviews.hosts import FUNCTION_POWER
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


@row(37, "Accelerators at a glance", lines=(8, 2), no_value="-")
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
    )
    yield stat(3703, "Mean load")(
        busy.avg(),
        text="Fraction of time that a kernel was running, over all accelerators. Low: "
        "paid for, and idle.",
    )
    yield stat(3704, "Idle now")(
        busy.below(slos.limits.accelerator_idle).sum(),
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
    )
    yield stat(3707, "Hottest sensor")(
        q.accelerator(catalog.ACCELERATOR_TEMPERATURE_CELSIUS).max(),
        text="Hottest sensor of any accelerator; see Temperature margin for how far "
        "each is from throttling.",
    )
    yield stat(3708, "Price per hour")(
        q.accelerator(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR)
        .sum()
        .of_unit("dollars"),
        text="Price of all accelerators, from the sidecars' price tables.",
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
    )
    yield table(3710, "Models and drivers")(
        Target(model.count("vendor", "model", "driver"), "Number"),
        text="Different drivers of one model may run different kernels: upgrade them "
        "together.",
        labels=("vendor", "model", "driver"),
        sort="Number",
    )


@row(
    38,
    "By service, and the worst; empty without any",
    lines=(2, 3),
    collapsed=True,
    no_value="Not available",
)
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
    )
    yield timeseries(3806, "Tensor cores in use")(
        Target(q.accelerator(catalog.GPU_TENSOR_ACTIVE_RATIO).least(10), device),
        text="Fraction of time that tensor cores were busy, of the 10 lowest. Low with "
        "high utilization: small products, or no matrix products at all.",
    )
    yield timeseries(3805, "Memory bandwidth of accelerators")(
        *(Target(values.worst(10), device) for values in (gpus, chips)),
        text="Fraction of the memory bandwidth in use, GPUs and TPUs alike. Near 80 % "
        "the program is memory-bound.",
    )


@row(25, "TPUs; empty without any", lines=(3, 1, 3), collapsed=True)
def tpus() -> Iterator[Panel]:
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


# As many as have room for their names; of tables, for each column.
_ROWS, _LISTED, _EACH = 10, 33, 25
_BY = (*q.BY_HOST, "uuid")


@row(8, "Load and health; empty without accelerators", lines=(3, 2), collapsed=True)
def oncall() -> Iterator[Panel]:
    """Return load, memory, power and health, by host."""
    gpu = "{{instance}} {{uuid}}"
    yield timeseries(702, "Accelerator memory in use")(
        Target(hosts.MEMORY(*q.HOSTS).worst(q.FEW), "{{instance}}"),
        text="Used by all processes on the fullest accelerator of each host, including "
        "JAX's preallocation, of the 20 fullest hosts; for free memory within that, "
        "see Memory.",
    )
    yield timeseries(705, "Xid errors")(
        Target(hosts.XIDS(*q.GPUS).worst(q.FEW), f"{gpu} Xid {{{{xid}}}}"),
        text="Errors reported by NVIDIA's driver, within five minutes. 48, 79 and 95, "
        "among others, mean that the GPU or its work is lost.",
        no_value="No Xid errors",
        alerts=("JaxmonGpuFault",),
    )
    yield states(706, "Accelerators up")(
        # The end of a name that does not fit is shown.
        Target(hosts.UP(*q.HOSTS).least(_ROWS), "{{instance}}"),
        text=f"Whether all accelerators of a host respond to their driver, of {_ROWS} "
        "hosts, those that did not first.",
        mappings=q.UP,
        alerts=("JaxmonAcceleratorLost",),
    )
    yield timeseries(707, "Throttled accelerators")(
        Target(hosts.THROTTLED(*q.GPUS).worst(q.FEW), f"{gpu} {{{{reason}}}}"),
        text="Fraction of time throttled by temperature, power supply or board, of the "
        "20 accelerators with the most. One slow accelerator slows its whole job.",
        no_value="None",
        alerts=("JaxmonGpuThrottled",),
    )
    yield timeseries(708, "Uncorrectable memory errors")(
        Target(hosts.UNCORRECTED(*q.GPUS).worst(q.FEW), gpu),
        text="Memory errors that ECC could not correct, within five minutes. Each "
        "terminates the program that reads the affected memory.",
        no_value="None",
        alerts=("JaxmonGpuFault",),
    )


@row(18, "Power and identity; empty without accelerators", lines=(2,), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return per-accelerator identity, load, power and cost."""
    load = _state(catalog.ACCELERATOR_UTILIZATION_RATIO).bottomk(_LISTED)
    yield table(1802, "Load by accelerator")(
        Target(load, "Utilization"),
        Target(_state(catalog.ACCELERATOR_MEMORY_USED_BYTES).topk(_LISTED), "Memory"),
        Target(_state(catalog.ACCELERATOR_POWER_WATTS).topk(_LISTED), "Power"),
        text=f"Current load of the {_LISTED} accelerators with the least, and of those "
        "with most memory in use and most power; - for others. An idle one among busy "
        "ones is waiting for its host.",
        width=12,
        sort="Utilization",
    )
    yield timeseries(1816, "Power by function")(
        recorded(FUNCTION_POWER, *q.FUNCTION, labels=("function",), unit="watts").sum(
            "function"
        ),
        text="Power of the GPUs of each process, apportioned to its functions by "
        "device time (mean of sampled calls times number of calls).",
        stacked="normal",
    )


_CURRENT, _SM = eq("kind", "current"), eq("clock", "sm")


@row(
    26,
    "NVIDIA GPUs; empty without any",
    lines=(3, 2, 1, 1, 2),
    collapsed=True,
    no_value="Not available",
)
def gpus() -> Iterator[Panel]:
    """Return error, link and activity panels."""
    gpu = "{{instance}} {{uuid}}"
    throttled = counter(catalog.GPU_THROTTLE_SECONDS, *q.GPUS).rate()
    lanes = _state(catalog.GPU_PCIE_LINK_WIDTH, _CURRENT).bottomk(_EACH)
    xids = hosts.XIDS(*q.GPUS).over_range("max").max(*_BY, "xid")
    mig = q.accelerator(catalog.GPU_MIG_MEMORY_USED_BYTES) / q.accelerator(
        catalog.GPU_MIG_MEMORY_SIZE_BYTES
    )
    yield timeseries(1808, "Throttling by reason")(
        throttled.max("reason"),
        text="Fraction of time throttled, by reason, of the GPU with most; reasons "
        "overlap. Power is normal under load, temperature is not.",
        alerts=("JaxmonGpuThrottled",),
    )
    yield timeseries(1809, "NVLink traffic")(
        *_traffic(catalog.GPU_NVLINK_TRANSMIT_BYTES, catalog.GPU_NVLINK_RECEIVE_BYTES),
        text="Traffic over all NVLinks of the accelerator with most. Far below what "
        "the same program had: its GPUs wait for one of them, or for the host.",
        no_value="No NVLink",
    )
    yield timeseries(1810, "PCIe traffic")(
        *_traffic(catalog.GPU_PCIE_TRANSMIT_BYTES, catalog.GPU_PCIE_RECEIVE_BYTES),
        text="Traffic between accelerator and host, of the one with most. High "
        "traffic during steps: arrays are being moved back and forth.",
    )
    yield table(1806, "Xid errors by GPU")(
        Target(xids.topk(50), "Errors"),
        text="Errors reported by NVIDIA's driver, the most within five minutes of the "
        "selected time range; see NVIDIA's Xid catalogue.",
        height=6,
        width=16,
        no_value="No Xid",
        sort="Errors",
        alerts=("JaxmonGpuFault",),
    )
    yield timeseries(1819, "Link errors")(
        Target(hosts.NVLINK_ERRORS(*q.GPUS).worst(q.FEW), f"{gpu} NVLink {{{{type}}}}"),
        Target(hosts.PCIE_ERRORS(*q.GPUS).worst(q.FEW), f"{gpu} PCIe {{{{type}}}}"),
        Target(hosts.PCIE_REPLAYS(*q.GPUS).worst(q.FEW), f"{gpu} PCIe replays"),
        text="NVLink and PCIe errors and recoveries, within five minutes. Recoveries "
        "cost time; a link with many is about to fail, or is loose.",
        no_value="None",
    )
    yield table(1811, "Memory health")(
        *_memory_errors(),
        text="GPUs with memory errors in the selected time range, or whose row "
        "remappings are pending a reset or have failed; at most 33 each.",
        height=6,
        no_value="None",
        sort="Uncorrected",
        alerts=("JaxmonGpuFault",),
    )
    yield table(1818, "GPU state")(
        Target(_state(catalog.GPU_RECOVERY_ACTION).topk(_EACH), "Recovery", q.above(1)),
        Target(_state(catalog.GPU_PERFORMANCE_STATE).topk(_EACH), "State"),
        Target(lanes, "PCIe lanes"),
        Target(_state(catalog.GPU_FABRIC_STATE).topk(_EACH), "Fabric"),
        text=f"{_EACH} GPUs each: those that request a recovery action (1 reset, 2 "
        "reboot, 3 and above drain first), in the slowest performance states (0 is "
        "fastest), with the fewest PCIe lanes, which should never change, and in the "
        "highest fabric states; - for others.",
        height=6,
        sort="Recovery",
        alerts=("JaxmonGpuFault",),
    )
    yield timeseries(1817, "SM clock")(
        Target(q.accelerator(catalog.ACCELERATOR_CLOCK_HERTZ, _SM).least(q.FEW), gpu),
        text="The 20 lowest. Lower than its peers under load: throttled, see "
        "Throttling by reason.",
    )
    yield timeseries(1820, "MIG memory in use")(
        Target(mig.max(), "highest"),
        text="Memory in use of the fullest MIG device.",
        no_value="No MIG devices",
    )


def _memory_errors() -> tuple[Target, ...]:
    severity, scope = eq("severity", "uncorrected"), eq("scope", "volatile")
    errors = counter(catalog.GPU_ECC_ERRORS, *q.GPUS, severity, scope)
    uncorrected = errors.increase("$__range").sum(*_BY)
    return (
        Target((uncorrected > 0).topk(_LISTED), "Uncorrected"),
        Target(
            (_state(catalog.GPU_ROW_REMAP_PENDING) > 0).topk(_LISTED), "Reset pending"
        ),
        Target(
            (_state(catalog.GPU_ROW_REMAP_FAILURE) > 0).topk(_LISTED), "Remap failed"
        ),
    )


def _state(metric: Metric, *matchers: Matcher) -> Expr:
    return q.accelerator(metric, *matchers).max(*_BY)


def _traffic(sent: Metric, received: Metric) -> Iterator[Target]:
    """Yield both directions of a link: by its counter, or the driver's rate."""
    for total, direction in ((sent, "sent"), (received, "received")):
        rate = catalog.BY_NAME[f"{total.name.removesuffix('_total')}_per_second"]
        told = q.accelerator(rate).of_unit("bytes per second")
        yield Target(counter(total, *q.GPUS).rate().or_(told).max(), direction)
