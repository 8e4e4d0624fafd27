"""
Events of processes that seldom happen, or may be the last that happens: recorded.

Errors, compiles, failures: a process often begins with them, and may end with them, so
that `increase`, which needs two samples of one process, does not see them. What each
process counted since the previous evaluation is recorded instead, by its labels and
where it is not 0, as objectives count (`jaxmon.promql.counting`). Alerts,
reports and dashboards add these up over any window.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon.promql import Counter, Expr, Matcher
from jaxmon.promql.counting import Evaluation, conditions, counted
from jaxmon.promql.shape import SCRAPED_LABELS


# The series of functions are many. Of processes that live for less, some are not seen.
INTERVAL = "1m"


@dataclass(frozen=True, slots=True)
class Events:
    """
    What is recorded of one counter, or of the sum of one histogram: added up *by*
    labels, also where none happened; by default, by those of each process, where some
    did.
    """

    metric: Metric
    by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return ``level:metric:delta``."""
        level = "job" if self.by else "worker"
        return f"{level}:{self.metric.name.removesuffix('_total')}:delta"

    def rule(self, when: Evaluation) -> tuple[str, Expr]:
        """Return the name and the expression by which they are recorded."""
        rise = counted(self._counter, when, rare=not self.by)
        return self.name, rise.sum(*self.by) if self.by else rise

    def within(self, window: str, *matchers: Matcher) -> Expr:
        """Return how many there were within *window*, by all labels."""
        labels = self.by or (*SCRAPED_LABELS, *self.metric.labels)
        unit = self._counter.shape.unit or ""
        series = promql.recorded(self.name, *matchers, labels=labels, unit=unit)
        length = window if "$" in window else durations.seconds(window)
        return promql.recorded_over("sum", series, length)

    @property
    def _counter(self) -> Counter:
        if self.metric.kind == "histogram":
            return promql.histogram(self.metric).sum
        return promql.counter(self.metric)


ERRORS = Events(catalog.ERRORS)
COMPILES = Events(catalog.COMPILES)
COMPILE_SECONDS = Events(catalog.COMPILE_SECONDS)
RECOMPILES = Events(catalog.RECOMPILES)
CACHE_LOOKUPS = Events(catalog.PERSISTENT_CACHE_REQUESTS)
CACHE_WRITES = Events(catalog.PERSISTENT_CACHE_WRITES)
CACHE_ERRORS = Events(catalog.PERSISTENT_CACHE_ERRORS)
CACHE_SAVED = Events(catalog.PERSISTENT_CACHE_SAVED_SECONDS)
WARMUPS = Events(catalog.WARMUP_SIGNATURES)
CHECKPOINT_FAILURES = Events(catalog.CHECKPOINT_FAILURES)
KEY_REUSE = Events(catalog.KEY_REUSE)
DETERMINISM_CHECKS = Events(catalog.DETERMINISM_CHECKS)
GRADIENT_CHECKS = Events(catalog.GRADIENT_CHECKS)
DEVICE_DEVIATIONS = Events(catalog.DEVICE_DEVIATIONS)
NONFINITE = Events(catalog.NONFINITE)
PROMOTIONS = Events(catalog.FLOAT64_PROMOTIONS)
SPIKES = Events(catalog.VALUE_SPIKES)
WARNINGS = Events(catalog.JAX_WARNINGS)
INTERNAL_ERRORS = Events(catalog.INTERNAL_ERRORS)

STEPS = Events(catalog.STEPS, ("job", "loop"))
_REQUEST = ("job", "route", "outcome", "start")
REQUESTS = Events(catalog.REQUESTS, _REQUEST)
REQUEST_SECONDS = Events(catalog.REQUEST_SECONDS, _REQUEST)

EVERY = (
    *(ERRORS, COMPILES, COMPILE_SECONDS, RECOMPILES, WARMUPS),
    *(CACHE_LOOKUPS, CACHE_WRITES, CACHE_ERRORS, CACHE_SAVED),
    *(CHECKPOINT_FAILURES, KEY_REUSE, DETERMINISM_CHECKS, GRADIENT_CHECKS),
    *(DEVICE_DEVIATIONS, NONFINITE, PROMOTIONS, SPIKES, WARNINGS, INTERNAL_ERRORS),
    *(STEPS, REQUESTS, REQUEST_SECONDS),
)


def rules(when: Evaluation) -> dict[str, Expr]:
    """Return what is recorded, by name, of evaluations *when*."""
    return {**dict(conditions(when)), **dict(events.rule(when) for events in EVERY)}
