"""Accelerators of any vendor: at a glance, by service, and the worst of them."""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.promql import Expr, call, gauge
from jaxmon_alerts.overviews import accelerators
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import hardware
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Link,
    PanelLine,
    Row,
    Target,
    line,
    row,
    stat,
    table,
    timeseries,
)


_ZERO = call("vector", promql.number(0))
_NAMED, _BY = "{{instance}} {{uuid}}", ("job", "instance", "uuid")
_NONE = "No accelerators"
_ONLY = Link(
    "Show only this service",
    "/d/jaxmon-accelerators?var-job=${__value.text}"
    "&${datasource:queryparam}&${__url_time_range}",
)


def glance(slos: Slos) -> Row:
    """Return the state of all accelerators, and one line for each service."""
    return row(37, "Accelerators at a glance", _headline(slos), _services())


def _headline(slos: Slos) -> PanelLine:
    up = hardware.accelerator(catalog.ACCELERATOR_UP)
    busy = hardware.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO)
    used = hardware.accelerator(catalog.ACCELERATOR_MEMORY_USED_BYTES)
    size = hardware.accelerator(catalog.ACCELERATOR_MEMORY_SIZE_BYTES)
    idle = (busy < slos.limits.accelerator_idle).count().or_(_ZERO)
    return line(
        stat(
            3701,
            Target(up.count(), "Visible"),
            text="Accelerators that the selected services use or their sidecars read.",
            no_value=_NONE,
        ),
        stat(
            3702,
            Target(up.equals(0).count().or_(_ZERO), "Lost", q.above(1)),
            text=(
                "Accelerators that do not respond to their driver. Work on them fails "
                "or hangs; see Accelerators up for which."
            ),
        ),
        stat(
            3703,
            Target(busy.avg(), "Mean load"),
            text=(
                "Fraction of time that a kernel was running, over all accelerators. "
                "Low: paid for, and idle."
            ),
            no_value=_NONE,
        ),
        stat(
            3704,
            Target(idle.and_(up.count()), "Idle now"),
            text=(
                "Accelerators that are hardly used at the moment. Sort Load by "
                "accelerator for which."
            ),
            no_value=_NONE,
        ),
        stat(
            3705,
            Target(promql.ratio(used.sum(), size.sum()), "Memory in use"),
            text="Memory in use of all accelerators, JAX's preallocation included.",
            no_value=_NONE,
        ),
        stat(
            3706,
            Target(
                hardware.accelerator(catalog.ACCELERATOR_POWER_WATTS).sum(),
                "Power drawn",
            ),
            text="Power of all accelerators that report it; TPUs do not.",
            no_value="Not available",
        ),
        stat(
            3707,
            Target(
                hardware.accelerator(catalog.ACCELERATOR_TEMPERATURE_CELSIUS).max(),
                "Hottest sensor",
            ),
            text=(
                "Hottest sensor of any accelerator; see Temperature margin for how far "
                "each is from throttling."
            ),
            no_value="Not available",
        ),
        stat(
            3708,
            Target(
                hardware.accelerator(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR)
                .sum()
                .of_unit("dollars"),
                "Price per hour",
            ),
            text="Price of all accelerators, from the sidecars' price tables.",
            no_value="No prices",
        ),
        height=4,
    )


def _services() -> PanelLine:
    busy = hardware.of_job(catalog.ACCELERATOR_UTILIZATION_RATIO)
    used = hardware.of_job(catalog.ACCELERATOR_MEMORY_USED_BYTES)
    size = hardware.of_job(catalog.ACCELERATOR_MEMORY_SIZE_BYTES)
    price = hardware.of_job(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR)
    tensor = hardware.of_job(catalog.GPU_TENSOR_ACTIVE_RATIO)
    present = hardware.of_job(catalog.ACCELERATOR_UP)
    model = hardware.accelerator(catalog.ACCELERATOR_INFO)
    return line(
        table(
            3709,
            "Accelerators by service",
            Target(present.count("job"), "Used"),
            Target(busy.avg("job"), "Utilization"),
            Target(busy.min("job"), "Lowest"),
            Target(promql.ratio(used.sum("job"), size.sum("job")), "Memory"),
            Target(tensor.avg("job"), "Tensor"),
            Target(
                hardware.of_job(catalog.ACCELERATOR_POWER_WATTS).sum("job"), "Power"
            ),
            Target(price.sum("job").of_unit("dollars"), "Per hour"),
            text=(
                "What each service uses; one that is shared counts for each. Tensor: "
                "the fraction of time its tensor cores were busy. The name selects the "
                "service."
            ),
            labels=("job",),
            cell_links=(("job", _ONLY),),
            width=16,
            no_value=_NONE,
            sort="Used",
        ),
        table(
            3710,
            "Models and drivers",
            Target(model.count("vendor", "model", "driver"), "Number"),
            text=(
                "Different drivers of one model may run different kernels: upgrade "
                "them together."
            ),
            labels=("vendor", "model", "driver"),
            no_value=_NONE,
            sort="Number",
        ),
        height=7,
    )


def worst() -> Row:
    """Return utilisation by service, and the accelerators that stand out."""
    busy = hardware.accelerator(catalog.ACCELERATOR_UTILIZATION_RATIO).max(*_BY)
    margin = hardware.accelerator(catalog.ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS)
    bandwidth = _bandwidth()
    return row(
        38,
        "By service, and the worst",
        line(
            timeseries(
                3801,
                "Utilization by service",
                Target(
                    accelerators.UTILIZATION_OF_JOBS(q.JOB).least(10),
                    "{{job}}",
                ),
                text=(
                    "Mean utilization of the accelerators of the services that use "
                    "theirs least. Low in training: the input or the host is too slow."
                ),
                maximum=1,
                alerts=("JaxmonAcceleratorUnderused", "JaxmonAcceleratorIdle"),
                no_value=_NONE,
            ),
            timeseries(
                3802,
                "Power by service",
                Target(
                    accelerators.POWER_OF_JOBS(q.JOB).worst(10),
                    "{{job}}",
                ),
                text=(
                    "Power of the GPUs of each service. A drop with the same load: "
                    "throttled, or fewer of them."
                ),
                no_value="Not available",
            ),
        ),
        line(
            timeseries(
                3803,
                "Least utilized accelerators",
                Target(busy.least(10), _NAMED),
                text=(
                    "One idle accelerator among busy ones waits for its host, or "
                    "belongs to a process that hangs."
                ),
                maximum=1,
                no_value=_NONE,
            ),
            timeseries(
                3804,
                "Temperature margin",
                Target(margin.max(*_BY).least(10), _NAMED),
                text=(
                    "How far the hottest accelerators are from throttling. Near 0: "
                    "airflow, or a neighbour; the service loses speed."
                ),
                thresholds=q.below(5),
                alerts=("JaxmonGpuThrottled",),
                no_value="Not available",
            ),
            timeseries(
                3805,
                "Memory bandwidth of accelerators",
                Target(bandwidth.max(*_BY).worst(10), _NAMED),
                text=(
                    "Fraction of the memory bandwidth in use, GPUs and TPUs alike. "
                    "Near 80 % the program is memory-bound."
                ),
                maximum=1,
                no_value="Not available",
            ),
        ),
    )


def _bandwidth() -> Expr:
    gpus = hardware.gpu(catalog.GPU_DRAM_ACTIVE_RATIO)
    return gpus.or_(gauge(catalog.ACCELERATOR_MEMORY_BANDWIDTH_RATIO, *q.HOST))
