"""Requests of which the program names a tenant count for the route and the tenant."""

import jaxmon
from jaxmon.catalog import REQUESTS, TENANT_REQUEST_SECONDS, TENANT_REQUESTS
from jaxmon.indicators.routes import Outcome
from jaxmon_alerts import slo


COUNT = TENANT_REQUESTS.name
SECONDS_COUNT = f"{TENANT_REQUEST_SECONDS.name}_count"
OBJECTIVE = """slos:
  - name: tenant-errors
    title: Tenants are served
    description: Requests of each tenant succeed.
    objective: 99%
    by: [job, tenant]
    indicator:
      bad: jaxmon_tenant_requests_total{outcome="error"}
      total: jaxmon_tenant_requests_total{outcome!="client_error"}
"""


def serve(tenant: str = "", outcome: Outcome = "success") -> None:
    """Serve a request of *tenant*."""
    with jaxmon.request("predict") as request:
        if tenant:
            request.tenant = tenant
        request.outcome = outcome


def test_a_request_counts_for_both(recorded):
    """By outcome; its latency only if it succeeded."""
    serve("acme")
    serve("acme", "error")
    serve()

    assert recorded.value(COUNT, tenant="acme", outcome="success") == 1
    assert recorded.value(COUNT, tenant="acme", outcome="error") == 1
    assert recorded.value(SECONDS_COUNT, tenant="acme") == 1
    assert sum(recorded.values(REQUESTS.name, route="predict")) == 3


def test_without_a_tenant_there_are_no_series(recorded):
    """What no program uses costs nothing."""
    serve()

    assert recorded.values(COUNT) == []
    assert recorded.values(SECONDS_COUNT) == []


def test_tenants_are_bounded(recorded):
    """The first twenty have series of their own, others share one."""
    for number in range(30):
        serve(f"tenant {number}")

    assert len(recorded.values(COUNT)) == 21 * 3
    assert recorded.value(COUNT, tenant="other", outcome="success") == 10


def test_a_request_may_change_its_tenant(recorded):
    """The latest counts, once."""
    with jaxmon.request("predict") as request:
        request.tenant = "first"
        assert request.tenant == "first"
        request.tenant = "second"

    assert recorded.value(COUNT, tenant="first", outcome="success") == 0
    assert recorded.value(COUNT, tenant="second", outcome="success") == 1
    assert sum(recorded.values(REQUESTS.name, route="predict")) == 1


def test_without_an_agent_it_is_ignored():
    """The program need not know whether it is observed."""
    serve("acme")


def test_an_objective_may_be_by_tenant(tmp_path):
    """Each tenant has a budget of its own."""
    path = tmp_path / "slo.yaml"
    path.write_text(OBJECTIVE)

    (found,) = slo.load(path)

    assert found.by == ("job", "tenant")
