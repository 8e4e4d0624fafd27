"""Shipped rules and dashboards on fleets made from a real page."""

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from tests.alerts.promtool import shipped
from tests.helpers.processes import QUICK_COMPILES, require_program, until
from tools.fleet import boards, costs, filled, history, layout, recording, replay, rules
from tools.fleet.faults import Fault
from tools.fleet.remote import Floats
from tools.fleet.series import Fleet
from tools.fleet.server import Server
from tools.fleet.targets import Targets
from tools.fleet.templates import Templates, templates


ROOT = Path(__file__).resolve().parents[2]

# Two jobs of the same name in two clusters, whose hosts have the same addresses.
SMALL = layout.Shape(processes=16, clusters=2, jobs=2, same_addresses=True, churn=False)


@pytest.fixture(scope="module")
def page() -> Templates:
    """Return what real programs and a real sidecar export."""
    require_program("prometheus")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK_COMPILES.items():
            patch.setenv(name, value)
        return templates(recording.record(pages=3))


def write(directory: Path, **changes: object) -> Path:
    """Write the shipped rules to *directory*, with *changes* to each group."""
    groups = [*shipped().recording, *shipped().alerting]
    changed = [{**group, **changes} for group in groups]
    path = directory / "rules.yaml"
    path.write_text(yaml.dump({"groups": changed}, Dumper=yaml.CSafeDumper))
    return path


def test_all_rules_evaluate_on_scraped_clusters(page, tmp_path):
    """
    Each shipped rule evaluates, without series that match twice or are recorded twice,
    on two clusters with jobs and addresses of the same names.
    """
    now = time.time()
    pods = layout.pods(SMALL, now, now + 600)
    fleet = Fleet(page, pods)
    with Targets(fleet, pods) as targets:
        config = targets.config(5.0)
        config["rule_files"] = [str(write(tmp_path, interval="5s"))]
        with Server(tmp_path, config=config) as server:
            until(lambda: _scraped(server) == len(pods), "two scrapes of all targets")
            seen = time.time()
            found = until(lambda: _evaluated(server, seen), "all rules to be evaluated")
    assert {rule["name"]: rule.get("lastError", "") for rule in found} == {
        rule["name"]: "" for rule in found
    }
    assert {rule["health"] for rule in found} == {"ok"}


def test_a_written_fleet_is_what_it_says(page: Templates, tmp_path: Path) -> None:
    """Prometheus has the fleet's series; no counter decreases before a restart."""
    end = time.time() // 30 * 30
    pods = layout.pods(SMALL, end - 1800, end)
    fleet = Fleet(page, pods)
    with Server(tmp_path) as server:
        history.fill(server, fleet, history.moments(end, 1800, 30.0))
        series = server.query('count({__name__=~".+"})', end)
        decreases = {
            name
            for name in costs.known(page)
            if name.endswith(("_total", "_count", "_bucket"))
            and server.query(f"resets({name}[25m]) > 0", end)
        }
        up = server.query("sum by (cluster) (up)", end)
    assert series == [({}, fleet.series(end))]
    assert decreases == set()
    assert up == [({"cluster": "c0"}, 2), ({"cluster": "c1"}, 2)]


def test_a_series_is_the_same_in_each_part_of_a_fleet(page: Templates) -> None:
    """What a process exports does not depend on who else is written."""

    class Kept:
        def __init__(self, pods: Sequence[layout.Pod]) -> None:
            self.values: dict[bytes, bytes] = {}
            Fleet(page, pods).write(self, history.moments(1800, 1800, 30.0))  # type: ignore[arg-type]

        def add(self, labels: bytes, laid: object, values: Floats, _: object) -> None:
            del laid
            assert labels not in self.values
            self.values[labels] = values.tobytes()

    pods = layout.pods(SMALL, 0, 1800)
    whole, last = Kept(pods).values, Kept(pods[-1:]).values
    assert 0 < len(last) < len(whole)
    assert [one for one, values in last.items() if whole[one] != values] == []


@pytest.mark.exhaustive
def test_a_quiet_fleet_fires_nothing_and_errors_page(page, tmp_path):
    """During deployments, only the service with 10 % failures causes an alert."""
    day = time.time() // 86400 * 86400 - 2 * 86400
    shape = layout.Shape(processes=16, clusters=2, jobs=2)
    pods = layout.pods(shape, day, day + 86400)
    deployed = sorted(pod.start for pod in pods if pod.start > day)[:2]
    start = deployed[0] - 4200
    span = (start, deployed[1] + 6600)
    fault = Fault("errors", "c1", "serve-0", deployed[1] + 3600, span[1], 0.1)
    groups = rules.read(write(tmp_path).parent)
    names = set(rules.windows(groups, costs.known(page)))
    with Server(tmp_path, head=replay.HEAD) as server:
        fleet = Fleet(page, pods, [fault])
        found = replay.replay(server, fleet, groups, span, names)
    found = replay.settled(found, start)
    fired = {(one.alert, one.severity) for one in found if one.severity != "info"}
    assert ("JaxmonRequestErrorBudgetBurn", "page") in fired
    assert {alert for alert, _ in fired} == {"JaxmonRequestErrorBudgetBurn"}
    assert min(one.start for one in found if one.severity == "page") > fault.start


@pytest.mark.exhaustive
def test_shards_by_job_fire_what_one_prometheus_fires(page, tmp_path):
    """Two shards of jobs fire the same alerts at the same moments as one Prometheus."""
    start = time.time() // 86400 * 86400 - 2 * 86400
    span = (start, start + 5400)
    pods = layout.pods(SMALL, *span)
    faults = [
        Fault("errors", "c1", "serve-0", start + 1800, span[1], 0.5),
        Fault("hang", "c0", "serve-0", start + 1800, start + 3600),
        Fault("hang", "c1", "train-1", start + 1800, span[1]),
    ]
    groups = rules.read(write(tmp_path).parent)
    names = set(rules.windows(groups, costs.known(page)))

    def fired(where: str, kept: Callable[[layout.Pod], bool]) -> set[replay.Firing]:
        directory = tmp_path / where
        directory.mkdir()
        fleet = Fleet(page, [pod for pod in pods if kept(pod)], faults)
        with Server(directory, head=replay.HEAD) as server:
            return set(replay.replay(server, fleet, groups, span, names))

    whole = fired("whole", lambda _: True)
    some = {("c0", "serve-0"), ("c1", "train-1")}
    first = fired("first", lambda pod: (pod.cluster, pod.job) in some)
    second = fired("second", lambda pod: (pod.cluster, pod.job) not in some)
    assert first | second == whole
    alerts = [{one.alert for one in shard} for shard in (first, second)]
    assert alerts[0] >= {"JaxmonRequestsHang", "JaxmonTrainingStalled"}
    assert "JaxmonRequestErrorBudgetBurn" in alerts[1] - alerts[0]
    assert not first & second


@pytest.mark.exhaustive
def test_dashboards_ask_what_a_fleet_answers(page: Templates, tmp_path: Path) -> None:
    """
    Prometheus answers every query of every panel, variable and annotation as Grafana
    asks it, without error or warning, and with at most 100 series for a panel, also
    while alerts fire.
    """
    plan = costs.Plan(write(tmp_path).parent, SMALL, hours=1.0)
    directories, chosen = [ROOT / "dashboards"], {"job": "train-1"}
    where = tmp_path / "filled"
    data = filled.fill(plan, directories, page, where, chosen)
    assert filled.load(plan, directories, page, where, chosen) == data
    with data.server(where, plan.program) as server:
        # What they cost is of no interest here: each is asked once.
        (result,) = boards.measure(data, directories, server, chosen, rounds=1)
    assert [one for one in result.costs if one.problems] == []
    views = {(one.board, one.chosen) for one in result.costs}
    assert {("jaxmon / On-call", "All"), ("jaxmon / Debug", "job=train-1")} <= views
    most = {one.title: one.series for one in result.costs if one.kind != "variable"}
    assert {title: number for title, number in most.items() if number > 100} == {}
    assert most["Firing alerts"] > 0
    (jobs,) = {one.series for one in result.costs if one.title == "job"}
    assert jobs == 2
    assert "jaxmon / On-call | All" in boards.table([result])


def test_the_page_drops_nothing_that_is_read(page: Templates) -> None:
    """What docs/fleet.md drops by name exists, and no rule or dashboard reads it."""
    text = (ROOT / "docs/fleet.md").read_text()
    dropped = [
        name
        for pattern in re.findall(r"regex: (jaxmon_gpu_.+)", text)
        for name in costs.known(page)
        if re.fullmatch(pattern, name)
    ]
    assert len(dropped) == 3
    readers = [
        *(ROOT / "alerts").glob("*.yaml"),
        *(ROOT / "dashboards").rglob("*.json"),
    ]
    words = {word for path in readers for word in re.findall(r"\w+", path.read_text())}
    assert words.isdisjoint(dropped)


def _scraped(server: Server) -> float:
    """Return how many targets were scraped twice, as rates need."""
    found = server.query("count(sum_over_time(up[10m]) >= 2)", time.time())
    return found[0][1] if found else 0


def _evaluated(server: Server, after: float) -> list[dict[str, str]]:
    """Return all rules once each was evaluated after the moment *after*."""
    found = [rule for group in server.api("rules")["groups"] for rule in group["rules"]]
    moments = (datetime.fromisoformat(rule["lastEvaluation"]) for rule in found)
    return found if all(one.timestamp() > after for one in moments) else []
