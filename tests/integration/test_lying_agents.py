"""Lying agents next to honest ones: all output can be parsed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from jaxmon.exposition.encode import OPENMETRICS, TEXT, encode
from jaxmon.host.http.server import Request, Response, Server
from jaxmon_exporter.collectors.agents.collector import Agents
from jaxmon_exporter.polling import Poller
from tests.fakes.agents import Serve
from tests.liars import HONEST, lie
from tests.support import Prometheus, require_program, until


SEEDS = range(600)
# How many of them real programs read, each a scrape of its own.
SCRAPED = 60
ERRORS = re.compile(r'jaxmon_collector_errors_total\{.*reason="(agent_\w+)"\}')


class Host:
    """
    An honest agent, liars before and behind it, and the collector that reads them.
    """

    def __init__(self, run_dir: Path, serve: Serve) -> None:
        self.pages = dict.fromkeys(range(3), HONEST)
        for slot in self.pages:
            serve(slot, self._handler(slot))
        self.poller = Poller(Agents(run_dir))

    def _handler(self, slot: int) -> Callable[[Request], Response]:
        return lambda _: Response(self.pages[slot].encode("utf-8", "replace"))

    def poll(self, seed: int) -> dict[str, float]:
        """Read once while the agents 0 and 2 lie, and return the page by series."""
        self.pages[0], self.pages[2] = lie(2 * seed), lie(2 * seed + 1)
        self.poller.poll()
        return dict(
            sample for family in self.poller.families() for sample in family.samples
        )

    def encoded(self, fmt: Any = TEXT) -> str:
        return encode(self.poller.families(), fmt).decode()


@pytest.fixture
def host(run_dir: Path, serve: Serve) -> Host:
    return Host(run_dir, serve)


def lost(page: dict[str, float], worker: int) -> set[str]:
    """Return which series of the honest page *worker* does not have."""
    found = set()
    for line in HONEST.splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            more = f",{labels}" if labels else "}"
            if page.get(f'{name}{{worker="{worker}"{more}') != float(value):
                found.add(series)
    return found


def test_every_page_can_be_read_whatever_agents_say(host: Host) -> None:
    """
    Both parsers of prometheus_client, the strict one of OpenMetrics among them, read
    every page, and no series is there twice. Honest agents are exported exactly; only a
    metric to which an earlier liar gave another kind may be missing, and is counted.
    """
    before = dict.fromkeys(("agent_page", "agent_conflict"), 0.0)
    refused = dropped = conflicts = 0
    for seed in SEEDS:
        page = host.poll(seed)
        texts = {fmt: host.encoded(fmt) for fmt in (TEXT, OPENMETRICS)}
        try:
            for text, parse in (
                (texts[TEXT], parse_text),
                (texts[OPENMETRICS], parse_openmetrics),
            ):
                read = [
                    (sample.name, frozenset(sample.labels.items()))
                    for family in parse(text)
                    for sample in family.samples
                ]
                assert len(set(read)) == len(read)
        except Exception as error:
            msg = f"seed {seed}: {error!r}\n{host.pages[0]!r}\n{host.pages[2]!r}"
            raise AssertionError(msg) from error
        counted = {
            match[1]: value
            for series, value in page.items()
            if (match := ERRORS.fullmatch(series))
        }
        ups = [page[f'jaxmon_agent_up{{worker="{n}"}}'] for n in range(3)]
        missing = lost(page, 1)
        assert ups[1] == 1, seed
        assert {"jaxmon_future_seconds" in series for series in missing} <= {True}, seed
        assert counted["agent_page"] - before["agent_page"] == 3 - sum(ups), seed
        more = counted["agent_conflict"] - before["agent_conflict"]
        assert more > 0 or not missing, seed
        refused, dropped = refused + (3 - sum(ups) > 0), host.poller.dropped
        conflicts += more > 0
        before = counted

    # The seeds try all of it.
    assert len(SEEDS) * 0.3 < refused < len(SEEDS)
    assert dropped > 10
    assert conflicts > 2


@pytest.mark.exhaustive
def test_promtool_reads_every_page(host: Host) -> None:
    """
    The text of a page has no error for Prometheus; what it says of style is no concern.
    """
    promtool = require_program("promtool")
    for seed in SEEDS[:SCRAPED]:
        host.poll(seed)
        done = subprocess.run(
            [promtool, "check", "metrics"],
            input=host.encoded(),
            capture_output=True,
            text=True,
            check=False,
        )
        # 3 is what it gives for style.
        assert done.returncode in (0, 3), (seed, done.stderr)
        assert "error while linting" not in done.stderr, (seed, done.stderr)


def test_prometheus_scrapes_every_page(
    host: Host, prometheus: Callable[..., Prometheus]
) -> None:
    """
    A real Prometheus, which asks for OpenMetrics, and for text on another path, has all
    targets up and the honest agent's figures from each.
    """
    pages: dict[str, Response] = {}
    for seed in SEEDS[:SCRAPED]:
        host.poll(seed)
        for fmt in (TEXT, OPENMETRICS):
            body = host.encoded(fmt).encode()
            path = f"/{fmt.name}/{seed}"
            pages[path] = Response(body, content_type=fmt.content_type)

    def page(path: str) -> Callable[[Request], Response]:
        return lambda _: pages[path]

    with ExitStack() as stack:
        server = Server({path: page(path) for path in pages}, max_connections=300)
        port = server.listen_tcp("127.0.0.1", 0)
        server.start()
        stack.callback(server.stop)
        static = [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {"__metrics_path__": path, "path": path},
            }
            for path in pages
        ]
        running = prometheus(
            {},
            config={
                "scrape_configs": [{"job_name": "liars", "static_configs": static}]
            },
            interval="3s",
        )
        until(lambda: running.query("count(up)") == [({}, len(pages))], "all scrapes")
        down = {labels["path"] for labels, up in running.query("up") if up != 1}
        exact = running.query(
            'count(jaxmon_jit_calls_total{worker="1",function="f"} == 7)'
        )

    assert down == set()
    assert exact == [({}, len(pages))]
