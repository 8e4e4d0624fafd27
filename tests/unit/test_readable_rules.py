"""Rules are short, what they record is explained, and alerts can be."""

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from statistics import median
from threading import Thread

import pytest
import yaml
from click.testing import CliRunner

from jaxmon import catalog
from jaxmon.cli.main import main
from jaxmon.limits import LIMITS
from jaxmon.promql import counter, gauge, records
from jaxmon.promql.expressions import Identity
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.rules import RuleOptions
from jaxmon_alerts.rules.build import all_groups


LONGEST_ALERT, MEDIAN_ALERT, LONGEST_RECORD = 250, 120, 400
FORMS = {
    "prometheus": ("recording.yaml", "alerts.yaml"),
    "prometheusrule": ("prometheusrule.yaml",),
    "mimir": ("mimir.yaml",),
}


def explain(*arguments):
    """Run `jaxmon alerts explain` in this process."""
    return CliRunner().invoke(main, ["alerts", "explain", *map(str, arguments)])


def test_rules_are_short():
    """A person on call can read what an alert compares, and what that is made of."""
    groups = [group.document() for group in all_groups(slo.load(), RuleOptions())]
    rules = [rule for group in groups for rule in group["rules"]]
    long = {
        rule.get("alert") or rule["record"]: len(rule["expr"])
        for rule in rules
        if len(rule["expr"]) > (LONGEST_ALERT if "alert" in rule else LONGEST_RECORD)
    }

    assert long == {}
    assert median(len(it["expr"]) for it in rules if "alert" in it) <= MEDIAN_ALERT


@pytest.mark.parametrize("form", FORMS)
def test_every_recorded_series_has_a_sentence(form):
    """The comment above a rule that records says what the series is."""
    files = alerts.render(form=form)
    for lines in (files[name].splitlines() for name in FORMS[form]):
        for above, line in pairwise(lines):
            if line.lstrip().startswith("- record: "):
                indent = line[: len(line) - len(line.lstrip())]
                assert above.startswith(f"{indent}# "), line
                assert above.endswith("."), above


def test_what_is_recorded_is_recorded_once_before_it_is_read(tmp_path):
    """No two rules record one name with the same labels, whatever a site changes."""
    path = tmp_path / "slo.yaml"
    several = yaml.load(slo.default(), Loader=yaml.CSafeLoader)
    values = {
        name: "7m" if limit.form == "duration" else 0.37 if limit.form == "ratio" else 9
        for name, limit in LIMITS.items()
    }
    several["local"] = [{"match": {"job": "a"}, **values}]
    for text in (slo.default(), yaml.safe_dump(several)):
        seen: set[tuple[str, ...]] = set()
        path.write_text(text)
        for group in all_groups(slo.load(path), RuleOptions()):
            for rule in group.rules:
                needed = records([rule["expr"]])
                if group.interval == "30s":
                    assert {name for name in needed if name not in str(seen)} == set()
                if "record" in rule:
                    name = (rule["record"], *rule.get("labels", {}).values())
                    assert name not in seen
                    seen.add(name)


def test_a_name_has_one_meaning():
    """Two expressions that are recorded under one name are an error."""
    one, other = (
        gauge(metric).record("job", catalog.UPTIME_SECONDS, "x", "A sentence.")
        for metric in (catalog.UPTIME_SECONDS, catalog.READY)
    )
    assert set(records([one.or_(one)])) == {"job:jaxmon_uptime_seconds:x"}
    with pytest.raises(ValueError, match="jaxmon_uptime_seconds:x is recorded of two"):
        records([one.or_(other)])


def test_recorded_series_follow_the_site_and_other_names():
    """What is recorded keeps the labels of a site; renamed, it is read as renamed."""
    inner = counter(catalog.REQUESTS).rate("5m").sum("job")
    outer = inner.record("job", catalog.REQUESTS, "rate", "Rate.").max("job") > 1
    [(name, series)] = records([outer]).items()

    assert str(series.expr.at(Identity(("cluster",)))).startswith(
        "sum by (cluster, job)"
    )
    renamed = outer.renamed({name: f"{name}_local1"})
    assert str(renamed) == f"max by (job) ({name}_local1) > 1"
    assert list(records([renamed])) == [f"{name}_local1"]


def test_an_alert_is_explained_with_the_limits_of_the_site(tmp_path):
    """Condition, duration, series with their sentences, and the site's limits."""
    path = tmp_path / "slo.yaml"
    path.write_text(slo.default().replace("hang_after: 5m", "hang_after: 10m"))
    text = explain("JaxmonRequestsHang", "--slo", path).stdout

    series = "route:jaxmon_request_oldest_seconds:unanswered10m"
    assert "JaxmonRequestsHang, page: Requests come in" in text
    assert f"It fires if this holds for 2m:\n  {series} > 600 or " in text
    assert f"\n{series}\n  Age of the oldest request to a route that" in text
    assert "\nhang_after: 10m\n  How long no request of a route may finish" in text


def test_an_alert_that_does_not_exist_is_not_explained():
    """Close names are suggested."""
    result = explain("JaxmonStragler")

    assert result.exit_code == 1
    assert "no alert 'JaxmonStragler'; did you mean JaxmonStraggler" in result.stderr


class Values(BaseHTTPRequestHandler):
    """Returns the same two series of whatever is queried."""

    def do_GET(self):
        """Respond as Prometheus does."""
        found = [
            {"metric": {"__name__": "x", "job": job}, "value": [0, value]}
            for job, value in (("a", "1"), ("b", "12.5"))
        ]
        self.respond({"resultType": "vector", "result": found})

    def respond(self, data):
        """Send *data* as Prometheus does."""
        body = {"status": "success", "data": data}
        text = json.dumps(body).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Log nothing."""


def test_values_of_now_are_those_of_prometheus():
    """Each series is shown with its values, the highest first."""
    with HTTPServer(("127.0.0.1", 0), Values) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        result = explain("JaxmonCompileStuck", "--prometheus", url)
        server.shutdown()
        thread.join()

    metric = "jaxmon_compile_oldest_seconds"
    lines = result.stdout.splitlines()
    at = lines.index(metric)
    assert lines[at + 2 : at + 4] == ["  now 12.5 of job b", "  now 1 of job a"]


class OtherRules(Values):
    """Has an alert that reads what it records, as built with another time scale."""

    def do_GET(self):
        """Respond to queries of what is recorded, and with the rules."""
        loaded = "worker:jaxmon_agent_crashes:in_vain15s"
        rules = [
            {"name": loaded, "query": "x"},
            {"name": "JaxmonCrashLoop", "query": f"{loaded} >= 3"},
        ]
        if self.path.startswith("/api/v1/rules"):
            self.respond({"groups": [{"name": "jaxmon-causes", "rules": rules}]})
        elif "in_vain15s" in self.path:
            self.respond({"result": [{"metric": {"job": "a"}, "value": [0, "4"]}]})
        else:
            self.respond({"result": []})


def test_what_is_loaded_is_explained_if_it_is_another_rule():
    """That has the value; of a series that is not recorded there, none is claimed."""
    with HTTPServer(("127.0.0.1", 0), OtherRules) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        text = explain("JaxmonCrashLoop", "--prometheus", url).stdout
        server.shutdown()
        thread.join()

    series = "worker:jaxmon_agent_crashes:in_vain15m"
    assert f"  {series} is not recorded there: the rules loaded are others" in text
    assert "jaxmon_requests_total\n" in text
    assert "  no value now\n" in text
    loaded = "worker:jaxmon_agent_crashes:in_vain15s >= 3\n  now 4 of job a\n"
    assert f"Loaded there as JaxmonCrashLoop:\n  {loaded}" in text
