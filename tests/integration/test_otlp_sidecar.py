"""Metrics that the sidecar pushes by OTLP."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from jaxmon.host.http.server import Response, Server
from tests.helpers.otlp import page_samples, receiver
from tests.helpers.processes import clean_environ, run_python, until
from tests.helpers.sidecars import JAXMON, exporters


PAGE = """\
# TYPE jaxmon_jit_calls_total counter
jaxmon_jit_calls_total{function="f"} 7
# TYPE jaxmon_build_info gauge
jaxmon_build_info{version="1"} 1
"""
PUSHING = """\
# TYPE jaxmon_otlp_exports_total counter
jaxmon_otlp_exports_total{signal="metrics",outcome="success"} 2
"""
EMPTY = (
    *("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT"),
    *("OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_INSECURE"),
    *("OTEL_METRIC_EXPORT_TIMEOUT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
)


def _page(text: str, _: object) -> Response:
    return Response(text.encode())


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_the_page_is_pushed_without_agents_that_push(run_dir, tmp_path, protocol):
    """
    An agent that does not push is pushed by the sidecar, one that does is not; what the
    sidecar knows itself, also about that agent, is what its page has. Empty variables,
    as Compose and Helm write them, are unset.
    """
    pages = {0: PAGE, 1: PAGE + PUSHING}
    servers = []
    for number, text in pages.items():
        server = Server({"/metrics": partial(_page, text)})
        server.listen_unix(run_dir / f"agent-{number}.sock", 0o600)
        server.start()
        servers.append(server)
    try:
        with receiver(tmp_path) as running, exporters(run_dir) as start:
            empty = dict.fromkeys(EMPTY, "")
            environ = running.environ(protocol, OTEL_METRIC_EXPORT_INTERVAL="100")
            exporter = start("--otlp", "--demo", **empty, **environ)
            exporter.until_ready()
            page = page_samples(exporter.get())
            before = len(running.requests())
            until(lambda: len(running.requests()) > before + 1, "another export")
            assert exporter.stop() == 0
            request = running.requests()[-1]
    finally:
        for server in servers:
            server.stop()
    found = request.samples()
    called = "jaxmon_jit_calls_total"
    assert (called, frozenset({("worker", "1"), ("function", "f")})) in page
    workers = {dict(labels).get("worker") for name, labels in found if name == called}
    assert "0" in workers
    assert "1" not in workers
    assert found["jaxmon_agent_up", frozenset({("worker", "1")})] == 1
    pushed_by_agent = {
        key
        for key in page
        if ("worker", "1") in key[1]
        and not key[0].startswith(("jaxmon_agent_", "jaxmon_nccl_"))
    }
    assert len(pushed_by_agent) == 3
    assert page.keys() - found.keys() <= pushed_by_agent
    assert request.resource()["service.name"] == "jaxmon-exporter"


def test_gpus_have_the_names_of_the_conventions_on_request(run_dir, tmp_path):
    """With ``--otlp-names semantic`` GPUs are in ``hw.gpu.*``, and nothing twice."""
    with receiver(tmp_path) as running, exporters(run_dir) as start:
        exporter = start(
            *("--otlp", "--demo", "--otlp-names", "semantic"), **running.environ()
        )
        exporter.until_ready()
        page = page_samples(exporter.get())
        assert exporter.stop() == 0
        metrics = running.requests()[-1].metrics()
    size = "jaxmon_accelerator_memory_size_bytes"
    gpus = {
        dict(labels)["uuid"]: value
        for (name, labels), value in page.items()
        if name == size and dict(labels)["uuid"].startswith("GPU-")
    }
    points = metrics["hw.gpu.memory.limit"].sum.data_points
    assert gpus == {one.attributes[0].value.string_value: one.as_int for one in points}
    assert len(gpus) > 0
    left = metrics[size].gauge.data_points if size in metrics else ()
    assert not [
        one for one in left if one.attributes[0].value.string_value.startswith("GPU-")
    ]


def test_without_the_extra_it_does_not_start(run_dir: Path) -> None:
    """A sidecar that is told to push and cannot says what to install."""
    source = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from jaxmon.cli.main import main; main(['exporter', '--otlp', '--port', '0'])"
    )
    done = run_python("-c", source, run_dir=run_dir)
    assert done.code == 1
    assert "pip install 'jaxmon[otel]'" in done.err
    assert "Traceback" not in done.err


def test_without_the_option_nothing_is_pushed(run_dir: Path) -> None:
    """The variables alone do not make a sidecar load OpenTelemetry."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", JAXMON, "exporter", "--host", "256.1.1.1"],
        env=clean_environ(run_dir, OTEL_EXPORTER_OTLP_ENDPOINT="http://localhost:1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "jaxmon" in done.stderr
    assert "opentelemetry" not in done.stderr
