"""
Real receivers of OTLP that store what arrives in a real Prometheus.

Prometheus 3 does both, but Debian builds it without its receiver: tests take another
one that JAXMON_PROMETHEUS3 names. VictoriaMetrics' vmagent, which `tools/otlp-receiver`
downloads, hands on what it receives, to any Prometheus.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import pytest

from tests.support import ROOT, Prometheus, free_port, http_get, until


KINDS = ("prometheus", "vmagent")

_FLAG = "--web.enable-otlp-receiver"
_AGENT = ROOT / ".cache" / "otlp-receiver" / "vmagent"
_SERVICE = ("service.name", "service.namespace", "service.instance.id")
# What Prometheus does itself.
_RELABEL = """\
- source_labels: [service.namespace, service.name]
  separator: /
  regex: /?(.+)
  target_label: job
- source_labels: [service.instance.id]
  target_label: instance
- action: labeldrop
  regex: service[.].+
"""


class Store(NamedTuple):
    """
    Where metrics arrive.

    Attributes:
        server: where they are stored.
        endpoint: where they are pushed to.
    """

    server: Prometheus
    endpoint: str

    def environ(self, **more: str) -> dict[str, str]:
        """Return what a program needs to push here."""
        return {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": self.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            **more,
        }


def prometheus3() -> str:
    """Return the path of a Prometheus that receives OTLP; skip the test without one."""
    for path in (os.environ.get("JAXMON_PROMETHEUS3"), shutil.which("prometheus")):
        # The help says --[no-]web.enable-otlp-receiver.
        if path and _FLAG.removeprefix("--") in _help(path):
            return path
    pytest.skip("no Prometheus with a receiver of OTLP; JAXMON_PROMETHEUS3 names one")


@contextmanager
def store(
    kind: str, prometheus: Callable[..., Prometheus], directory: Path, **config: Any
) -> Iterator[Store]:
    """Start a store of one of `KINDS`, or skip the test without its program."""
    if kind == "prometheus":
        program = prometheus3()
        server = prometheus({}, program=program, options=(_FLAG,), config=config)
        yield Store(server, f"{server.url}/api/v1/otlp/v1/metrics")
        return
    if not _AGENT.is_file():
        pytest.skip("needs vmagent; tools/otlp-receiver downloads it as root on Debian")
    options = ("--web.enable-remote-write-receiver",)
    server = prometheus({}, options=options, config=config)
    with ExitStack() as stack:
        yield Store(server, stack.enter_context(_vmagent(server.url, directory)))


@contextmanager
def _vmagent(server: str, directory: Path) -> Iterator[str]:
    relabelling = directory / "relabel.yaml"
    relabelling.write_text(_RELABEL)
    url = f"http://127.0.0.1:{(port := free_port())}"
    with (directory / "vmagent.log").open("w") as log:
        process = subprocess.Popen(
            [
                _AGENT,
                f"-httpListenAddr=127.0.0.1:{port}",
                f"-remoteWrite.url={server}/api/v1/write",
                f"-remoteWrite.tmpDataPath={directory}/vmagent",
                "-remoteWrite.flushInterval=200ms",
                f"-remoteWrite.relabelConfig={relabelling}",
                "-opentelemetry.promoteScopeMetadata=false",
                "-opentelemetry.promoteAllResourceAttributes=false",
                f"-opentelemetry.promoteResourceAttributes={','.join(_SERVICE)}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: _is_healthy(url), "vmagent")
        yield f"{url}/opentelemetry/v1/metrics"
    finally:
        process.terminate()
        process.wait(60)


def _is_healthy(url: str) -> bool:
    try:
        return http_get(f"{url}/health") == "OK"
    except (URLError, ConnectionError):
        return False


def _help(path: str) -> str:
    said = subprocess.run([path, "--help"], capture_output=True, text=True, check=False)
    return said.stdout + said.stderr
