"""
jaxmon metrics in the program's own prometheus_client registry.

    from prometheus_client import REGISTRY, start_http_server

    import jaxmon
    from jaxmon.prometheus import AgentCollector

    agent = jaxmon.instrument(port=None)
    REGISTRY.register(AgentCollector(agent))
    start_http_server(8000)

One port and one scrape for both. Not needed with a sidecar; with both, every series
would be scraped twice. If several processes share a port (``uvicorn --workers``,
gunicorn), each scrape reaches only one of them, even in prometheus_client's
multiprocess mode; use a sidecar instead.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client.metrics_core import Metric as ClientMetric
from prometheus_client.registry import Collector as ClientCollector
from prometheus_client.samples import Exemplar

from jaxmon import interrupts
from jaxmon.catalog import Metric
from jaxmon.exposition import families as exemplars
from jaxmon.exposition.encode import SUFFIXES
from jaxmon.exposition.families import Family
from jaxmon.exposition.parse import labels


log = logging.getLogger("jaxmon")

# The default registry of prometheus_client exports them itself.
_THEIRS = ("process_", "python_")


class CollectingAgent(Protocol):
    """What `jaxmon.instrument` returns."""

    running: bool

    def collect(self) -> list[Family]:
        """Return every metric family."""


class AgentCollector(ClientCollector):
    """
    Provides *agent*'s metrics to a registry, except ``process_*`` and ``python_*``.

    Those are prometheus_client's own. After `jaxmon.uninstrument`, and in a forked
    child, it yields nothing, and may stay registered. A scrape costs as much as one of
    the agent's own endpoint, plus about 3 µs per series. A failure omits our series,
    never the others.

    Args:
        agent: what `jaxmon.instrument` returned.
    """

    def __init__(self, agent: CollectingAgent) -> None:
        self._agent = agent
        self._failed = False

    def describe(self) -> Iterable[ClientMetric]:
        """Report no names: a registry accepts a later agent's collector beside it."""
        return ()

    def collect(self) -> Iterable[ClientMetric]:
        """Return every family as prometheus_client's; thread-safe."""
        if not self._agent.running:
            return ()
        try:
            return _converted(self._agent.collect(), self._note)
        except Exception as error:  # noqa: BLE001 - the page is the program's
            interrupts.pass_on(error)
            self._note()
            return ()

    def _note(self) -> None:
        if not self._failed:
            self._failed = True
            log.error(
                "jaxmon's metrics are missing from the program's endpoint",
                exc_info=sys.exception(),
            )


def _converted(
    families: Iterable[Family], failed: Callable[[], None]
) -> list[ClientMetric]:
    found: dict[str, tuple[Metric, ClientMetric]] = {}
    for family in families:
        ours = family.metric
        if not family.samples or ours.name.startswith(_THEIRS):
            continue
        try:
            samples = [(series, float(value)) for series, value in family.samples]
        except Exception as error:  # noqa: BLE001 - no number: it costs its family
            interrupts.pass_on(error)
            failed()
            continue
        kind, theirs = found.setdefault(ours.name, (ours, _empty(ours)))
        if kind.kind != ours.kind:
            continue  # as on our own page
        for series, number in samples:
            name, _, text = series.partition("{")
            if number == number:  # noqa: PLR0124 - NaN is left out, as on our own page
                theirs.add_sample(
                    name,
                    labels(text) if text else {},
                    number,
                    exemplar=_exemplar(family.exemplars.get(series)),
                )
    return [theirs for _, theirs in found.values() if theirs.samples]


def _exemplar(text: str | None) -> Exemplar | None:
    found = None if text is None else exemplars.read(text)
    return None if found is None else Exemplar(*found)


def _empty(metric: Metric) -> ClientMetric:
    name = metric.name.removesuffix(SUFFIXES.get(metric.kind, ""))
    unit = metric.unit if name.endswith(f"_{metric.unit}") else ""
    return ClientMetric(name, metric.help, metric.kind, unit)
