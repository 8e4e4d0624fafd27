"""From a failing service to a notification, by real programs in quick motion."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.cli import runbook
from jaxmon.exposition.families import Family, Histogram, gauge, series
from jaxmon.host.http.server import Server, metrics_handler
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from tests.helpers.processes import http_get, until
from tests.helpers.prometheus import Alertmanager, Prometheus, Webhook


SCALE = 60
BURN = "JaxmonRequestErrorBudgetBurn"


class Service:
    """A service that answers a hundred requests between two scrapes, and a loop."""

    def __init__(self) -> None:
        self.failing = False
        self._good = self._bad = 0

    def families(self) -> list[Family]:
        """Return what an agent in it would export."""
        self._good += 50 if self.failing else 100
        self._bad += 50 if self.failing else 0
        requests = Family(
            catalog.REQUESTS,
            [
                (series(catalog.REQUESTS, "/gen", "success", "warm"), self._good),
                (series(catalog.REQUESTS, "/gen", "error", "warm"), self._bad),
            ],
        )
        step_age = gauge(catalog.STEP_AGE_SECONDS, 0.5, "main")
        return [
            requests,
            step_age,
            gauge(catalog.REQUESTS_IN_PROGRESS, 1, "/gen"),
            gauge(catalog.BUILD_INFO, 1, "1"),
        ]


@pytest.fixture
def service() -> Iterator[tuple[Service, str]]:
    """Return a service, and host and port where it is scraped."""
    running = Service()
    seconds = Histogram(catalog.SCRAPE_SECONDS)
    server = Server({"/metrics": metrics_handler(running.families, seconds)})
    port = server.listen_tcp("127.0.0.1", 0)
    server.start()
    yield running, f"127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def rules(tmp_path: Path, webhook: Webhook) -> Path:
    site = slo.Site(webhook=webhook.url)
    slos = replace(slo.load(), site=site)
    options = alerts.RuleOptions(scale=SCALE)
    for name, text in alerts.render(slos, options).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_failing_service_pages_and_recovers(service, webhook, rules, prometheus):
    """Nothing fires while it is healthy; errors send a page, which ends after them."""
    failing, address = service
    with Alertmanager(rules, rules / "alertmanager.yaml") as alertmanager:
        server = prometheus(
            {"web": [address]},
            config={
                "rule_files": [f"{rules}/recording.yaml", f"{rules}/alerts.yaml"],
                "alerting": {
                    "alertmanagers": [
                        {"static_configs": [{"targets": [alertmanager.address]}]}
                    ]
                },
            },
        )
        # Long enough for the slowest wait, which is that of tickets.
        server.until_query("slo:sli_error:ratio_rate6h == 0")
        until(lambda: scrapes(server) >= 20, "20 scrapes")
        assert server.query('ALERTS{alertstate="firing",severity!="info"}') == []
        assert webhook.alerts() == []
        assert unhealthy(server) == []

        failing.failing = True
        path, page = webhook.until_alert(BURN)
        firing = 'alertstate="firing",severity!="info"'
        others = f'ALERTS{{{firing},alertname!="{BURN}"}}'
        assert server.query(others) == []
        assert {where for where, _ in webhook.alerts()} == {"/page"}
        failing.failing = False
        webhook.until_alert(BURN, "resolved")

    labels = page["labels"]
    assert path == "/page"
    assert (labels["job"], labels["route"]) == ("web", "/gen")
    assert (labels["severity"], labels["slo"]) == ("page", "request-error")
    assert "of events in the shortest of the last" in page["annotations"]["summary"]
    assert "'Requests succeed'" in page["annotations"]["description"]
    name = page["annotations"]["runbook"].rpartition(" ")[2] + ".md"
    assert (runbook.DIRECTORY / name).is_file()
    # What was burnt may be a ticket, once no page mutes it.
    assert {alert["labels"]["alertname"] for _, alert in webhook.alerts()} == {BURN}


def unhealthy(server: Prometheus) -> list[dict[str, Any]]:
    """Return the rules that Prometheus could not evaluate, with its reason."""
    answer = json.loads(http_get(f"{server.url}/api/v1/rules"))
    rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]
    assert len(rules) > 100
    return [rule for rule in rules if rule["health"] != "ok"]


def scrapes(server: Prometheus) -> float:
    """Return how often the service was scraped within the last minute."""
    return sum(value for _, value in server.query("count_over_time(up[1m])"))
