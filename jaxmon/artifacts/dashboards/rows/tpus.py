"""TPUs as the runtimes of the programs on them tell of them."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, states, table, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.promql import counter, gauge, histogram


def debug() -> Row:
    """Return load, times, and where each core stands."""
    named = "{{instance}} {{uuid}}"
    by_core = ("job", "instance", "uuid", "core")
    executions = histogram(catalog.TPU_HLO_EXECUTION_SECONDS, *q.HOST)
    transfers = histogram(catalog.TPU_TRANSFER_SECONDS, *q.HOST)
    return row(
        25,
        "TPUs",
        line(
            timeseries(
                2501,
                "TPU duty cycle",
                Target(gauge(catalog.TPU_DUTY_CYCLE_RATIO, *q.HOST), named),
                text="Share of time in which each chip worked. One below its peers: "
                "they wait for it, or it waits for its host.",
                maximum=1,
                no_value="No TPU",
            ),
            timeseries(
                2502,
                "TPU programs in the queue",
                Target(
                    gauge(catalog.TPU_HLO_QUEUE_SIZE, *q.HOST), f"{named} {{{{core}}}}"
                ),
                text="Programs dispatched and not done, by core. Always 0: the host "
                "is too slow. Growing: the chip is.",
                no_value="No TPU",
            ),
            states(
                2503,
                "TPU runtimes that answer",
                Target(
                    gauge(catalog.TPU_RUNTIME_UP, *q.HOST), "{{instance}} {{runtime}}"
                ),
                text="Whether the runtime of each process answers; none does while "
                "no program uses the chips.",
                mappings=q.UP,
                no_value="No TPU",
                alerts=("JaxmonTpuRuntimeDown",),
            ),
        ),
        line(
            timeseries(
                2504,
                "TPU execution time",
                Target(
                    q.known(executions.quantile(0.95, *by_core)).topk(10),
                    f"{named} {{{{core}}}} 95 %",
                ),
                text="Time that programs took on the slowest cores, as the runtime "
                "measures it.",
                no_value="No TPU",
            ),
            timeseries(
                2505,
                "Transfers between TPU slices",
                Target(
                    q.known(transfers.quantile(0.95, "direction")), "{{direction}} 95 %"
                ),
                text="Time of transfers over the network of the data center, and to "
                "and from the host for them.",
                no_value="One slice",
            ),
        ),
        line(
            table(
                2506,
                "Where each TPU core stands",
                Target(
                    gauge(catalog.TPU_CORE_PROGRAM_ID, *q.HOST).max(*by_core), "Program"
                ),
                Target(gauge(catalog.TPU_CORE_RUN_ID, *q.HOST).max(*by_core), "Run"),
                Target(
                    gauge(catalog.TPU_CORE_PROGRAM_POSITION, *q.HOST).max(*by_core),
                    "Instruction",
                ),
                Target(
                    gauge(catalog.TPU_CORE_QUEUED_PROGRAMS, *q.HOST).max(*by_core),
                    "Waiting",
                ),
                Target(
                    gauge(catalog.TPU_CORE_IDLE_SECONDS, *q.HOST).max(*by_core), "Idle"
                ),
                Target(
                    gauge(catalog.TPU_CORE_ERROR, *q.HOST).max(*by_core),
                    "Error",
                    q.above(1),
                ),
                text="Run, instruction and waiting programs of each core. Standing "
                "still while programs wait: a hang; the sidecar's log says where.",
                labels=by_core,
                no_value="No TPU",
                sort="Waiting",
            )
        ),
        line(
            timeseries(
                2507,
                "TPU memory bandwidth in use",
                Target(
                    gauge(catalog.ACCELERATOR_MEMORY_BANDWIDTH_RATIO, *q.HOST), named
                ),
                text="Share of the bandwidth of each chip's memory. Near 80 % the "
                "program is bound by it.",
                maximum=1,
                no_value="No TPU",
            ),
            timeseries(
                2508,
                "Collectives between TPU slices",
                Target(
                    q.known(
                        histogram(catalog.TPU_COLLECTIVE_SECONDS, *q.HOST).quantile(
                            0.95, "job", "instance"
                        )
                    ),
                    "{{instance}} 95 %",
                ),
                text="Time of collective operations from end to end. One host above "
                "the others holds all of them up.",
                no_value="One slice",
            ),
            timeseries(
                2509,
                "Traffic between TPU slices",
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
                text="Sent over the data center's network, and of that sent again: "
                "a lossy network.",
                no_value="One slice",
            ),
        ),
        line(
            timeseries(
                2510,
                "Faults of TPU links",
                Target(
                    gauge(catalog.TPU_ICI_LINK_HEALTH, *q.HOST),
                    "{{instance}} {{runtime}}",
                ),
                text="Worst link of a chip: 0 sound, up to 5 passing, to 9 lasting "
                "faults, 10 unusable.",
                maximum=10,
                thresholds=q.above(1, 6),
                no_value="Not told by this libtpu",
            ),
            timeseries(
                2511,
                "TPU throttling",
                Target(
                    gauge(catalog.TPU_THROTTLE_SCORE, *q.HOST),
                    "{{instance}} {{runtime}}",
                ),
                text="Of the chip that is throttled most: 0 not at all, 10 all of the "
                "time.",
                maximum=10,
                thresholds=q.above(1, 5),
                no_value="Not told by this libtpu",
            ),
            timeseries(
                2512,
                "Errors between TPU slices",
                Target(
                    q.per_minute(
                        counter(catalog.TPU_MEGASCALE_ERRORS, *q.HOST)
                        .rate()
                        .sum("job", "instance")
                    ),
                    "{{instance}}",
                ),
                text="Errors of the communication between slices, per minute.",
                no_value="One slice",
            ),
        ),
        collapsed=True,
    )
