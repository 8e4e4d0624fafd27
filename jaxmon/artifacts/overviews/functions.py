"""Calls, compiles and errors of functions: the most series, and the dearest rules."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.overviews.model import PROCESS, Overview
from jaxmon.promql import counter, events, gauge


_BY = ("job", "function")


CALLS = Overview(
    "job",
    catalog.JIT_CALLS,
    "rate5m",
    lambda window: counter(catalog.JIT_CALLS).rate(window.recent).sum(*_BY),
)
CACHE_HITS = Overview(
    "job",
    catalog.JIT_CACHE_HITS,
    "rate5m",
    lambda window: counter(catalog.JIT_CACHE_HITS).rate(window.recent).sum(*_BY),
)
# Of what did not happen there is no series.
RECOMPILES = Overview(
    "job",
    catalog.RECOMPILES,
    "rate5m",
    lambda window: window.per_second(events.RECOMPILES.within(window.recent)).sum(
        *_BY, "cause"
    ),
)
WORST_RECOMPILES = Overview(
    "job",
    catalog.RECOMPILES,
    "max_rate5m",
    lambda window: (
        window.per_second(events.RECOMPILES.within(window.recent))
        .sum(*PROCESS, "function")
        .max("job")
    ),
)
COMPILING = Overview(
    "job",
    catalog.COMPILE_SECONDS,
    "rate5m",
    lambda window: window.per_second(events.COMPILE_SECONDS.within(window.recent)).sum(
        "job", "phase"
    ),
)
COMPILES = Overview(
    "job",
    catalog.COMPILES,
    "increase5m",
    lambda window: events.COMPILES.within(window.recent).sum("job", "outcome"),
)
LOOKUPS = Overview(
    "job",
    catalog.PERSISTENT_CACHE_REQUESTS,
    "increase5m",
    lambda window: events.CACHE_LOOKUPS.within(window.recent).sum("job", "result"),
)
PROGRAMS = Overview(
    "worker",
    catalog.PROGRAM_INFO,
    "count",
    lambda _: gauge(catalog.PROGRAM_INFO).count(*PROCESS),
)
ERRORS = Overview(
    "job",
    catalog.ERRORS,
    "increase5m",
    lambda window: events.ERRORS.within(window.recent).sum(*_BY, "kind"),
)

SELDOM = (
    *(CALLS, CACHE_HITS, RECOMPILES, WORST_RECOMPILES, COMPILING, COMPILES),
    *(LOOKUPS, PROGRAMS, ERRORS),
)
