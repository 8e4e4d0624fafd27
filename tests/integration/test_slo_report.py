"""The weekly report, from a real Prometheus with a known week in it."""

import json
import random
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jaxmon.cli.main import main
from tests.helpers.processes import ROOT, require_program
from tests.helpers.prometheus import Alertmanager, Prometheus


DAY, STEP = 86400, 120
DAYS = 7
# A week that is over, so that nothing depends on when the test runs.
END = int(datetime(2026, 3, 9, tzinfo=UTC).timestamp())
WEB = {"job": "web", "cluster": "eu"}
API = {"job": "api", "cluster": "eu"}
FAST, SLOW = ({"sloth_service": "jaxmon", "sloth_slo": one} for one in ("ok", "lat"))


@dataclass
class Week:
    """Series to write, and what was put into them."""

    samples: dict[str, list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    errors: dict[tuple[str, str], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    events: dict[tuple[str, str], float] = field(
        default_factory=lambda: defaultdict(float)
    )

    def add(self, name: str, time: int, value: float, **labels: str) -> None:
        """Add a sample."""
        text = ",".join(f'{key}="{one}"' for key, one in sorted(labels.items()))
        self.samples[f"{name}{{{text}}}"].append((time, value))

    def text(self) -> str:
        """Return everything as OpenMetrics; types do not matter here."""
        lines = [
            f"{series} {value} {time}"
            for series, points in sorted(self.samples.items())
            for time, value in points
        ]
        return "\n".join([*lines, "# EOF", ""])


def times() -> range:
    """Return the times of samples, none of them at the boundary of a day."""
    return range(END - DAYS * DAY + STEP // 2, END, STEP)


def evaluated(week: Week) -> None:
    """Add what the rules record: counts by route, and what is left of the budget."""
    chance = random.Random(5)  # noqa: S311 - data, no secret
    # On the third day, most requests to the service fail.
    bad_day = range(END - 5 * DAY, END - 4 * DAY)
    for time in times():
        for service in (WEB, API):
            for route in ("/a", "/b"):
                events = chance.randrange(50, 150)
                often = 0.4 if service is WEB and time in bad_day else 0.0005
                errors = sum(chance.random() < often for _ in range(events))
                labels = {**FAST, **service, "route": route}
                week.add("slo:events:delta", time, events, **labels)
                week.add("slo:errors:delta", time, errors, **labels)
                week.events["ok", service["job"]] += events
                week.errors["ok", service["job"]] += errors
                left = -3.5 if service is WEB and route == "/b" else 0.75
                week.add(
                    "slo:period_error_budget_remaining:ratio", time, left, **labels
                )
        week.add("slo:objective:ratio", time, 0.999, **FAST)
        week.add("slo:objective:ratio", time, 0.95, **SLOW)


def alerted(week: Week) -> None:
    """Add alerts: one that fired twice, one that flapped, one that only others see."""
    for time in times():
        day, seconds = divmod(time - (END - DAYS * DAY), DAY)
        firing = {"alertstate": "firing", **WEB}
        if day == 2 and (seconds < 7200 or 36000 <= seconds < 43200):
            name = "JaxmonOkBudgetBurn"
            week.add("ALERTS", time, 1, alertname=name, severity="page", **firing)
        if day == 4 and seconds < 3600:
            name = "JaxmonRecompileStorm"
            for function in ("f", "g"):
                labels = {"severity": "ticket", "function": function, **firing}
                week.add("ALERTS", time, 1, alertname=name, **labels)
        name = "JaxmonDeployInProgress"
        week.add("ALERTS", time, 1, alertname=name, severity="info", **firing)
        week.add("ALERTS", time, 1, alertname="SomeoneElses", severity="page", **firing)


def spent(week: Week) -> None:
    """Add accelerators: four held for the week, half of them at work; and causes."""
    for number, time in enumerate(times()):
        for gpu in range(4):
            place = {**WEB, "instance": "h:9467"}
            uuid = f"GPU-{gpu}"
            info = {"platform": "gpu", "device": str(gpu), "worker": "0"}
            week.add("jaxmon_device_info", time, 1, uuid=uuid, **info, **place)
            # Read by a DaemonSet, which is another job.
            read = {"job": "gpus", "instance": "n:9467", "cluster": "eu"}
            name = "jaxmon_accelerator_utilization_ratio"
            week.add(name, time, float(gpu % 2), uuid=uuid, **read)
            name = "jaxmon_accelerator_cost_dollars_per_hour"
            week.add(name, time, 2.5, uuid=uuid, **read)
        name = "worker:jaxmon_accelerator_power_watts:sum"
        week.add(name, time, 1200, worker="0", **place)
        wall = number * STEP * 0.25
        labels = {**place, "worker": "0"}
        name = "jaxmon_wall_seconds_total"
        week.add(name, time, wall, state="data_wait", **labels)
        week.add(name, time, wall, state="device", **labels)
        # Compiled when it starts, and again in the middle of the week.
        labels |= {"function": "train.step"}
        for which, spent, often in ((0, 40, 0), (DAYS * DAY // STEP // 2, 50, 5)):
            if number == which:
                name = "worker:jaxmon_compile_seconds:delta"
                week.add(name, time, spent, phase="backend_compile", **labels)
                name = "worker:jaxmon_recompiles:delta"
                week.add(name, time, often, cause="shape", **labels)
                name = "worker:jaxmon_errors:delta"
                week.add(name, time, often, kind="oom", **labels)


@pytest.fixture(scope="module")
def week() -> Week:
    """Return what happened."""
    made = Week()
    evaluated(made)
    alerted(made)
    spent(made)
    return made


@pytest.fixture(scope="module")
def prometheus(
    week: Week, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Return a real Prometheus that has recorded the week."""
    directory = tmp_path_factory.mktemp("prometheus")
    (directory / "week.txt").write_text(week.text())
    promtool = require_program("promtool")
    words = ["tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=744h"]
    subprocess.run(
        [promtool, *words, directory / "week.txt", directory / "data"],
        check=True,
        capture_output=True,
        timeout=240,
    )
    with Prometheus(directory, {}) as running:
        yield running


def report(
    prometheus: Prometheus, *words: str, until: int = END, zone: tzinfo = UTC
) -> Result:
    """Run ``jaxmon slo report`` about the week."""
    moment = datetime.fromtimestamp(until, zone).isoformat()
    common = ["slo", "report", "--prometheus", prometheus.url, "--until", moment]
    return CliRunner().invoke(main, [*common, *words])


@pytest.fixture(scope="module")
def document(prometheus: Prometheus) -> dict[str, Any]:
    """Return the report as JSON."""
    done = report(prometheus, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_attainment_is_exact(document, week):
    """Events and errors of the week are those that were put in, for each service."""
    found = {one["service"]: one for one in document["objectives"]}

    assert document["missing"] == {}
    assert set(found) == {"job=web cluster=eu", "job=api cluster=eu"}
    for service in ("web", "api"):
        one = found[f"job={service} cluster=eu"]
        errors, events = week.errors["ok", service], week.events["ok", service]
        assert (one["errors"], one["events"]) == (errors, events)
        assert one["attainment"] == pytest.approx(1 - errors / events)
        assert one["burn"] == pytest.approx(errors / events / 0.001)
        assert one["met"] is (errors / events <= 0.001)
    assert found["job=web cluster=eu"]["met"] is False
    assert found["job=api cluster=eu"]["met"] is True


def test_the_least_budget_left_counts(document):
    """Of several routes, the one that has spent most is reported."""
    left = {one["service"]: one["budget_remaining"] for one in document["objectives"]}

    assert left == {"job=web cluster=eu": -3.5, "job=api cluster=eu": 0.75}


def test_the_worst_day_is_found(document):
    """Errors by day: most of them on the day when the service failed."""
    (web,) = [one for one in document["objectives"] if "web" in one["service"]]
    days = {float(end): ratio for end, ratio in web["error_ratio_by_day"].items()}

    assert len(days) == DAYS
    assert max(days, key=lambda end: days[end]) == END - 4 * DAY
    assert days[END - 4 * DAY] == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(
    ("hours", "offset", "worst"),
    [
        # Most of the bad day, 2026-03-04 in UTC, is that of this date in each zone.
        (-9.5, 0, "2026-03-04"),
        # Half of the first day that is reported: all of it is bad.
        (-4.5 * 24 + 7 * 24, 0, "2026-03-04, partial"),
        (0, -3, "2026-03-04"),
    ],
)
def test_days_are_those_of_the_calendar(prometheus, hours, offset, worst):
    """A report that ends in the afternoon has two partial days, and says so."""
    until, zone = int(END + hours * 3600), timezone(timedelta(hours=offset))
    done = report(prometheus, until=until, zone=zone)
    found = json.loads(report(prometheus, "--json", until=until, zone=zone).output)
    (web,) = [one for one in found["objectives"] if "web" in one["service"]]
    ends = sorted(map(float, web["error_ratio_by_day"]))

    assert f"| {worst} (" in done.output
    assert f"Days are those of {zone}; the first" in done.output
    # Each is a midnight of the zone, or the end of the report.
    midnights = [one for one in ends if not (one + offset * 3600) % DAY]
    assert ends in (midnights, [*midnights, until])
    assert {b - a for a, b in pairwise(midnights)} <= {DAY}


def test_alerts_have_counts_and_times(document):
    """An alert that fired twice counts twice; its series count once."""
    found = {one["name"]: one for one in document["alerts"]}

    assert set(found) == {"JaxmonOkBudgetBurn", "JaxmonRecompileStorm"}
    assert found["JaxmonOkBudgetBurn"]["count"] == 2
    # Prometheus shows a sample for up to five minutes, unless it is marked as stale.
    assert found["JaxmonOkBudgetBurn"]["seconds"] == pytest.approx(4 * 3600, abs=900)
    assert found["JaxmonRecompileStorm"]["count"] == 1
    assert found["JaxmonRecompileStorm"]["seconds"] == pytest.approx(3600, abs=450)


def test_causes_are_ranked(document):
    """Compiles before the first scrape count; time at the device is not lost."""
    causes = document["causes"]
    service = "job=web cluster=eu"
    (compiles,) = causes["compiles"]
    (lost,) = causes["lost"]
    (recompiles,) = causes["recompiles"]
    (oom,) = causes["oom"]

    assert (compiles["service"], compiles["function"]) == (service, "train.step")
    assert compiles["value"] == pytest.approx(90, rel=0.02)
    assert (lost["state"], lost["value"]) == (
        "data_wait",
        pytest.approx(DAYS * 24 * 0.25, rel=0.01),
    )
    assert (recompiles["cause"], recompiles["value"]) == (
        "shape",
        pytest.approx(5, rel=0.02),
    )
    assert (oom["function"], oom["value"]) == ("train.step", pytest.approx(5, rel=0.02))


def test_cost_counts_what_is_held(document):
    """Accelerator hours, use, energy and the recorded price of the service's GPUs."""
    (cost,) = document["cost"]
    hours = DAYS * 24 * 4

    assert cost["service"] == "job=web cluster=eu"
    assert cost["accelerator_hours"] == pytest.approx(hours, rel=0.01)
    assert cost["busy"] == pytest.approx(0.5, abs=0.01)
    assert cost["kilowatt_hours"] == pytest.approx(DAYS * 24 * 1.2, rel=0.01)
    assert cost["dollars"] == pytest.approx(hours * 2.5, rel=0.01)


def test_a_given_price_replaces_the_recorded_one(prometheus):
    """--price-per-hour applies to every accelerator hour."""
    done = report(prometheus, "--json", "--price-per-hour=10")
    (cost,) = json.loads(done.output)["cost"]

    assert cost["dollars"] == pytest.approx(cost["accelerator_hours"] * 10)


def test_markdown_says_the_same(prometheus):
    """A person reads the summary first, then tables."""
    done = report(prometheus)

    assert done.exit_code == 0, done.output
    assert done.output.startswith("# Objectives, 2026-03-02 to 2026-03-09\n")
    assert "1 of 2 objectives were met; the worst was 'ok' of job=web" in done.output
    assert "2 pages fired." in done.output
    assert "2026-03-04 (" in done.output  # the worst day
    assert "| JaxmonRecompileStorm | ticket | job=web cluster=eu | 1 |" in done.output
    assert "## Not determined" not in done.output
    for line in done.output.splitlines():
        if line.startswith("| "):
            assert line.count("|") in (4, 5, 6, 7, 10), line


def test_objectives_of_a_file_have_their_titles(prometheus, tmp_path):
    """With slo.yaml, its objectives are listed in order, also those without data."""
    text = (ROOT / "alerts" / "slo.yaml").read_text()
    path = tmp_path / "slo.yaml"
    path.write_text(text.replace("name: request-error", "name: ok"))
    done = report(prometheus, f"--slo={path}")

    assert done.exit_code == 0, done.output
    assert "| Requests succeed | job=api cluster=eu |" in done.output
    assert "| Warm requests are fast | no events |" in done.output


def test_a_time_without_data_says_so(prometheus):
    """Nothing recorded is no success: the report names what it lacks."""
    done = report(prometheus, until=END - 40 * DAY)

    assert done.exit_code == 0, done.output
    assert "0 of 0 objectives were met" in done.output
    assert "## Not determined" in done.output
    assert "jaxmon alerts build" in done.output


def test_a_query_that_fails_leaves_out_its_part(prometheus, tmp_path):
    """Prometheus limits queries; the rest of the report is printed all the same."""
    shutil.copytree(
        prometheus.directory / "data",
        tmp_path / "data",
        ignore=shutil.ignore_patterns("lock", "queries.active", "wal", "chunks_head"),
    )
    # Enough for the counts of one route, too few for the samples of four GPUs.
    options = ("--query.max-samples=6000",)
    with Prometheus(tmp_path, {}, options=options) as limited:
        found = json.loads(report(limited, "--json").output)

    assert len(found["objectives"]) == 2
    assert "too many samples" in found["missing"]["Cost"]


def test_an_alertmanager_is_no_prometheus(tmp_path):
    """The wrong one of the two servers is recognised."""
    config = tmp_path / "alertmanager.yaml"
    config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    with Alertmanager(tmp_path, config) as running:
        words = ["slo", "report", "--prometheus", running.url]
        done = CliRunner().invoke(main, words)

    assert done.exit_code == 1
    assert "is not a Prometheus" in done.stderr


@pytest.mark.parametrize(
    "word",
    [
        *("--days=0", "--days=91", "--until=soon", "--until=0001-01-01"),
        *("--until=9999-12-31", "--until=9999-12-31T23:59-12:00"),
    ],
)
def test_nonsense_is_rejected(word, prometheus):
    """Options out of range are usage errors, which say what was found."""
    common = ["slo", "report", "--prometheus", prometheus.url]
    done = CliRunner().invoke(main, [*common, word])

    assert done.exit_code == 2
    assert word.partition("=")[2] in done.stderr
