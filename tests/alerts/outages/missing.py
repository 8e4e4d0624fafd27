"""What the alerts miss: outages without a notice, notices without an outage."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """
    What is wrong with the answers to one outage.

    Args:
        cause: in the rules, the routes or the metrics.
        outage: the faults of the broken world.
        twin: the faults of its twin.
    """

    cause: str
    outage: tuple[str, ...] = ()
    twin: tuple[str, ...] = ()


_HANG = (
    "RequestsHang judges a route as a whole, so an answer of a sibling "
    "silences it, and callers who wait and leave are client_error, which is "
    "outside of every budget."
)
_WINDOWS = (
    "Each window of a budget is an alert of its own in one group, which "
    "notifies again whenever another window joins."
)
_BUCKET = (
    "`good or events * 0` takes a missing bucket for no good event; no rule "
    "looks for the bucket."
)
_FRESHNESS = (
    "The budget of fresh steps pages before TrainingStalled does, which "
    "inhibits it only from then on."
)
_DIED = (
    "`for: 3m` outlasts jaxmon_agent_died, which ends with its pod; no rule "
    "notices that a loop's series end without a finish."
)
_MEMORY = (
    "HostMemoryGrowth wants 10 % an hour of the resident size, and does not "
    "know the container's limit."
)

MISSING: dict[str, Missing] = {
    "one-hangs": Missing(
        _HANG,
        outage=(
            "no page",
            "no ticket",
        ),
    ),
    "one-hangs-callers-stay": Missing(
        _HANG,
        outage=(
            "no page",
            "no ticket",
        ),
    ),
    "one-hangs-cut-at-300": Missing(
        _HANG,
        outage=(
            "no page",
            "no ticket",
        ),
    ),
    "most-leave": Missing(
        "Callers who wait and leave are client_error, which is outside of every "
        "budget.",
        outage=("no page",),
    ),
    "one-slow": Missing(
        "No rule compares the latency of a replica with that of its siblings.",
        outage=("no ticket",),
    ),
    "always-slow": Missing(
        "The default threshold of 0.2 s pages, though no site has chosen it.",
        outage=(
            "no ticket",
            "3 pages, not 0",
        ),
    ),
    "bucket-dropped": Missing(
        _BUCKET,
        outage=(
            "no ticket",
            "3 pages, not 0",
        ),
    ),
    "few-buckets": Missing(
        _BUCKET,
        outage=(
            "no ticket",
            "3 pages, not 0",
        ),
    ),
    "foreign-slow": Missing(
        'The bound of a second is selected as le="1.0" alone, and a bucket that '
        "is missing reads as slow.",
        outage=(
            "page before it begins",
            "3 pages, not 1",
        ),
        twin=("twin: page JaxmonForeignLatencyBudgetBurn",),
    ),
    "quiet-slow": Missing(
        f"Without minimums a single event is a ratio of 100 %. {_WINDOWS}",
        outage=("4 pages, not 1",),
        twin=(
            "twin: page JaxmonQuietLatencyBudgetBurn",
            "twin: ticket JaxmonQuietLatencyBudgetBurn",
        ),
    ),
    "all-fail": Missing(
        _WINDOWS,
        outage=("4 pages, not 1",),
    ),
    "all-fail-in-the-evening": Missing(
        _WINDOWS,
        outage=("4 pages, not 1",),
    ),
    "traffic-stops": Missing(
        "ServiceVanished asks whether processes report, not whether requests come.",
        outage=("no page",),
    ),
    "crash-loop": Missing(
        "CrashLoop is silent if the process answered a request within 15 minutes.",
        outage=("no ticket",),
    ),
    "one-of-200": Missing(
        "CrashLoop pages for a process, whatever it costs.",
        outage=(
            "no ticket",
            "1 pages, not 0",
        ),
    ),
    "killed-in-turn": Missing(
        "CrashLoop wants three crashes of one process within 15 minutes; no "
        "rule adds up those of a job.",
        outage=("no ticket",),
    ),
    "bad-deployment": Missing(
        _WINDOWS,
        outage=("4 pages, not 1",),
    ),
    "blue-green": Missing(
        "ServiceVanished is a ticket once discovery forgets the pods, and does "
        "not know that another job serves the route.",
        outage=(
            "no page",
            "also: ticket JaxmonServiceVanished",
        ),
        twin=("twin: ticket JaxmonServiceVanished",),
    ),
    "all-evicted": Missing(
        "ServiceVanished is a ticket once discovery forgets the pods, and does "
        "not know that requests had stopped before.",
        outage=(
            "no page",
            "also: ticket JaxmonServiceVanished",
        ),
        twin=("twin: ticket JaxmonServiceVanished",),
    ),
    "partition": Missing(
        "ServiceVanished does not inhibit TargetDown of the same job, which "
        "adds nothing.",
        outage=("also: ticket JaxmonTargetDown",),
    ),
    "all-stuck": Missing(
        _FRESHNESS,
        outage=("2 pages, not 1",),
    ),
    "run-evicted": Missing(
        _DIED,
        outage=("no page",),
    ),
    "pod-dies": Missing(
        _DIED,
        outage=("no page",),
    ),
    "killed-on-host": Missing(
        "TrainingDied, TrainingStalled and the budget of fresh steps page for "
        "one death; none inhibits the others.",
        outage=("3 pages, not 1",),
    ),
    "expected-run-evicted": Missing(
        "`count < processes` does not know that a run has finished.",
        twin=("twin: page JaxmonTrainingDied",),
    ),
    "hourly-job-dies": Missing(
        "`count < processes` does not know that a run has finished, nor that it "
        "comes once an hour.",
        outage=(
            "page before it begins",
            "3 pages, not 1",
        ),
        twin=("twin: page JaxmonTrainingDied",),
    ),
    "host-lost": Missing(
        _FRESHNESS,
        outage=("2 pages, not 1",),
    ),
    "gpu-lost": Missing(
        "AcceleratorLost, TrainingDied, TrainingStalled and the budget of fresh "
        "steps page for one GPU; none inhibits the others.",
        outage=("4 pages, not 1",),
    ),
    "out-of-memory": Missing(
        f"The cause and the budget page both; neither inhibits the other. {_WINDOWS}",
        outage=("4 pages, not 1",),
    ),
    "gpu-of-one-replica": Missing(
        "A lost GPU pages although it costs one replica of ten, and does not "
        "inhibit the budget's pages."
        f"{_WINDOWS}",
        outage=(
            "no ticket",
            "4 pages, not 1",
        ),
    ),
    "memory-grows": Missing(
        _MEMORY,
        outage=("no ticket",),
    ),
    "ecc-errors": Missing(
        "The tickets are on increases over 10 minutes, and end while the GPU "
        "still needs its reset.",
        outage=("ticket is resolved",),
    ),
    "sidecar-lost": Missing(
        "TargetDown waits 5 minutes in a group that is evaluated every 4, so 8 to 12.",
        outage=("ticket after 12 min, not 8",),
    ),
    "watchdog": Missing(
        "No rule fires always.",
        outage=("no watchdog",),
    ),
    "dead-backend": Missing(
        _HANG,
        outage=(
            "no page",
            "no ticket",
        ),
    ),
    "stuck-one-by-one": Missing(
        _HANG,
        outage=(
            "no page",
            "no ticket",
        ),
    ),
    "half-alive": Missing(
        _HANG,
        outage=(
            "no page",
            "no ticket",
        ),
    ),
    "leaks": Missing(
        _MEMORY,
        outage=("no ticket",),
    ),
    "one-rank-stuck": Missing(
        _FRESHNESS,
        outage=("2 pages, not 1",),
    ),
    "preempted": Missing(
        _FRESHNESS,
        outage=("3 pages, not 1",),
    ),
    "hbm-errors": Missing(
        "The tickets are on increases over 10 minutes; TrainingDied resolves "
        "when a process takes the slot, and pages again at its next death.",
        outage=(
            "ticket is resolved",
            "2 pages, not 1",
        ),
    ),
    "hangs-after-crash": Missing(
        _FRESHNESS,
        outage=("2 pages, not 1",),
    ),
}
