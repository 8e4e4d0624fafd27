"""
jaxmon's figures on a page that the program serves itself, by prometheus_client.

    from prometheus_client import REGISTRY, start_http_server

    import jaxmon
    from jaxmon.prometheus import Collector

    agent = jaxmon.instrument(port=None)
    REGISTRY.register(Collector(agent))
    start_http_server(8000)

One port and one scrape for both. Where a sidecar stands beside the program this is not
needed; with both, every series would be scraped twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector as ClientCollector

from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family


if TYPE_CHECKING:
    from prometheus_client import Metric

# The default registry of prometheus_client tells them itself.
_THEIRS = ("process_", "python_")


class Agent(Protocol):
    """
    What `jaxmon.instrument` returns.
    """

    running: bool

    def collect(self) -> list[Family]:
        """
        Return every family of the page.
        """
        ...


class Collector(ClientCollector):
    """
    Gives a registry what *agent* would serve, but for ``process_*`` and ``python_*``.

    Those are prometheus_client's own. After `jaxmon.uninstrument` it gives nothing, and
    may stay registered. A scrape costs what the agent's own page costs, and about
    20 µs a series for prometheus_client to take it in.

    Args:
        agent: what `jaxmon.instrument` returned.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def describe(self) -> Iterable[Metric]:
        """
        Tell no names, which saves the registry a scrape when it takes us in.
        """
        return ()

    def collect(self) -> Iterator[Metric]:
        """
        Yield every family as prometheus_client's; any thread.
        """
        if not self._agent.running:
            return
        families = [
            family
            for family in self._agent.collect()
            if not family.metric.name.startswith(_THEIRS)
        ]
        yield from text_string_to_metric_families(encode(families).decode())
