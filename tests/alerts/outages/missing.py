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


MISSING: dict[str, Missing] = {}
