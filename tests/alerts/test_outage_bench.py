"""The bench of outages: its worlds are true to the catalogue, and each is noticed."""

import re
from collections import Counter

import pytest

from tests.alerts.outages import exam
from tests.alerts.outages.evaluation import Condition, Firing, evaluated_at
from tests.alerts.outages.exam import OUTAGES, answers, together
from tests.alerts.outages.notifications import Alertmanager
from tests.alerts.outages.replay import replay
from tests.helpers.processes import ROOT


TARGET = {"cluster", "namespace", "job", "pod", "instance"}
# What the golden page of the sidecar lacks: it comes from the container, from what
# happens to a job or a GPU, from Prometheus, or from another exporter.
BESIDE = re.compile(
    r"jaxmon_container_|jaxmon_call_age_|jaxmon_agent_(ended|finished)_|http_request_|up$"
    r"|process_resident_|jaxmon_device_memory_bytes|jaxmon_device_info"
)
# Small ones of each kind, and the alerts that they are about. What loses a GPU, fails
# requests at a low rate or saves nothing has cases and trials of its own.
QUICK = ("all-hang", "saves-fail", "loss-is-nan", "agent-silent", "driver-hangs")
QUICK_ALERTS = (
    "JaxmonRequestsHang|JaxmonCheckpoint.*|JaxmonNonFinite|JaxmonTrainingStalled"
    "|JaxmonAgentSilent|JaxmonMonitoringDegraded|JaxmonServiceVanished|JaxmonTargetDown"
)
PARTS = together(OUTAGES)


def test_outages_that_are_noticed():
    """These make the right page or ticket in time, and their twins none."""
    asked = [outage for outage in OUTAGES if outage.key in QUICK]
    assert len(asked) == len(QUICK)

    found = {
        f"{answer.outage.key} {answer.broken}": answer.faults()
        for answer in answers(asked, QUICK_ALERTS)
    }
    assert found == {f"{key} {broken}": [] for key in QUICK for broken in (True, False)}


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(len(PARTS)))
def test_the_exam(number):
    """Every outage is noticed, and every twin quiet."""
    found = {
        f"{answer.outage.key} {answer.broken}": answer.faults()
        for answer in answers(PARTS[number])
    }
    assert {key: faults for key, faults in found.items() if faults} == {}


def test_worlds_have_the_series_of_a_sidecar():
    """Each series has the name and labels that the sidecar's own page has."""
    golden = (ROOT / "tests/goldens/metrics-sidecar.txt").read_text()
    shapes = {
        (name, frozenset(filter(None, labels.split(","))))
        for name, labels in re.findall(r"(?m)^(\w+)\{([\w,]*)\}", golden)
    }
    unknown = {
        (name, labels)
        for outage in OUTAGES
        if not outage.slow
        for broken in (True, False)
        for series in outage.world(broken=broken).series()
        for name, labels in (_shape(series),)
        if not BESIDE.match(name) and (name, labels) not in shapes
    }
    assert unknown == set()


def _shape(series):
    name, _, labels = series.partition("{")
    names = frozenset(re.findall(r'(\w+)="', labels)) - TARGET
    if "le" in names or "seconds_" in name:
        name = re.sub(r"_(bucket|count|sum)$", "", name)
    if name == "jaxmon_agent_died":
        # Empty, so absent, if the process runs no loop.
        names |= {"loop"}
    return name, names - {"le"}


def test_worlds_last_as_long_as_they_say():
    """No target lives longer than its world, and each outage begins in its own."""
    assert len({outage.key for outage in OUTAGES}) == len(OUTAGES)
    for outage in OUTAGES:
        for broken in (True, False):
            world = outage.world(broken=broken)
            ticks = [target.at for target in world.targets]
            assert max(ticks, default=0) <= outage.minutes * 2, world.cluster
        assert outage.start < outage.minutes


@pytest.mark.parametrize(
    ("condition", "held", "expected"),
    [
        # Evaluated every four minutes, for five: after eight.
        (Condition(240, 300, 0), range(0, 1201, 30), [(480, 1200)]),
        # It holds from minute 5 on, and is seen at minute 8.
        (Condition(240, 0, 0), range(300, 1201, 30), [(480, 1200)]),
        # Not long enough.
        (Condition(30, 60, 0), range(300, 331, 30), []),
        # It goes on for a minute after it held.
        (Condition(30, 0, 60), range(300, 331, 30), [(300, 390)]),
        (Condition(30, 0, 0), range(300, 331, 30), [(300, 360)]),
    ],
)
def test_waiting(condition, held, expected):
    """An alert fires when its condition holds at evaluations that are far enough."""
    found = condition.firings(frozenset(), set(held), 1200)

    assert [(one.start, one.end) for one in found] == expected


def test_counting_rules_are_moved_to_another_interval():
    """What a rule counts since its evaluation before, it counts since another one."""
    rule = "last_over_time(a[1m] offset 15s) - (a offset 75s or b[5m] offset 75s)"

    assert evaluated_at(30, rule, "1m") == (
        "last_over_time(a[30s] offset 15s) - (a offset 45s or b[5m] offset 45s)"
    )
    assert evaluated_at(30, rule, "30s") == rule
    assert evaluated_at(30, "a / a offset 1d", "2m") == "a / a offset 1d"


def _firing(start, end, alertname, severity="page", cluster="a", **labels):
    found = {"alertname": alertname, "severity": severity, "cluster": cluster, **labels}
    return Firing(frozenset({"job": "web", **found}.items()), start, end)


SLO = {"slo": "request-error", "route": "/a"}
FIRINGS = [
    # A second alert of a group, and a third; one is resolved.
    _firing(0, 900, "JaxmonBurn", long="1h", **SLO),
    _firing(120, 600, "JaxmonBurn", long="6h", **SLO),
    _firing(420, 900, "JaxmonBurn", long="30m", **SLO),
    # Muted by the page.
    _firing(30, 900, "JaxmonBurn", "ticket", long="3d", **SLO),
    # Muted from the middle on, after it was sent.
    _firing(0, 900, "JaxmonSlow", "ticket", "b", **SLO),
    _firing(240, 900, "JaxmonBurn", cluster="b", **SLO),
    # Resolved before it is sent, and one that comes back after it was.
    _firing(0, 60, "JaxmonLost", "ticket", "c"),
    _firing(0, 150, "JaxmonLost", cluster="d"),
    _firing(480, 900, "JaxmonLost", cluster="d"),
    # Functions make groups of their own, processes do not.
    _firing(0, 900, "JaxmonStorm", "ticket", "e", function="f"),
    _firing(0, 900, "JaxmonStorm", "ticket", "e", function="g"),
    _firing(0, 900, "JaxmonDied", cluster="f", pod="p"),
    _firing(0, 900, "JaxmonDied", cluster="f", pod="q"),
    _firing(0, 900, "JaxmonDeployInProgress", "info", "g"),
]


@pytest.mark.exhaustive
def test_the_model_notifies_as_alertmanager_does(tmp_path):
    """Grouping, waiting, inhibition and resolution: as many notifications as really."""
    config = exam.configuration(exam.site(()))
    modelled = Counter(
        (dict(labels)["cluster"], one.receiver)
        for one in Alertmanager(config).notifications(FIRINGS)
        for labels in list(one.firing)[:1]
        if one.receiver in {"page", "ticket"}
    )

    assert modelled == replay(FIRINGS, tmp_path, 900)
    assert modelled["a", "page"] == 3
