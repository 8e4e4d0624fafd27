"""When alerts fired, from samples of what fires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jaxmon.monitoring.prometheus import PrometheusSeries


# A missing sample or two, as when Prometheus restarts, does not end an alert.
_GAP_STEPS = 3


@dataclass(frozen=True, slots=True)
class Fired:
    """
    An alert of one service that fired.

    Args:
        name: of the alert.
        severity: ``page`` or ``ticket``, or the site's names for these.
        service: ``job=web cluster=eu``.
        seconds: for how long in all, to a step.
        times: start and end of each time that it fired, in Unix time.
    """

    name: str
    severity: str
    service: str
    seconds: float
    times: tuple[tuple[float, float], ...]

    @property
    def count(self) -> int:
        """How often it fired; at least once, if more briefly than a step."""
        return max(1, len(self.times))

    @property
    def is_of_budget(self) -> bool:
        """Return whether it is an objective's alert, not one about a cause."""
        return self.name.endswith("BudgetBurn")


def fired(
    sampled: Iterable[PrometheusSeries],
    at_all: Iterable[PrometheusSeries],
    *,
    step: float,
) -> list[Fired]:
    """
    Return the alerts, longest first.

    Args:
        sampled: what fired at each step.
        at_all: what fired within the window, perhaps between two steps.
        step: seconds between two samples.
    """
    times = {_key(one): tuple(_intervals(one, step)) for one in sampled}
    keys = {**dict.fromkeys(times), **{_key(one): None for one in at_all}}
    found = [
        Fired(
            *key,
            seconds=sum(end - start for start, end in times.get(key, ())),
            times=times.get(key, ()),
        )
        for key in keys
    ]
    return sorted(found, key=lambda one: (-one.seconds, one.name, one.service))


def service(labels: dict[str, str] | None = None, /, **named: str) -> str:
    """Return the service of a series as text, without absent labels."""
    given = {**(labels or {}), **named}
    names = ("job", "namespace", "cluster")
    return " ".join(f"{one}={given[one]}" for one in names if given.get(one))


def _key(series: PrometheusSeries) -> tuple[str, str, str]:
    labels = dict(series.labels)
    return (
        labels.get("alertname", ""),
        labels.get("severity", ""),
        service(labels),
    )


def _intervals(series: PrometheusSeries, step: float) -> Iterator[tuple[float, float]]:
    """Yield each time that it fired: from its first sample to a step after its last."""
    start = last = series.points[0][0]
    for moment, _ in series.points[1:]:
        if moment - last > _GAP_STEPS * step:
            yield start, last + step
            start = moment
        last = moment
    yield start, last + step
