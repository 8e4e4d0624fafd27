"""Sites that are not like ours, made only by ``slo.yaml``."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from jaxmon.cli.alerts import differences
from jaxmon.cli.main import main
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_dashboards.boards import DashboardOptions, all_dashboards
from tests.fakes.http import FaultyServer, Reply
from tests.helpers.processes import ROOT, require_program, some


OBJECTIVES = slo.default()[slo.default().index("slos:") : slo.default().index("# Cond")]

KUBERNETES = f"""
owner: inference
{OBJECTIVES}
site:
  severities: {{page: critical, ticket: warning, info: none}}
  labels: {{team: ml-platform, tier: "1"}}
  runbooks: https://wiki.example.com/runbooks/
  dashboards: https://grafana.example.com
  webhook: https://alerts.example.com/all
  resource:
    name: jaxmon-rules
    namespace: monitoring
    labels: {{release: kube-prometheus-stack}}
  routes:
  - match: {{owner: payments, namespace: prod}}
    webhook: https://alerts.example.com/payments
runs:
- match: {{job: pretrain, cluster: eu}}
  processes: 2
overrides:
  JaxmonGpuThrottled: {{enabled: false}}
  JaxmonRecompileStorm: {{severity: page, for: 5m, labels: {{team: compilers}}}}
"""

SLURM = """
slos:
- name: steps
  title: Training makes steps
  description: Half a step a second.
  objective: 99%
  by: [job, loop]
  indicator: {rate: jaxmon_steps_total, at_least: 0.5}
- name: logins
  title: The portal answers
  description: Most logins work.
  objective: 99.5%
  by: [job, handler]
  indicator:
    bad: portal_requests_total{code=~"5.."}
    total: portal_requests_total
metrics:
- {name: portal_requests_total, kind: counter, labels: [code, handler]}
site:
  service_labels: [partition, account]
  process_labels: [slurm_job]
  severities: {page: sev1, ticket: sev3}
burn:
- {long: 2h, short: 10m, budget: 3%, severity: page, for: 1m}
- {long: 1d, short: 1h, rate: 2, severity: ticket}
local:
- match: {job: pretrain, loop: main}
  stalled_after: 45m
"""

FILES = {path.stem: path for path in sorted((ROOT / "tests/sites").glob("*.yaml"))}
SITES = {"kubernetes": KUBERNETES, "slurm": SLURM}
SITES |= {name: path.read_text() for name, path in FILES.items()}
LABELS = {
    "inference": dict.fromkeys(("region", "namespace", "app", "pod", "node"), "x"),
    "startup": {},
    "training": dict.fromkeys(("partition", "account", "slurm_job"), "x"),
    "kubernetes": {"cluster": "eu", "namespace": "prod", "pod": "web-0"},
    "slurm": {"partition": "gpu", "account": "physics", "slurm_job": "17"},
}


@pytest.fixture(params=some(SITES))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    path = tmp_path / "slo.yaml"
    path.write_text(SITES[request.param])
    return request.param, path


def jaxmon(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["alerts", *map(str, arguments)])


def rules(path: Path) -> list[dict[str, Any]]:
    """Return every rule of the site."""
    return [
        rule
        for text in list(alerts.render(slo.load(path)).values())[:2]
        for group in yaml.load(text, Loader=yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
    ]


def test_prometheus_loads_what_is_built(site, prometheus, tmp_path):
    """
    Promtool, amtool and a real Prometheus accept the rules and routes; the command that
    compares them with the running server finds them there, without further options, and
    finds what is changed afterwards.
    """
    _, path = site
    require_program("promtool")
    out = tmp_path / "built"
    built = jaxmon("build", "--slo", path, "--out", out)
    assert built.exit_code == 0, built.output
    files = [str(out / name) for name in ("recording.yaml", "alerts.yaml")]

    server = prometheus({}, config={"rule_files": files})
    same = jaxmon("check", path, "--against", server.url)
    assert same.exit_code == 0, same.output

    scaled = jaxmon("check", path, "--against", server.url, "--time-scale", "30")
    assert "the rules loaded have longer intervals: omit --time-scale" in scaled.output
    assert "1 problem(s) found" in scaled.output

    text = path.read_text()
    other = re.sub(r"objective: 99\.[59]%", "objective: 99.4%", text)
    assert text != other
    path.write_text(other)
    changed = jaxmon("check", path, "--against", server.url)
    assert changed.exit_code == 1
    assert "slo:objective:ratio" in changed.output
    assert "query is" in changed.output


def test_every_dashboard_query_is_answered(site, prometheus):
    """A real Prometheus takes every query of today's boards, with the site's labels."""
    name, path = site
    labels = LABELS[name]
    services = slo.load(path).site.service_labels
    boards = all_dashboards(DashboardOptions(slo=path))
    queries = {
        str(target.expr)
        for board in boards
        for panel in board.panels
        for target in panel.targets
    }
    server = prometheus({})
    for query in queries:
        text = re.sub(r"\$__\w+", "5m", query)
        server.query(re.sub(r"\$\w+", ".*", text))
    selected = [one for one in queries if 'job=~"$job"' in one]
    assert selected
    for query in selected:
        for label in services:
            assert f'{label}=~"${label}"' in query
    assert {one.label for one in boards[0].variables if hasattr(one, "label")} > {
        *services
    }
    assert set(labels) == {*services, *slo.load(path).site.process_labels}


@pytest.mark.parametrize("model", ["classic"], indirect=True)
@pytest.mark.parametrize("name", some(FILES, 3))
def test_a_push_takes_the_boards_of_today_over(name, make_site):
    """Boards that were pushed without `slo.yaml` become the site's, and stay so."""
    grafana = make_site()
    today = grafana.run("push", "--json", files=()).ok()
    options = ("--slo", str(FILES[name]), "--json")
    first = grafana.run("push", *options, files=()).ok()
    again = grafana.run("push", *options, files=()).ok()
    boards = {
        board["uid"]: [board["outcome"]]
        for board in json.loads(today.out)["dashboards"]
    }
    for done in (first, again):
        for board in json.loads(done.out)["dashboards"]:
            boards[board["uid"]].append(board["outcome"])

    assert len(boards) > 5
    for outcomes in boards.values():
        assert outcomes[0] == "created"
        assert outcomes[1] in {"updated", "unchanged"}
        assert outcomes[2] == "unchanged"
    labels = slo.load(FILES[name]).site.service_labels
    oncall = json.dumps(grafana.grafana.body("jaxmon-oncall"))
    assert all(f'{label}=~\\"${label}\\"' in oncall for label in labels)


def test_rules_keep_the_labels_of_the_site(site: tuple[str, Path]) -> None:
    """What a rule keeps of a service or a process includes the site's labels."""
    _, path = site
    own = slo.load(path).site
    for rule in rules(path):
        for kept in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
            found = kept.split(", ")
            if "job" in found:
                assert {*own.service_labels} <= {*found}, rule
            if "instance" in found:
                assert {*own.process_labels} <= {*found}, rule


def test_alerts_of_a_kubernetes_site(tmp_path: Path) -> None:
    """Severities, labels, links, overrides, expected runs and routes are the site's."""
    path = tmp_path / "slo.yaml"
    path.write_text(KUBERNETES)
    built = [rule for rule in rules(path) if "alert" in rule]
    by_name = {rule["alert"]: rule for rule in built}

    assert {rule["labels"]["severity"] for rule in built} == {
        *("critical", "warning", "none")
    }
    assert "JaxmonGpuThrottled" not in by_name
    storm = by_name["JaxmonRecompileStorm"]
    assert (storm["for"], storm["labels"]["severity"]) == ("5m", "critical")
    assert storm["labels"]["team"] == "compilers"
    assert storm["labels"]["tier"] == "1"
    annotations = storm["annotations"]
    assert annotations["runbook_url"] == (
        "https://wiki.example.com/runbooks/JaxmonRecompileStorm.md"
    )
    assert annotations["dashboard_url"].startswith(
        "https://grafana.example.com/d/jaxmon-debug?var-cluster={{ $labels.cluster"
    )
    runs = [one for one in built if one["labels"].get("job") == "pretrain"]
    assert [one["labels"]["cluster"] for one in runs] == ["eu"]
    assert 'jaxmon_runtime_info{job="pretrain",cluster="eu"}' in runs[0]["expr"]

    resource = yaml.load(
        alerts.render(slo.load(path), form="prometheusrule")["prometheusrule.yaml"],
        Loader=yaml.CSafeLoader,
    )
    assert resource["metadata"] == {
        "name": "jaxmon-rules",
        "namespace": "monitoring",
        "labels": {"release": "kube-prometheus-stack"},
    }
    routing = yaml.load(
        alerts.render(slo.load(path))["alertmanager.yaml"], Loader=yaml.CSafeLoader
    )
    [mine] = [
        one for one in routing["receivers"] if one["name"] == "page-payments-prod"
    ]
    assert mine["webhook_configs"][0]["url"] == (
        "https://alerts.example.com/payments/page"
    )


def test_a_mimir_namespace_has_every_group(tmp_path: Path) -> None:
    """The ruler of Mimir gets the groups of the rule files in one namespace."""
    path = tmp_path / "slo.yaml"
    path.write_text(SLURM)
    files = alerts.render(slo.load(path))
    groups = [
        group
        for name in ("recording.yaml", "alerts.yaml")
        for group in yaml.load(files[name], Loader=yaml.CSafeLoader)["groups"]
    ]
    namespace = yaml.load(
        alerts.render(slo.load(path), form="mimir")["mimir.yaml"],
        Loader=yaml.CSafeLoader,
    )

    assert namespace == {"namespace": "jaxmon", "groups": groups}


def test_check_names_a_server_that_is_none(tmp_path: Path) -> None:
    """An address where nothing answers is named in an error."""
    result = jaxmon("check", "--against", "http://127.0.0.1:1")

    assert result.exit_code == 1
    assert "http://127.0.0.1:1 does not respond like a Prometheus" in result.stderr


def test_groups_of_another_release_are_listed() -> None:
    """Of none that is loaded, the interval is known: that is no other --time-scale."""
    loaded = {"name": "jaxmon-old", "interval": 15, "rules": []}
    reply = Reply(200, {"status": "success", "data": {"groups": [loaded]}})
    with FaultyServer(lambda *_: reply) as server:
        wanted = {"name": "jaxmon-new", "interval": "15s", "rules": []}
        found = list(differences(f"http://127.0.0.1:{server.port}", [wanted]))

    assert found == [
        "group jaxmon-old is loaded, but not generated",
        "group jaxmon-new is not loaded",
    ]
