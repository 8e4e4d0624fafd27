"""
What a metric is.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


# The last two are for what others export and the sidecar passes on.
Kind = Literal["counter", "gauge", "histogram", "info", "summary", "untyped"]
Source = Literal["agent", "sidecar"]

AGENT: tuple[Source, ...] = ("agent",)
SIDECAR: tuple[Source, ...] = ("sidecar",)
BOTH: tuple[Source, ...] = ("agent", "sidecar")


class Metric(NamedTuple):
    """
    One metric family: what it is called, what it means, who exports it.

    Args:
        name: full exposed name, base unit suffix included.
        kind: Prometheus type; ``info`` is a gauge that is always 1.
        help: one sentence, ends with a full stop.
        unit: base unit, ``""`` for counts.
        labels: label names in exposition order. The sidecar adds ``worker`` to
            every agent series that it relays.
        buckets: upper bounds of a histogram, without ``+Inf``.
        sources: whose page carries it.
        group: heading under which the documentation lists it.
        values: the closed set of values of a label, where there is one.
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
