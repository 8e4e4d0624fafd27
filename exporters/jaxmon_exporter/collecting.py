"""The collector interface and its failure types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from jaxmon.catalog import COLLECTOR_ERRORS
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Family, by_label


# Reasons for having nothing to read that other modules refer to.
NO_RUN_DIR = "no_run_dir"
NO_JOB = "no_job"

Clock = Callable[[], float]


class CollectorUnavailable(JaxmonError):  # noqa: N818 - a state, not a mistake
    """
    Raised when a collector has nothing to read, such as on a host without GPUs.

    Args:
        reason: one short word; a value of the label ``reason``.
        message: what was found and what to do, for the log and the landing page.
        families: metric families that are still valid, such as ``up 0``. Values of
            earlier polls are dropped.
        costly: retrying is expensive, so back off.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        families: Sequence[Family] = (),
        *,
        costly: bool = True,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.families = list(families)
        self.costly = costly


class Collector(Protocol):
    """
    A source of metrics. All methods run on the collector's own thread.

    Attributes:
        name: value of the label ``collector``.
        interval: seconds from the start of one poll to the start of the next.
        deadline: seconds after which an unfinished poll counts as failed.
    """

    name: str
    interval: float
    deadline: float

    def collect(self) -> Iterable[Family]:
        """
        Read the source once.

        Raises:
            CollectorUnavailable: there is nothing to read.
        """

    def close(self) -> None:
        """Release all resources. Called once, after the last poll."""


def partial_failures(collector: str, counts: Mapping[str, int]) -> Family:
    """
    Return failures that cost a collector some metrics but not the poll.

    Reasons must differ from those of `CollectorUnavailable` and from ``timeout``
    and ``error``, which the poller counts.
    """
    found = {(collector, reason): count for reason, count in counts.items()}
    return by_label(COLLECTOR_ERRORS, found)
