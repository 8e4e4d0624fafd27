"""Exemplars of agents, on the page of the sidecar and in a real Prometheus."""

import time
from urllib.parse import urlencode, urlsplit

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from jaxmon import catalog
from jaxmon.exposition.encode import OPENMETRICS
from jaxmon.exposition.families import Family, Histogram, SpanIds, gauge
from jaxmon.host.http.server import Server, metrics_handler
from tests.helpers.processes import until
from tests.helpers.sidecars import exporters


TRACES = ("0af7651916cd43dd8448eb211c80319c", "1" * 32)


def test_the_sidecar_has_the_exemplars_of_its_agents(run_dir, prometheus):
    """They are there in OpenMetrics, and Prometheus stores them."""
    seconds = Histogram(catalog.REQUEST_SECONDS, "/gen", "success", "cold")
    seconds.observe(0.02, SpanIds(TRACES[0], "1" * 16))
    seconds.observe(3.0, SpanIds(TRACES[1], "2" * 16))

    def collect() -> list[Family]:
        found = gauge(catalog.REQUESTS, 2, "/gen", "success", "cold")
        times = Family(catalog.REQUEST_SECONDS, seconds.samples(), seconds.exemplars())
        return [found, times]

    took = Histogram(catalog.SCRAPE_SECONDS)
    server = Server({"/metrics": metrics_handler(collect, took)})
    server.listen_unix(run_dir / "agent-0.sock", 0o600)
    server.start()
    try:
        with exporters(run_dir) as start:
            exporter = start("--agents-interval", "0.2")
            exporter.until_ready()
            page = exporter.get(accept=OPENMETRICS.value)
            found = {
                sample.exemplar.labels["trace_id"]: (sample.labels, sample.exemplar)
                for family in text_string_to_metric_families(page)
                for sample in family.samples
                if sample.exemplar
            }
            assert set(found) == set(TRACES)
            labels, exemplar = found[TRACES[1]]
            assert labels["worker"] == "0"
            assert exemplar.labels["span_id"] == "2" * 16
            assert exemplar.value == 3.0
            assert abs(float(exemplar.timestamp) - time.time()) < 600
            assert "trace_id" not in exporter.get()

            address = urlsplit(exporter.url).netloc
            storing = ("--enable-feature=exemplar-storage",)
            stored = prometheus({"host": [address]}, options=storing)
            query = {"query": f'{catalog.REQUEST_SECONDS.name}_bucket{{worker="0"}}'}
            now = time.time()
            between = urlencode({**query, "start": now - 600, "end": now + 600})

            def ids() -> set[str]:
                return {
                    exemplar["labels"]["trace_id"]
                    for series in stored.get(f"query_exemplars?{between}")
                    for exemplar in series["exemplars"]
                }

            until(lambda: ids() == set(TRACES), "the exemplars of both traces")
    finally:
        server.stop()
