"""`docs/metrics.md`: the catalogue for people who write queries."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmon import catalog
from jaxmon.artifacts.markdown import page, table
from jaxmon.artifacts.write import HEADER
from jaxmon.catalog import Metric
from jaxmon.catalog.model import GAUGES


PATH = "docs/metrics.md"

_PAGES = {
    catalog.AGENT: "agent",
    catalog.SIDECAR: "sidecar",
    catalog.BOTH: "agent, sidecar",
}


def render(metrics: Sequence[Metric] = catalog.METRICS) -> str:
    """Return the page: how to read the figures, then one table for each group."""
    groups = dict.fromkeys(metric.group for metric in metrics)
    tables = [
        part
        for group in groups
        for part in (
            f"## {group}",
            _group([metric for metric in metrics if metric.group == group]),
        )
    ]
    return page(HEADER, "# Metrics", _introduction(), *tables)


def _group(metrics: Sequence[Metric]) -> str:
    rows = [
        (
            f"`{metric.name}`",
            metric.kind,
            _labels(metric),
            metric.unit or "-",
            _PAGES[metric.sources],
            metric.help + _buckets(metric) + _limits(metric),
        )
        for metric in metrics
    ]
    return table(("Metric", "Kind", "Labels", "Unit", "Page", "Meaning"), rows)


def _labels(metric: Metric) -> str:
    values = dict(metric.values)
    cells = []
    for label in metric.labels:
        closed = f": {', '.join(values[label])}" if label in values else ""
        cells.append(f"`{label}`{closed}")
    return "<br>".join(cells) or "-"


def _buckets(metric: Metric) -> str:
    if not metric.buckets:
        return ""
    return f" Buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}."


def _limits(metric: Metric) -> str:
    if metric.limits in (None, (0, 1)):
        return ""
    low, high = metric.range
    return f" From {low:g} to {high:g}."


def _introduction() -> str:
    calls, hits = catalog.JIT_CALLS.name, catalog.JIT_CACHE_HITS.name
    compile_seconds = catalog.COMPILE_SECONDS.name
    units = ", ".join(
        f"{low:g} to {high:g} {unit}" for unit, (low, high) in GAUGES.items()
    )
    return f"""
The *agent* runs inside the JAX process, the *sidecar* beside it. The sidecar
relays every series of the agents on its host and adds `worker`, the slot of the
process: scrape either, not both under the same job. Histograms appear as
`_bucket`, `_sum` and `_count`. A series that JAX cannot give is absent, not zero:
the CPU has no allocator figures, for example.

A figure that the sidecar reads must be one that can be true: counters are not negative,
and gauges lie in the range that is told with them, or goes with their unit:
{units}.
Drivers say 4294967295 for "not available", and worse; such a figure is left out,
counted by `{catalog.DROPPED.name}{{what="figure"}}`, and logged once for its metric.
A ratio of up to 1.01 is shown as 1: its two counters are not read at the same moment.

`function` is `module.qualname` of the Python function that was jitted. Past
`max_functions` distinct ones (see [settings](settings.md)) the rest share
`function="other"`, and `{catalog.LABEL_OVERFLOW.name}` counts them.

Queries to start from:

- Cache hit rate by function; near 1 once a program is warm:
  `rate({hits}[5m]) / rate({calls}[5m])`
- Recompiles by function and cause; 0 once a program is warm:
  `sum by (function, cause) (rate({catalog.RECOMPILES.name}[5m])) > 0`
- Share of wall time that a process spends making programs ready:
  `sum without (function, phase, le) (rate({compile_seconds}_sum[5m]))`
- A compile that hangs, or takes very long:
  `{catalog.COMPILE_OLDEST_SECONDS.name} > 300`
- Hit rate of the persistent compilation cache:
  `sum(rate({catalog.PERSISTENT_CACHE_REQUESTS.name}{{result="hit"}}[1h])) /
  sum(rate({catalog.PERSISTENT_CACHE_REQUESTS.name}[1h]))`
- Device memory in use, as a share of the limit:
  `{catalog.DEVICE_MEMORY_BYTES.name}{{kind="in_use"}} / ignoring(kind)
  {catalog.DEVICE_MEMORY_BYTES.name}{{kind="limit"}}`
"""
