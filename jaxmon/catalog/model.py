"""The metric type, and the sheets that declare metrics in the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partialmethod
from math import inf
from typing import Literal

from jaxmon.tuples import NamedTuple


# The last is for metrics that a page does not declare.
Kind = Literal["counter", "gauge", "histogram", "info", "untyped"]
Source = Literal["agent", "sidecar"]
Label = str | tuple[str, tuple[str, ...]]
Limits = tuple[float, float] | None

AGENT: tuple[Source, ...] = ("agent",)
SIDECAR: tuple[Source, ...] = ("sidecar",)
BOTH: tuple[Source, ...] = ("agent", "sidecar")

GAUGES = {
    "ratio": (0.0, 1.0),
    "bytes": (0.0, 2.0**60),
    "seconds": (0.0, 1e10),
    "celsius": (-50.0, 200.0),
    "watts": (0.0, 1e5),
    "hertz": (0.0, 1e11),
}
"""
Plausible range of a gauge by unit, on any machine. Drivers' values for "not available",
such as the highest 32-bit or 64-bit integer, lie outside it.
"""

# Bytes and joules are counted by the largest numbers that there are, or in small units.
_COUNTERS = {"bytes": (0.0, 1e23), "joules": (0.0, 1e13)}
_COUNTER = (0.0, 2.0**63)

_UNITS = (*GAUGES, "joules")


class Metric(NamedTuple):
    """
    One metric family: full name, Prometheus type, and one sentence.

    The unit is ``""`` for counts. Labels are in exposition order; the sidecar adds
    ``worker`` to series of agents. Agents export the *few* of the buckets if the
    setting ``few_buckets`` says so. *values* are closed sets of label values, *limits*
    the lowest and highest plausible value, if not implied by kind and unit.
    """

    name: str
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    sources: tuple[Source, ...] = AGENT
    group: str = ""
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()
    limits: Limits = None
    few: tuple[float, ...] = ()

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest plausible value of a sample, or a histogram's count."""
        if self.limits is not None:
            return self.limits
        if self.kind == "counter":
            return _COUNTERS.get(self.unit, _COUNTER)
        if self.kind == "gauge":
            return GAUGES.get(self.unit, (-inf, inf))
        if self.kind == "info":
            return 1.0, 1.0
        return (0.0, inf) if self.kind == "histogram" else (-inf, inf)


class Sheet:
    """
    Metrics of one group, with the same sources and first labels, if any; *limits* are
    those of its gauges.

    Each method creates a metric of that kind. Its text is the metric's help. `named`
    gives it the name of its constant after *prefix*, in lower case; that of a counter
    ends in ``_total``. The unit follows from the name. A label with a closed set of
    values is passed together with it; others by name, several in one text.
    """

    __slots__ = ("_first", "_group", "_limits", "_prefix", "_sources")

    def __init__(
        self,
        group: str,
        sources: tuple[Source, ...] = AGENT,
        *of: Label,
        limits: Limits = None,
        prefix: str = "jaxmon_",
    ) -> None:
        self._prefix = prefix
        self._group = group
        self._sources = sources
        self._first = of
        self._limits = limits

    def gauge(
        self, text: str, *labels: Label, limits: Limits = None, name: str = ""
    ) -> Metric:
        """Return a gauge."""
        limits = limits or self._limits
        return self._metric("gauge", text, *labels, limits=limits, name=name)

    def histogram(
        self,
        text: str,
        *labels: Label,
        buckets: tuple[float, ...],
        few: tuple[float, ...] = (),
    ) -> Metric:
        """Return a histogram."""
        made = self._metric("histogram", text, *labels)
        return made._replace(buckets=buckets, few=few)

    def _metric(
        self,
        kind: Kind,
        text: str,
        *labels: Label,
        limits: Limits = None,
        name: str = "",
    ) -> Metric:
        labels = (*self._first, *labels)
        return Metric(
            name or self._prefix,
            kind,
            text,
            labels=tuple([name for of in labels for name in _names(of)]),
            sources=self._sources,
            group=self._group,
            values=tuple([label for label in labels if not isinstance(label, str)]),
            limits=limits,
        )

    counter = partialmethod(_metric, "counter")
    info = partialmethod(_metric, "info")
    flag = partialmethod(_metric, "gauge", limits=(0, 1))
    """Of a gauge that is 0 or 1."""


def named(module: Mapping[str, object]) -> dict[str, Metric]:
    """Return the metrics of *module* by constant, with their names and units."""
    found = {}
    for constant, metric in module.items():
        if isinstance(metric, Metric):
            name = metric.name
            if name.endswith("_") or not name:
                total = "_total" if metric.kind == "counter" else ""
                name = f"{name}{constant.lower()}{total}"
            found[constant] = metric._replace(name=name, unit=_unit(name))
    return found


def _unit(name: str) -> str:
    suffix = name.removesuffix("_total").rpartition("_")[2]
    return suffix if suffix in _UNITS else ""


def _names(label: Label) -> Sequence[str]:
    return label.split() if isinstance(label, str) else label[:1]
