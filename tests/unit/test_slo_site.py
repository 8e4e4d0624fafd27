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
