"""``jaxmon exporter``: what stands on its pages."""

import gzip
import re
from collections.abc import Callable
from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from jaxmon.catalog import BY_NAME, METRICS
from jaxmon.exposition.parse import parse
from jaxmon.host.http.server import Response, Server
from tests.helpers.processes import until
from tests.helpers.sidecars import Exporter, values


PAGE = b"""\
# HELP jaxmon_jit_calls_total Calls.
# TYPE jaxmon_jit_calls_total counter
jaxmon_jit_calls_total{function="f"} 7
"""


def test_host_without_gpu_agents_or_run_directory(exporter, tmp_path):
    """On a bare host it serves, is ready, and says why there is no GPU and no agent."""
    running = exporter("--run-dir", str(tmp_path / "not yet there"))
    running.until_ready()
    assert running.get("/-/healthy") == "healthy\n"
    page = values(running.get())
    assert page['jaxmon_collector_success{collector="agents"}'] == 0
    assert page['jaxmon_collector_success{collector="host"}'] == 1
    assert page['jaxmon_collector_success{collector="nvml"}'] == 0
    collectors = {one["name"]: one for one in running.summary()["collectors"]}
    agents, nvml = collectors["agents"], collectors["nvml"]
    assert (agents["reason"], agents["absent"]) == ("no_run_dir", True)
    assert nvml["reason"] in ("library_not_found", "not_installed", "init_failed")
    assert not (tmp_path / "not yet there").exists()


def test_agent_that_starts_later_is_found(exporter, run_dir):
    """A process that is instrumented after the sidecar started shows up by itself."""
    running = exporter("--agents-interval", "0.2")
    running.until_ready()
    assert running.summary()["agents"] == []
    server = Server({"/metrics": lambda _: Response(PAGE)})
    server.listen_unix(run_dir / "agent-0.sock")
    server.start()
    try:
        until(lambda: running.summary()["agents"], "the agent")
        page = values(running.get())
        assert page['jaxmon_jit_calls_total{worker="0",function="f"}'] == 7
        assert running.summary()["functions"][0]["calls"] == 7
    finally:
        server.stop()
    until(lambda: not running.summary()["agents"][0]["up"], "the agent to be down")
    assert 'jaxmon_jit_calls_total{worker="0"' not in running.get()


def test_two_sidecars_of_a_host_tell_the_same(exporter, run_dir):
    """They share the sockets of the agents, and neither costs the other a figure."""
    server = Server({"/metrics": lambda _: Response(PAGE)})
    server.listen_unix(run_dir / "agent-0.sock")
    server.start()
    both = [exporter("--agents-interval", "0.1") for _ in range(2)]
    series = 'jaxmon_jit_calls_total{worker="0",function="f"}'
    try:
        for one in both:
            one.until_ready()
        for page in [values(one.get()) for one in both for _ in range(10)]:
            assert page[series] == 7
            assert page['jaxmon_collector_success{collector="agents"}'] == 1
    finally:
        server.stop()


def test_openmetrics_page_passes_a_strict_parser(exporter):
    """The page with the whole demo fleet is OpenMetrics 1.0 to the letter."""
    running = exporter("--demo")
    running.until_ready()
    text = running.get(accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert list(text_string_to_metric_families(text))


def test_page_and_catalogue_agree(exporter, tmp_path):
    """All sidecar metrics are on the page or explained, and nothing else is."""
    config = tmp_path / "web.yml"
    config.write_text("http_server_config: {}\n")
    prices, web = ("--price", "H100=2.5"), ("--web-config", str(config))
    running = exporter("--demo", "--disk", ".", *prices, *web)
    running.until_ready()
    running.get()
    names = {family.name for family in parse(running.get())}
    assert names <= BY_NAME.keys()
    # Where this test runs there may be a control group, or none; the demo has GPUs.
    expected = {
        metric.name
        for metric in METRICS
        if "sidecar" in metric.sources and metric.group not in ("Container", "TPUs")
    }
    # They appear with the first failure, and there was none.
    mishaps = {"jaxmon_internal_errors_total", "jaxmon_gpu_xid_last_timestamp_seconds"}
    # The demo's GPUs are whole, young and real, and nobody asked for processes.
    others = {name for name in expected if "_mig_" in name or "_retired_" in name}
    others |= {"jaxmon_gpu_process_memory_bytes", "jaxmon_gpu_vgpu_licensed"}
    # No process ended.
    others |= {"jaxmon_agent_ended_seconds", "jaxmon_agent_finished_seconds"}
    # They name ranks of a job in trouble.
    others |= {"jaxmon_nccl_rank_lag", "jaxmon_nccl_missing_processes"}
    # That is for --otlp.
    others.add("jaxmon_otlp_exports_total")
    # Rates beside counters are for --compat dcgm.
    others |= {name for name in expected if name.endswith("_per_second")}
    # Its GPUs are divided into no MIG devices, but that is a figure.
    others.remove("jaxmon_gpu_mig_mode")
    assert expected - names == mishaps | others


def test_accelerators_have_a_price(exporter, tmp_path):
    """The price comes from the table, a price on the command line wins."""
    table = tmp_path / "prices.yaml"
    table.write_text("H100: 9.9\nA100: 1.5\n")
    running = exporter("--demo", "--prices", str(table), "--price", "H100=2.5")
    running.until_ready()
    cost = "jaxmon_accelerator_cost_dollars_per_hour{"
    page = values(running.get())
    assert [page[name] for name in page if name.startswith(cost)] == [2.5] * 8


def test_landing_page_allows_only_itself(exporter: Callable[..., Exporter]) -> None:
    """The page is one self-contained document with a policy that nothing widens."""
    running = exporter()
    with urlopen(Request(running.url)) as response:
        html = response.read().decode()
        policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(html.encode()) < 110_000
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", html)
    # A third of it crosses the network, if the browser reads gzip.
    with urlopen(Request(running.url, headers={"Accept-Encoding": "gzip"})) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        zipped = response.read()
    assert gzip.decompress(zipped).decode() == html
    assert len(zipped) < 40_000
