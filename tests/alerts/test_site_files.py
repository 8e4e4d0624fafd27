"""Three made-up sites in `tests/sites`: what is built from their ``slo.yaml``."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from jaxmon.cli import alerts as command
from jaxmon.cli.main import main
from jaxmon.errors import SloError
from jaxmon.settings import RUNBOOKS
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.rules.build import Format
from tests.alerts.cases.monitoring import CASES
from tests.alerts.promtool import run
from tests.alerts.test_alertmanager import alert, amtool
from tests.helpers.manifests import Document, custom, kind_of, validate_alone
from tests.helpers.processes import ROOT, require_program, until
from tests.helpers.prometheus import Alertmanager, Webhook
from tests.unit.test_slo import VALID


SITES = ("inference", "training", "startup")
FILES = {name: ROOT / "tests/sites" / f"{name}.yaml" for name in SITES}
# What kubectl keeps of a resource in an annotation.
LIMIT = 262_144


@cache
def rendered(name: str, form: Format = "prometheus") -> dict[str, str]:
    """Return what is built for a site, by file."""
    return alerts.render(slo.load(FILES[name]), form=form)


@cache
def built(name: str, form: Format) -> dict[str, list[Document]]:
    """Return the documents of these files; do not change them."""
    return {
        file: list(yaml.load_all(text, yaml.CSafeLoader))
        for file, text in rendered(name, form).items()
    }


def groups(name: str) -> list[Document]:
    """Return the groups of both rule files."""
    files = built(name, "prometheus")
    return [
        group
        for file in ("recording.yaml", "alerts.yaml")
        for group in files[file][0]["groups"]
    ]


def check(document: Document) -> None:
    """Hold *document* against the schema of the operator, which there must be."""
    assert custom(kind_of(document))
    validate_alone(document, "1.37")


@pytest.mark.parametrize("name", SITES)
def test_the_tools_accept_rules_and_routes(name):
    """Promtool, every lint on, amtool and promql-parser find nothing."""
    require_program("promtool")
    require_program("amtool")

    assert command.missing_tools() == []
    assert list(command.problems(rendered(name))) == []


ROUTES = [
    ("inference", "page", "severity=critical namespace=prod"),
    ("inference", "ticket", "severity=warning namespace=prod"),
    ("inference", "nobody", "severity=none namespace=prod"),
    ("inference", "page-staging", "severity=critical namespace=staging"),
    ("inference", "watchdog", "severity=none alertname=JaxmonWatchdog"),
    ("training", "page", "severity=sev1 account=physics"),
    ("training", "page-climate", "severity=sev1 account=climate"),
    ("training", "ticket-climate", "severity=sev3 account=climate"),
    ("startup", "page", "severity=page"),
    ("startup", "ticket", "severity=ticket"),
]


@pytest.mark.parametrize(("name", "receiver", "labels"), ROUTES)
def test_routes_lead_to_the_receivers_of_the_site(name, receiver, labels, tmp_path):
    """Amtool finds the way by the site's severities and labels."""
    path = tmp_path / "alertmanager.yaml"
    path.write_text(rendered(name)["alertmanager.yaml"])
    arguments = ("config", "routes", "test", f"--config.file={path}")
    done = amtool(*arguments, f"--verify.receivers={receiver}", *labels.split())

    assert done.returncode == 0, done.stderr


def test_receivers_have_secrets_in_files_only():
    """Each kind has the options of Alertmanager; what is secret is a path."""
    found = {name: built(name, "prometheus")["alertmanager.yaml"][0] for name in SITES}
    [page, ticket] = found["training"]["receivers"][:2]
    [opsgenie] = found["startup"]["receivers"][0]["opsgenie_configs"]

    assert page["email_configs"] == [
        {
            "to": "cluster-oncall@example.com",
            "from": "alertmanager@example.com",
            "smarthost": "mail.example.com:587",
            "auth_username": "alertmanager",
            "auth_password_file": "/etc/alertmanager/mail-password",
            "send_resolved": True,
        }
    ]
    assert page["slack_configs"][0]["api_url_file"] == "/etc/alertmanager/slack-url"
    assert "auth_username" not in ticket["email_configs"][0]
    assert opsgenie == {
        "api_key_file": "/etc/prometheus/secrets/opsgenie",
        "api_url": "https://api.eu.opsgenie.com",
        "responders": [{"type": "team", "name": "everyone"}],
    }


@pytest.mark.parametrize("name", SITES)
def test_links_lead_somewhere(name):
    """Each alert has a runbook's address; a dashboard's only if the site has one."""
    grafana = slo.load(FILES[name]).site.dashboards
    rules = [rule for group in groups(name) for rule in group["rules"]]
    for annotations in (rule["annotations"] for rule in rules if "alert" in rule):
        assert annotations["runbook_url"].startswith("https://")
        board = annotations.get("dashboard_url")
        assert board.startswith(f"{grafana}/d/") if grafana else board is None


def test_own_objectives_have_the_runbook_of_what_has_none():
    """Where the site has no pages, the project's guide on the unknown stands in."""
    rules = [rule for group in groups("training") for rule in group["rules"]]
    found = {rule["alert"]: rule["annotations"] for rule in rules if "alert" in rule}
    own, ours = found["JaxmonLoginsBudgetBurn"], found["JaxmonTrainingDied"]

    assert own["runbook_url"] == f"{RUNBOOKS}unknown.md"
    assert own["runbook"] == "jaxmon runbook show unknown"
    assert ours["runbook_url"] == f"{RUNBOOKS}JaxmonTrainingDied.md"
    assert ours["runbook"] == "jaxmon runbook show JaxmonTrainingDied"


def test_annotations_and_exceptions_are_the_sites():
    """An override replaces an annotation; excepted jobs are left out of the alert."""
    rules = [rule for group in groups("inference") for rule in group["rules"]]
    escalation = {
        rule["alert"]: rule["annotations"]["escalation"]
        for rule in rules
        if "alert" in rule
    }
    slow = [
        rule for rule in rules if rule.get("alert") == "JaxmonWarmLatencyBudgetBurn"
    ]

    assert escalation.pop("JaxmonRecompileStorm").endswith("/compilers")
    assert {text.partition("?")[2] for text in escalation.values()} == {
        "app={{ $labels.app }}"
    }
    for rule in slow:
        assert 'jaxmon_build_info{job="batch"}[1d]' in rule["expr"]
        assert 'jaxmon_build_info{job="chat",region="lab"}[1d]' in rule["expr"]


def test_the_examples_of_the_documents_are_right(tmp_path):
    """What docs/alerting.md shows of slo.yaml is accepted, and amtool takes it."""
    require_program("amtool")
    path, config = tmp_path / "slo.yaml", tmp_path / "alertmanager.yaml"
    text = (ROOT / "docs/alerting.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        path.write_text(VALID + example)
        config.write_text(alerts.render(slo.load(path))["alertmanager.yaml"])
        done = amtool("check-config", config)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("job", ["web", "batch"])
def test_an_excepted_service_has_no_alert(job, tmp_path):
    """Its alert is quiet although its processes are gone; that of others fires."""
    path = tmp_path / "slo.yaml"
    exception = f"overrides: {{JaxmonTargetDown: {{except: [{{job: {job}}}]}}}}\n"
    path.write_text(VALID + exception)
    case = CASES["target down"]
    if job == "web":
        case = replace(case, quiet=(*case.quiet, *case.firing), firing={})

    run(case, tmp_path, slo.load(path))


@pytest.mark.parametrize("name", SITES)
def test_a_prometheusrule_is_one_for_the_operator(name):
    """Its schema holds, kubectl can apply it, and no group is lost."""
    resources = built(name, "prometheusrule")["prometheusrule.yaml"]
    for resource in resources:
        check(resource)
        assert len(json.dumps(resource)) < LIMIT
    names = [resource["metadata"]["name"] for resource in resources]

    assert len(set(names)) == len(names)
    assert [*chain(*(one["spec"]["groups"] for one in resources))] == groups(name)


def test_a_large_prometheusrule_is_split():
    """Many objectives make several resources, each small enough, with all groups."""
    slos = slo.load()
    [first, *_] = slos
    many = tuple(replace(first, name=f"request-error-{n}") for n in range(8))
    slos = replace(slos, slos=(*slos.slos, *many))
    text = alerts.render(slos, form="prometheusrule")["prometheusrule.yaml"]
    parts = list(yaml.load_all(text, yaml.CSafeLoader))
    found = [group for part in parts for group in part["spec"]["groups"]]
    files = alerts.render(slos)
    expected = [
        group
        for name in ("recording.yaml", "alerts.yaml")
        for group in yaml.load(files[name], yaml.CSafeLoader)["groups"]
    ]

    assert len(text) > LIMIT
    assert [part["metadata"]["name"] for part in parts] == [
        "jaxmon",
        *(f"jaxmon-{number}" for number in range(2, len(parts) + 1)),
    ]
    assert max(len(json.dumps(part)) for part in parts) < LIMIT
    assert found == expected


@pytest.mark.parametrize("name", ["inference", "startup"])
def test_an_alertmanagerconfig_has_the_same_routes(name):
    """The schema holds for it and each of its routes; nothing is missing."""
    files = built(name, "alertmanagerconfig")
    [resource] = files["alertmanagerconfig.yaml"]
    plain = built(name, "prometheus")["alertmanager.yaml"][0]
    check(resource)
    spec = resource["spec"]
    # The schema has nothing to say about routes below the first.
    for route in spec["route"]["routes"]:
        check({**resource, "spec": {**spec, "route": route}})

    assert set(files) == {"prometheusrule.yaml", "alertmanagerconfig.yaml"}
    for key, other in (
        ("receivers", "receivers"),
        ("inhibitRules", "inhibit_rules"),
        ("muteTimeIntervals", "time_intervals"),
    ):
        assert len(spec.get(key, ())) == len(plain.get(other, ()))
    routes = zip(spec["route"]["routes"], plain["route"]["routes"], strict=True)
    for ours, theirs in routes:
        assert ours["receiver"] == theirs["receiver"]
        assert [written(one) for one in ours["matchers"]] == theirs["matchers"]
    assert "_file" not in str(resource)


def written(matcher: dict[str, str]) -> str:
    value = matcher["value"].replace("\\", "\\\\").replace('"', '\\"')
    return f'{matcher["name"]}{matcher["matchType"]}"{value}"'


def test_a_secret_is_the_one_that_the_operator_mounts():
    """Name and key are the last parts of the path of its file."""
    [resource] = built("inference", "alertmanagerconfig")["alertmanagerconfig.yaml"]
    [page, *_] = resource["spec"]["receivers"]

    assert page["pagerdutyConfigs"] == [
        {"routingKey": {"name": "jaxmon", "key": "pagerduty"}}
    ]
    assert page["slackConfigs"][0]["apiURL"] == {"name": "jaxmon", "key": "slack"}


def test_what_an_alertmanagerconfig_lacks_is_refused(tmp_path):
    """It has no time zones, and secrets have names of Kubernetes."""
    words = ["alerts", "check", str(FILES["training"]), "--format=alertmanagerconfig"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert re.search(r"training\.yaml:\d+: found zone Europe/Berlin", done.stderr)

    path = tmp_path / "slo.yaml"
    path.write_text(FILES["startup"].read_text().replace("/secrets/", "/My_Secrets/"))
    with pytest.raises(SloError, match=r"'My_Secrets' is no name of a Secret"):
        alerts.render(slo.load(path), form="alertmanagerconfig")


@pytest.mark.parametrize("name", SITES)
def test_mimir_gets_every_group(name):
    """Its ruler gets one namespace with the groups of the rule files."""
    files = built(name, "mimir")

    assert files["mimir.yaml"] == [{"namespace": "jaxmon", "groups": groups(name)}]
    assert files["alertmanager.yaml"] == built(name, "prometheus")["alertmanager.yaml"]


def test_mute_hours_hold_tickets_back(tmp_path: Path, webhook: Webhook) -> None:
    """
    A real Alertmanager sends no ticket in mute hours, but pages, and tickets of a team
    that has no such hours; in Slack, a message has the summary and the runbook.
    """
    secret = tmp_path / "slack"
    secret.write_text(f"{webhook.url}/slack")
    path = tmp_path / "slo.yaml"
    path.write_text(
        f"""{VALID}
site:
  receivers:
    page: [slack: {{secret_file: {secret}, channel: '#page'}}]
    ticket: [webhook: {{url: "{webhook.url}/ticket"}}]
  mute: [hours: 00:00-24:00]
  routes: [{{match: {{owner: loud}}, webhook: "{webhook.url}/loud", mute: []}}]
"""
    )
    config = tmp_path / "alertmanager.yaml"
    options = alerts.RuleOptions(scale=60)
    config.write_text(alerts.render(slo.load(path), options)["alertmanager.yaml"])
    texts = {"summary": "It burns.", "runbook_url": "https://r.example.com/a.md"}
    with Alertmanager(tmp_path, config) as running:
        running.post(alert("Muted", "ticket"))
        until(lambda: running.states() == {"Muted/ticket": "active"}, "the first")
        running.post(alert("Loud", "ticket", owner="loud"))
        start = datetime.now(UTC).isoformat()
        page = {"labels": alert("Page", "page"), "annotations": texts}
        running.send([{**page, "startsAt": start}])
        until(lambda: webhook.notifications("/loud/ticket"), "the other ticket")
        [message] = until(lambda: webhook.notifications("/slack"), "the page")

    [attachment] = message["attachments"]
    assert message["channel"] == "#page"
    assert attachment["text"] == "It burns.\n<https://r.example.com/a.md|Runbook>\n"
    assert webhook.notifications("/ticket") == []
