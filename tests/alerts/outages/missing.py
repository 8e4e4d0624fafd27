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


MISSING: dict[str, Missing] = {
    "foreign-slow": Missing(
        "Half of the requests are slow, ten times the budget: that is no 14.4, and "
        "three times the pace must hold for ten minutes.",
        outage=("page after 14 min, not 10",),
    ),
    "preempted": Missing(
        "When the stuck processes end, their page is resolved, and the ticket on the "
        "budget of the day is no longer inhibited.",
        outage=("also: ticket JaxmonStepFreshnessBudgetBurn",),
    ),
}
