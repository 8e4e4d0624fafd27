"""What ``slo.yaml`` may say about a site, and what is refused."""

import pytest

from jaxmon.errors import SloError
from jaxmon.promql import records
from jaxmon.promql.events import Evaluation
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from tests.unit.test_slo import LATENCY, RATIO, VALID, changed


@pytest.fixture
def load(tmp_path):
    """Return a function that loads text as a file named slo.yaml."""

    def load_text(text):
        path = tmp_path / "slo.yaml"
        path.write_text(text)
        return slo.load(path)

    return load_text


SITE = VALID + "site:\n"
CHANGES = {
    "severity of no name": (
        SITE + "  severities: {pager: x}\n",
        10,
        "unknown key 'pager'; allowed are page, ticket, info",
    ),
    "two severities of one name": (
        SITE + "  severities: {page: high, ticket: high}\n",
        10,
        "two severities have one name",
    ),
    "label that Prometheus sets": (
        SITE + "  labels: {instance: x}\n",
        10,
        "label 'instance' is set by jaxmon or Prometheus; use another",
    ),
    "label that is none": (
        SITE + "  service_labels: [my-cluster]\n",
        10,
        "'my-cluster' is not a label name, such as team",
    ),
    "label of services and processes": (
        SITE + "  service_labels: [pod]\n",
        10,
        "label 'pod' is of services and of processes; choose one",
    ),
    "address without a scheme": (
        SITE + "  webhook: alerts.example.com\n",
        10,
        "'alerts.example.com' is not a URL such as https://alerts.example.com",
    ),
    "route without labels": (
        SITE + "  routes:\n  - {match: {}, webhook: https://a.example.com}\n",
        11,
        "no labels; at least one is required, such as owner",
    ),
    "route of two kinds": (
        SITE
        + "  routes:\n  - {match: {owner: a}, webhook: https://a.b, receivers: []}\n",
        11,
        "give either 'webhook' or 'receivers'",
    ),
    "route by a pattern": (
        SITE + "  routes:\n  - {match: {owner: pay.*}, webhook: https://a.b}\n",
        11,
        "owner 'pay.*' looks like a pattern, but whole values are compared; make an",
    ),
    "receivers of one severity": (
        SITE + "  receivers: {page: []}\n",
        10,
        "key 'ticket' is missing",
    ),
    "receiver of two kinds": (
        SITE + "  receivers: {page: [{slack: {}, email: {}}], ticket: []}\n",
        10,
        "found 2 kinds; each receiver has one of webhook, pagerduty, opsgenie, slack",
    ),
    "receiver without a secret": (
        SITE + "  receivers: {page: [{slack: {channel: a}}], ticket: []}\n",
        10,
        "key 'secret_file' is missing",
    ),
    "user without a password": (
        SITE + "  receivers: {page: [], ticket: [{email: {to: a, from: b, server: c, "
        "user: d}}]}\n",
        10,
        "'user' and 'secret_file', the file with its password, go together",
    ),
    "mute hours without times": (
        SITE + "  mute: [{weekdays: []}]\n",
        10,
        "no times; give weekdays, hours such as 19:00-08:00, or both",
    ),
    "mute hours that are none": (
        SITE + "  mute: [{hours: 8-17}]\n",
        10,
        "'8-17' are no hours such as 19:00-08:00",
    ),
    "mute hours of a minute less than none": (
        SITE + "  mute: [{hours: 08:00-08:00}]\n",
        10,
        "'08:00-08:00' are no hours",
    ),
    "mute hours past midnight of some days": (
        SITE + "  mute: [{hours: 19:00-08:00, weekdays: [friday]}]\n",
        10,
        "hours past midnight are of two weekdays; make two entries of them",
    ),
    "mute hours of a day that is none": (
        SITE + "  mute: [{weekdays: [weekend]}]\n",
        10,
        "found 'weekend'; allowed are monday, tuesday",
    ),
    "mute hours nowhere": (
        SITE + "  mute: [{hours: 19:00-08:00, zone: Europe/Berlyn}]\n",
        10,
        "there is no time zone 'Europe/Berlyn'; give one such as Europe/Berlin",
    ),
    "annotation of ours": (
        SITE + "  annotations: {summary: x}\n",
        10,
        "label 'summary' is set by jaxmon or Prometheus; use another",
    ),
    "local limits by a pattern": (
        VALID + "local:\n- {match: {job: train-*}, recompiles: 3}\n",
        10,
        "job 'train-*' looks like a pattern, but whole values are compared",
    ),
    "local limits by a matcher": (
        VALID + "local:\n- {match: {job: =~train}, recompiles: 3}\n",
        10,
        "job '=~train' looks like a pattern",
    ),
    "exception without a job": (
        VALID + "overrides: {JaxmonTimeLost: {except: [{cluster: eu}]}}\n",
        9,
        "label 'job' is missing",
    ),
    "name that Kubernetes refuses": (
        SITE + "  resource: {name: Jaxmon_Rules}\n",
        10,
        "'Jaxmon_Rules' is not a name of Kubernetes, such as jaxmon",
    ),
    "short window that is longer": (
        VALID + "burn:\n- {long: 5m, short: 1h, rate: 3, severity: page}\n",
        10,
        "the short window, 1h, must be shorter than 5m",
    ),
    "two limits": (
        VALID + "burn:\n- {long: 1h, short: 5m, rate: 3, ratio: 0.5, severity: page}\n",
        10,
        "found the limits rate, ratio; one of budget, rate, ratio is required",
    ),
    "local limits of nothing": (
        VALID + "local:\n- {match: {job: a}}\n",
        10,
        "no limits; at least one is required, such as stalled_after",
    ),
    "local limits without a match": (
        VALID + "local:\n- {recompiles: 3}\n",
        10,
        "key 'match' is missing",
    ),
    "run without a job": (
        VALID + "runs:\n- {match: {cluster: eu}, processes: 3}\n",
        10,
        "label 'job' is missing",
    ),
    "half a process": (
        VALID + "runs:\n- {match: {job: a}, processes: 1.5}\n",
        10,
        "expected a whole number, found 1.5",
    ),
    "metric of ours, declared again": (
        VALID + "metrics:\n- {name: jaxmon_requests_total, kind: counter}\n",
        10,
        "jaxmon_requests_total is declared already; use another metric",
    ),
    "histogram without buckets": (
        VALID + "metrics:\n- {name: x_seconds, kind: histogram}\n",
        10,
        "histograms have the key 'buckets', others do not",
    ),
}


@pytest.mark.parametrize(
    ("text", "line", "problem"), CHANGES.values(), ids=CHANGES.keys()
)
def test_what_a_site_cannot_change_is_refused(text, line, problem, load, tmp_path):
    """File and line, what was found, and what is allowed."""
    with pytest.raises(SloError) as told:
        load(text)

    assert str(told.value).startswith(f"{tmp_path / 'slo.yaml'}:{line}: ")
    assert problem in str(told.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            VALID + "overrides:\n  JaxmonRecompileStrom: {enabled: false}\n",
            "there is no alert 'JaxmonRecompileStrom'; allowed are ",
        ),
        (
            VALID + "overrides:\n  JaxmonGpuXid: {enabled: false}\n",
            "JaxmonGpuXid is no alert any more; see JaxmonGpuFault",
        ),
        (
            VALID + "overrides:\n  JaxmonTimeLost: {except: [{job: a, loop: b}]}\n",
            "except has the label 'loop'; services have job, cluster, namespace",
        ),
        (
            VALID + "local:\n- {match: {job: a, loop: b}, recompiles: 3}\n",
            "no alert that depends on recompiles has the labels job, loop",
        ),
    ],
)
def test_changes_to_alerts_that_do_not_exist(text, problem, load):
    """What names an alert is checked when the alerts are made, with its line."""
    with pytest.raises(SloError, match=r"slo\.yaml:10: ") as told:
        alerts.all_alerts(load(text))

    assert problem in str(told.value)


def test_local_limits_replace_the_usual_ones(load):
    """One rule has both limits: that of the job, and that of the others."""
    slos = load(VALID + "local:\n- {match: {job: a}, stalled_after: 45m}\n")
    [stalled] = [
        one for one in alerts.all_alerts(slos) if one.name == "JaxmonTrainingStalled"
    ]

    text = str(stalled.expr)
    assert " unless on (job) max by (job) (jaxmon_build_info" in text
    assert "2700" in text
    assert "600" in text


def test_a_value_that_looks_like_a_pattern_can_be_one(load):
    """What begins with an equals sign is taken as it stands."""
    slos = load(VALID + "local:\n- {match: {route: '=/a/*'}, hang_after: 9m}\n")

    assert slos.local[0].match == (("route", "/a/*"),)


def test_a_secret_is_not_shown(load):
    """What is no path may be the secret: the error does not repeat it."""
    text = "  receivers: {page: [{pagerduty: {secret_file: s3cret}}], ticket: []}\n"
    with pytest.raises(
        SloError, match=r"slo\.yaml:10: expected the absolute path"
    ) as err:
        load(SITE + text)

    assert "s3cret" not in str(err.value)


def test_a_selector_is_read_as_prometheus_reads_it(load):
    """What Python's regular expressions take, and Prometheus does not, is refused."""
    with pytest.raises(SloError, match=r"slo\.yaml:7: .* is not PromQL: .*regex"):
        load(changed('outcome="error"', 'outcome=~"(?=e).+"'))


def test_an_alert_leaves_excepted_services_out(load):
    """It does not fire for a job that ran within a day; expected runs go whole."""
    text = VALID + (
        "runs:\n- {match: {job: a}, processes: 2}\n- {match: {job: b}, processes: 2}\n"
        "overrides:\n"
        "  JaxmonTrainingDied: {except: [{job: a, cluster: eu}, {job: b}]}\n"
    )
    found = [
        alert
        for alert in alerts.all_alerts(load(text))
        if alert.name == "JaxmonTrainingDied"
    ]

    assert {dict(alert.labels).get("job") for alert in found} == {None, "a"}
    for alert in found:
        left_out = 'last_over_time(jaxmon_build_info{job="b"}[1d])' in str(alert.expr)
        assert left_out == ("job" not in dict(alert.labels))


def test_a_bound_between_two_is_interpolated_on_request(load):
    """Of what lies between two bounds, half is taken for below the limit."""
    [only] = load(changed(RATIO, LATENCY + "      interpolate: true\n"))

    errors = only.errors(Evaluation())
    counted = str(records([errors]))
    assert 'le="0.3"' in counted
    assert 'le="0.5"' in counted
    assert str(errors).count("* 0.5") == 2


def test_a_condition_of_an_alert_is_changed_alone(load):
    """Its other conditions stay, and a page and a ticket of one name remain two."""
    text = VALID + (
        "overrides:\n  JaxmonGpuFault/xid: {severity: page}\n"
        "  JaxmonMonitoringDegraded/spans: {enabled: false}\n"
        "  JaxmonCrashLoop: {severity: ticket}\n"
    )
    found = [
        (one.name, one.severity, one.labels) for one in alerts.all_alerts(load(text))
    ]
    of = {
        name: [
            (severity, dict(labels)) for what, severity, labels in found if what == name
        ]
        for name, *_ in found
    }

    assert [
        (severity, labels["symptom"]) for severity, labels in of["JaxmonGpuFault"]
    ] == [("page", "xid"), ("ticket", "ecc"), ("ticket", "reset")]
    assert "spans" not in str(of["JaxmonMonitoringDegraded"])
    assert of["JaxmonCrashLoop"] == [
        ("ticket", {"crashes": "often"}),
        ("ticket", {"crashes": "in_turn"}),
        ("ticket", {"usually": "page"}),
        ("ticket", {}),
    ]
    assert len(found) == len(set(found))
