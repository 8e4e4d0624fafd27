"""The sidecar's small pages: readiness, the summary, the landing page's policy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from time import monotonic
from typing import cast

import pytest

from jaxmon.catalog import HOST_CPUS, HOST_LOAD_1M
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, gauge
from jaxmon.host.http.server import Request, Response
from jaxmon_exporter import pages
from jaxmon_exporter.collectors.registry import NAMES
from jaxmon_exporter.options import SidecarOptions
from jaxmon_exporter.service import Service


GET = Request("GET", "/")


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
def test_ready_page_follows_the_collectors(ready: bool, status: int) -> None:  # noqa: FBT001
    """Readiness is 503 until every collector was polled, then 200."""
    assert pages.ready_page(lambda: ready)(GET).status == status


def test_policy_names_exactly_the_text_of_the_page() -> None:
    """The hashes of style and script in the policy are those a browser computes."""
    response = pages.landing_page(GET)
    html, policy = response.body.decode(), response.headers["Content-Security-Policy"]
    for kind in ("style", "script"):
        (text,) = re.findall(f"<{kind}>(.*?)</{kind}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_service_answers_before_it_was_polled() -> None:
    """Page and summary can be asked for at once, and say that nothing is known."""
    service = Service(SidecarOptions(run_dir=Path("/nowhere")))
    page = encode(service.families()).decode()
    assert "jaxmon_build_info" in page
    assert "jaxmon_collector_success" not in page
    page_of_summary = service._server.routes["/api/summary"](GET)
    assert isinstance(page_of_summary, Response)
    summary = json.loads(page_of_summary.body)
    # An exporter of DCGM is read where one is named.
    named = {one["name"] for one in summary["collectors"]}
    assert named == set(NAMES) - {"dcgm", "nccl_inspector"}
    assert not any(one["polled"] for one in summary["collectors"])


def test_own_failures_are_on_the_page(caplog: pytest.LogCaptureFixture) -> None:
    """What the server reports is counted by site and logged once."""
    service = Service(SidecarOptions(run_dir=Path("/nowhere")))
    for _ in range(3):
        service._count_error("server:/metrics", ValueError("no"))
    line = 'jaxmon_internal_errors_total{site="server:/metrics"} 3'
    assert line in encode(service.families()).decode().splitlines()
    assert len(caplog.records) == 1


def test_a_source_that_fails_costs_its_own_series(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Bad families and failed sources are left out, counted and logged once."""

    def broken(_: object) -> list[Family]:
        msg = "no prices today"
        raise RuntimeError(msg)

    bad = [gauge(HOST_CPUS, cast("float", "many")), gauge(HOST_LOAD_1M, 0.5)]
    service = Service(SidecarOptions(run_dir=Path("/nowhere"), prices={"H100": 1.0}))
    service._sources |= {"prices": broken, "process": lambda _: bad}
    handle = service._server.routes["/metrics"]
    for _ in range(2):
        response = handle(Request("GET", "/metrics", arrived=monotonic()))
    assert isinstance(response, Response)
    page = response.body.decode().splitlines()

    assert "jaxmon_host_load1 0.5" in page
    assert not [line for line in page if line.startswith("jaxmon_host_cpus")]
    errors = {line for line in page if line.startswith("jaxmon_internal_errors_total")}
    assert errors == {
        'jaxmon_internal_errors_total{site="prices"} 2',
        'jaxmon_internal_errors_total{site="encode:jaxmon_host_cpus"} 2',
    }
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
