"""TPUs as the runtimes of the programs on them tell of them."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, gauge, histogram


def debug() -> Row:
    """Return load, times, and where each core stands."""
    named = "{{instance}} {{uuid}}"
    by_core = ("job", "instance", "uuid", "core")
    executions = histogram(catalog.TPU_HLO_EXECUTION_SECONDS, *q.HOST)
    transfers = histogram(catalog.TPU_TRANSFER_SECONDS, *q.HOST)
    return Row(
        25,
        "TPUs",
        (
            Panel(
                id=2501,
                title="TPU duty cycle",
                kind="timeseries",
                text="Share of time in which each chip worked. One below its peers: "
                "they wait for it, or it waits for its host.",
                targets=(Target(gauge(catalog.TPU_DUTY_CYCLE_RATIO, *q.HOST), named),),
                width=8,
                maximum=1,
                no_value="No TPU",
            ),
            Panel(
                id=2502,
                title="TPU programs in the queue",
                kind="timeseries",
                text="Programs dispatched and not done, by core. Always 0: the host "
                "is too slow. Growing: the chip is.",
                targets=(
                    Target(
                        gauge(catalog.TPU_HLO_QUEUE_SIZE, *q.HOST),
                        f"{named} {{{{core}}}}",
                    ),
                ),
                width=8,
                no_value="No TPU",
            ),
            Panel(
                id=2503,
                title="TPU runtimes that answer",
                kind="state-timeline",
                text="Whether the runtime of each process answers; none does while "
                "no program uses the chips.",
                targets=(
                    Target(
                        gauge(catalog.TPU_RUNTIME_UP, *q.HOST),
                        "{{instance}} {{runtime}}",
                    ),
                ),
                width=8,
                mappings=q.UP,
                no_value="No TPU",
                alerts=("JaxmonTpuRuntimeDown",),
            ),
            Panel(
                id=2504,
                title="TPU execution time",
                kind="timeseries",
                text="Time that programs took on the slowest cores, as the runtime "
                "measures it.",
                targets=(
                    Target(
                        q.known(executions.quantile(0.95, *by_core)).topk(10),
                        f"{named} {{{{core}}}} 95 %",
                    ),
                ),
                width=12,
                no_value="No TPU",
            ),
            Panel(
                id=2505,
                title="Transfers between TPU slices",
                kind="timeseries",
                text="Time of transfers over the network of the data center, and to "
                "and from the host for them.",
                targets=(
                    Target(
                        q.known(transfers.quantile(0.95, "direction")),
                        "{{direction}} 95 %",
                    ),
                ),
                width=12,
                no_value="One slice",
            ),
            Panel(
                id=2506,
                title="Where each TPU core stands",
                kind="table",
                text="Run, instruction and waiting programs of each core. Standing "
                "still while programs wait: a hang; the sidecar's log says where.",
                targets=(
                    Target(
                        gauge(catalog.TPU_CORE_PROGRAM_ID, *q.HOST).max(*by_core),
                        "Program",
                    ),
                    Target(
                        gauge(catalog.TPU_CORE_RUN_ID, *q.HOST).max(*by_core), "Run"
                    ),
                    Target(
                        gauge(catalog.TPU_CORE_PROGRAM_POSITION, *q.HOST).max(*by_core),
                        "Instruction",
                    ),
                    Target(
                        gauge(catalog.TPU_CORE_QUEUED_PROGRAMS, *q.HOST).max(*by_core),
                        "Waiting",
                    ),
                    Target(
                        gauge(catalog.TPU_CORE_IDLE_SECONDS, *q.HOST).max(*by_core),
                        "Idle",
                    ),
                    Target(
                        gauge(catalog.TPU_CORE_ERROR, *q.HOST).max(*by_core),
                        "Error",
                        q.above(1),
                    ),
                ),
                width=24,
                labels=by_core,
                no_value="No TPU",
                sort="Waiting",
            ),
            Panel(
                id=2507,
                title="TPU memory bandwidth in use",
                kind="timeseries",
                text="Share of the bandwidth of each chip's memory. Near 80 % the "
                "program is bound by it.",
                targets=(
                    Target(
                        gauge(catalog.ACCELERATOR_MEMORY_BANDWIDTH_RATIO, *q.HOST),
                        named,
                    ),
                ),
                width=8,
                maximum=1,
                no_value="No TPU",
            ),
            Panel(
                id=2508,
                title="Collectives between TPU slices",
                kind="timeseries",
                text="Time of collective operations from end to end. One host above "
                "the others holds all of them up.",
                targets=(
                    Target(
                        q.known(
                            histogram(catalog.TPU_COLLECTIVE_SECONDS, *q.HOST).quantile(
                                0.95, "job", "instance"
                            )
                        ),
                        "{{instance}} 95 %",
                    ),
                ),
                width=8,
                no_value="One slice",
            ),
            Panel(
                id=2509,
                title="Traffic between TPU slices",
                kind="timeseries",
                text="Sent over the data center's network, and of that sent again: "
                "a lossy network.",
                targets=(
                    Target(
                        counter(catalog.TPU_DCN_TRANSMIT_BYTES, *q.HOST)
                        .rate()
                        .sum("job", "instance"),
                        "{{instance}} sent",
                    ),
                    Target(
                        counter(catalog.TPU_DCN_RETRANSMIT_BYTES, *q.HOST)
                        .rate()
                        .sum("job", "instance"),
                        "{{instance}} sent again",
                    ),
                ),
                width=8,
                no_value="One slice",
            ),
            Panel(
                id=2510,
                title="Faults of TPU links",
                kind="timeseries",
                text="Worst link of a chip: 0 sound, up to 5 passing, to 9 lasting "
                "faults, 10 unusable.",
                targets=(
                    Target(
                        gauge(catalog.TPU_ICI_LINK_HEALTH, *q.HOST),
                        "{{instance}} {{runtime}}",
                    ),
                ),
                width=8,
                maximum=10,
                thresholds=q.above(1, 6),
                no_value="Not told by this libtpu",
            ),
            Panel(
                id=2511,
                title="TPU throttling",
                kind="timeseries",
                text="Of the chip that is throttled most: 0 not at all, 10 all of the "
                "time.",
                targets=(
                    Target(
                        gauge(catalog.TPU_THROTTLE_SCORE, *q.HOST),
                        "{{instance}} {{runtime}}",
                    ),
                ),
                width=8,
                maximum=10,
                thresholds=q.above(1, 5),
                no_value="Not told by this libtpu",
            ),
            Panel(
                id=2512,
                title="Errors between TPU slices",
                kind="timeseries",
                text="Errors of the communication between slices, per minute.",
                targets=(
                    Target(
                        q.per_minute(
                            counter(catalog.TPU_MEGASCALE_ERRORS, *q.HOST)
                            .rate()
                            .sum("job", "instance")
                        ),
                        "{{instance}}",
                    ),
                ),
                width=8,
                no_value="One slice",
            ),
        ),
        collapsed=True,
    )
