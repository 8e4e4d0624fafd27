"""TPU panels, from the TPU runtimes."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.promql import counter, gauge, histogram
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Row,
    Target,
    Thresholds,
    line,
    row,
    states,
    table,
    timeseries,
)


def debug() -> Row:
    """Return load, times, and the position of each core."""
    named = "{{instance}} {{uuid}}"
    by_core = ("job", "instance", "uuid", "core")
    duty = gauge(catalog.TPU_DUTY_CYCLE_RATIO, *q.HOST)
    bandwidth = gauge(catalog.ACCELERATOR_MEMORY_BANDWIDTH_RATIO, *q.HOST)
    executions = histogram(catalog.TPU_HLO_EXECUTION_SECONDS, *q.HOST)
    transfers = histogram(catalog.TPU_TRANSFER_SECONDS, *q.HOST)
    waiting = gauge(catalog.TPU_CORE_QUEUED_PROGRAMS, *q.HOST).max(*by_core).topk(50)

    def core(
        metric: Metric, title: str, thresholds: Thresholds | None = None
    ) -> Target:
        """Return a column of the cores with most programs queued."""
        own = gauge(metric, *q.HOST).max(*by_core)
        return Target(own.and_(waiting), title, thresholds)

    return row(
        25,
        "TPUs",
        line(
            timeseries(
                2501,
                "TPU duty cycle",
                Target(duty.least(q.FEW), named),
                text=(
                    "Fraction of time each chip was busy. One below its peers: they "
                    "are waiting for it, or it is waiting for its host."
                ),
                maximum=1,
                no_value="No TPUs",
            ),
            timeseries(
                2502,
                "TPU queued programs",
                Target(
                    gauge(catalog.TPU_HLO_QUEUE_SIZE, *q.HOST).worst(q.FEW),
                    f"{named} {{{{core}}}}",
                ),
                text=(
                    "Programs dispatched but not finished, by core. Always 0: the "
                    "host is the bottleneck. Growing: the chip is."
                ),
                no_value="No TPUs",
            ),
            states(
                2503,
                "TPU runtimes up",
                Target(
                    gauge(catalog.TPU_RUNTIME_UP, *q.HOST).least(q.FEW),
                    "{{instance}} {{runtime}}",
                ),
                text=(
                    "Whether each process's runtime responds; none does while no "
                    "program uses the chips."
                ),
                mappings=q.UP,
                no_value="No TPUs",
                alerts=("JaxmonTpuRuntimeDown",),
            ),
        ),
        line(
            timeseries(
                2504,
                "TPU execution time",
                Target(
                    q.known(executions.quantile(0.95, *by_core)).worst(10),
                    f"{named} {{{{core}}}} 95 %",
                ),
                text="Execution time on the slowest cores, as measured by the runtime.",
                no_value="No TPUs",
            ),
            timeseries(
                2505,
                "Transfers between TPU slices",
                Target(
                    q.known(transfers.quantile(0.95, "direction")), "{{direction}} 95 %"
                ),
                text=(
                    "Time of inter-slice (DCN) transfers, including their host "
                    "transfers."
                ),
                no_value="Single slice",
            ),
        ),
        line(
            table(
                2506,
                "TPU core position",
                core(catalog.TPU_CORE_PROGRAM_ID, "Program"),
                core(catalog.TPU_CORE_RUN_ID, "Run"),
                core(catalog.TPU_CORE_PROGRAM_POSITION, "Instruction"),
                core(catalog.TPU_CORE_QUEUED_PROGRAMS, "Waiting"),
                core(catalog.TPU_CORE_IDLE_SECONDS, "Idle"),
                core(catalog.TPU_CORE_ERROR, "Error", q.above(1)),
                text=(
                    "Run, program counter and queued programs of the 50 cores with "
                    "most queued. No progress with programs queued means a hang; see "
                    "the sidecar's log."
                ),
                labels=by_core,
                no_value="No TPUs",
                sort="Waiting",
            )
        ),
        line(
            timeseries(
                2507,
                "TPU memory bandwidth in use",
                Target(bandwidth.worst(q.FEW), named),
                text=(
                    "Fraction of each chip's peak memory bandwidth. Near 80 % the "
                    "program is memory-bound."
                ),
                maximum=1,
                no_value="No TPUs",
            ),
            timeseries(
                2508,
                "Collectives between TPU slices",
                Target(
                    q.known(
                        histogram(catalog.TPU_COLLECTIVE_SECONDS, *q.HOST).quantile(
                            0.95, "job", "instance"
                        )
                    ).worst(q.FEW),
                    "{{instance}} 95 %",
                ),
                text=(
                    "End-to-end collective time. One host above the others delays all "
                    "of them."
                ),
                no_value="Single slice",
            ),
            timeseries(
                2509,
                "Traffic between TPU slices",
                Target(
                    counter(catalog.TPU_DCN_TRANSMIT_BYTES, *q.HOST)
                    .rate()
                    .sum("job", "instance")
                    .worst(q.FEW),
                    "{{instance}} sent",
                ),
                Target(
                    counter(catalog.TPU_DCN_RETRANSMIT_BYTES, *q.HOST)
                    .rate()
                    .sum("job", "instance")
                    .worst(q.FEW),
                    "{{instance}} retransmitted",
                ),
                text=(
                    "Bytes sent over the DCN, and retransmitted. Retransmits mean a "
                    "lossy network."
                ),
                no_value="Single slice",
            ),
        ),
        line(
            timeseries(
                2510,
                "TPU link health",
                Target(
                    gauge(catalog.TPU_ICI_LINK_HEALTH, *q.HOST).worst(q.FEW),
                    "{{instance}} {{runtime}}",
                ),
                text="Worst link of a chip: 0 healthy, 1-5 transient faults, 6-9 "
                "persistent faults, 10 unusable.",
                maximum=10,
                thresholds=q.above(1, 6),
                no_value="Not reported by this libtpu",
            ),
            timeseries(
                2511,
                "TPU throttling",
                Target(
                    gauge(catalog.TPU_THROTTLE_SCORE, *q.HOST).worst(q.FEW),
                    "{{instance}} {{runtime}}",
                ),
                text="Worst throttling of any chip: 0 none, 10 constant.",
                maximum=10,
                thresholds=q.above(1, 5),
                no_value="Not reported by this libtpu",
            ),
            timeseries(
                2512,
                "Errors between TPU slices",
                Target(
                    q.per_minute(
                        counter(catalog.TPU_MEGASCALE_ERRORS, *q.HOST)
                        .rate()
                        .sum("job", "instance")
                    ).worst(q.FEW),
                    "{{instance}}",
                ),
                text="Inter-slice communication errors per minute.",
                no_value="Single slice",
            ),
        ),
        collapsed=True,
    )
