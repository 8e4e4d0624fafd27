"""`jaxmon deploy` in a real Alertmanager and, at once, in Grafana."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jaxmon.cli.main import main
from jaxmon.host.http.session import Session
from jaxmon.symptoms.alert import DEPLOY_NOISE
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.silences import DeployWindows
from tests.fakes.grafana import FakeGrafana
from tests.fakes.grafana_rows import TOKEN, VIEWER
from tests.fakes.http import Reply
from tests.helpers.processes import free_port, http_get
from tests.helpers.prometheus import Alertmanager


WEB = ("--job=web", "--cluster=eu")
TAGS = ["jaxmon", "deploy", "web", "cluster=eu"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    directory = tmp_path_factory.mktemp("alertmanager")
    config = directory / "alertmanager.yaml"
    silent = replace(slo.load(), site=slo.Site(webhook=""))
    config.write_text(alerts.render(silent)["alertmanager.yaml"])
    with Alertmanager(directory, config) as running:
        yield running


@pytest.fixture
def alertmanager(server: Alertmanager) -> Iterator[Alertmanager]:
    """Return the Alertmanager, without open windows after the test."""
    yield server
    windows = DeployWindows(Session("Alertmanager", server.url), dict(DEPLOY_NOISE))
    for window in windows.open():
        windows.stop(window.scope)


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    """Return a Grafana; every request that it got was a valid one."""
    with FakeGrafana() as running:
        yield running
    assert running.violations == []


def deploy(*words: str, **environ: str | None) -> Result:
    """Run ``jaxmon deploy`` with *words*; the token is never printed."""
    done = CliRunner(env={"GRAFANA_TOKEN": TOKEN, **environ}).invoke(
        main, ["deploy", *words]
    )
    assert TOKEN not in done.output
    return done


def urls(alertmanager: Alertmanager | None, grafana: FakeGrafana | None) -> list[str]:
    """Return the options for both, of which a missing one is down."""
    down = f"http://127.0.0.1:{free_port()}"
    return [
        f"--alertmanager={alertmanager.url if alertmanager else down}",
        f"--grafana={grafana.url if grafana else down}",
    ]


def silences(alertmanager: Alertmanager) -> list[dict[str, Any]]:
    every = json.loads(http_get(f"{alertmanager.url}/api/v2/silences"))
    return [one for one in every if one["status"]["state"] == "active"]


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_a_deployment_is_silenced_and_shown_until_it_ends(alertmanager, grafana):
    """The annotation lasts as long as the window, also when that is extended."""
    both = {"ALERTMANAGER_URL": alertmanager.url, "GRAFANA_URL": grafana.url}
    done = deploy("start", *WEB, "--max=20m", "--reason=release 41", **both)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("noted in Grafana as annotation 1\n")
    (silence,) = silences(alertmanager)
    noted = dict(grafana.annotations[1])
    assert (noted["text"], noted["tags"]) == ("release 41", TAGS)
    for member, moment in (("time", "startsAt"), ("timeEnd", "endsAt")):
        known = datetime.fromisoformat(silence[moment])
        # Alertmanager starts a silence when it gets it.
        assert abs(noted[member] - milliseconds(known)) < 60_000

    assert deploy("start", *WEB, "--max=2h", **both).exit_code == 0
    longer = grafana.annotations[1]["timeEnd"] - noted["timeEnd"]
    assert longer >= timedelta(minutes=99).total_seconds() * 1000
    assert deploy("start", *WEB, "--max=5m", **both).exit_code == 0
    assert grafana.annotations[1]["timeEnd"] - noted["timeEnd"] == longer

    before = milliseconds(datetime.now(UTC))
    done = deploy("stop", *WEB, **both)
    assert done.stdout == (
        "closed for job=web cluster=eu\nannotation 1 in Grafana ends now\n"
    )
    assert before <= grafana.annotations[1]["timeEnd"]
    assert grafana.annotations[1]["timeEnd"] <= milliseconds(datetime.now(UTC))
    assert grafana.annotations[1]["time"] == noted["time"]
    assert list(grafana.annotations) == [1]


def test_stop_ends_only_what_has_the_same_labels(alertmanager, grafana):
    """Another cluster's deployment, and one that is over, stay as they are."""
    both = urls(alertmanager, grafana)
    deploy("start", *WEB, *both)
    deploy("start", "--job=web", "--cluster=us", *both)
    deploy("start", "--job=web", *both)
    before = {number: dict(one) for number, one in grafana.annotations.items()}
    done = deploy("stop", "--job=web", *both)

    assert "annotation 3 in Grafana ends now" in done.stdout
    assert grafana.annotations[1] == before[1]
    assert grafana.annotations[2] == before[2]
    again = deploy("stop", "--job=web", *both)
    assert again.exit_code == 0
    assert again.stderr == (
        "no deploy window is open for job=web\nGrafana shows no deployment of job=web\n"
    )


@pytest.mark.parametrize("command", ["start", "stop"])
def test_grafana_is_down(command, alertmanager, grafana, monkeypatch):
    """The window opens, or closes, all the same; the error says both."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.01)
    deploy("start", *WEB, *urls(alertmanager, grafana))
    done = deploy(command, *WEB, *urls(alertmanager, None))

    assert done.exit_code == 1
    assert len(silences(alertmanager)) == (1 if command == "start" else 0)
    failed, kept = {
        "start": ("Grafana does not show it", "the deploy window is open"),
        "stop": ("Grafana shows the end as planned", "no deploy window is open"),
    }[command]
    assert f"Error: {failed}: no response from http://127.0.0.1:" in done.stderr
    assert done.stderr.endswith(f"\n  but {kept}\n")


def test_alertmanager_is_down(alertmanager, grafana):
    """Grafana shows the deployment, and its end; the error says that alerts are not."""
    before = milliseconds(datetime.now(UTC))
    done = deploy("start", *WEB, "--max=10m", *urls(None, grafana))
    assert done.exit_code == 1
    assert "Error: no deploy window was opened: no response from" in done.stderr
    assert done.stderr.endswith("\n  but Grafana shows the deployment\n")
    planned = grafana.annotations[1]["timeEnd"] - 600_000
    assert before <= planned <= milliseconds(datetime.now(UTC))

    done = deploy("stop", *WEB, *urls(None, grafana))
    assert done.exit_code == 1
    assert "the deploy window may be open until it ends: no response" in done.stderr
    assert done.stderr.endswith("\n  but Grafana shows that it has ended\n")
    assert grafana.annotations[1]["timeEnd"] <= milliseconds(datetime.now(UTC))


def test_both_are_down(monkeypatch):
    """Both reasons are given, and nothing is claimed."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.01)
    done = deploy("start", *WEB, *urls(None, None))

    assert done.exit_code == 1
    assert "no deploy window was opened: no response from Alertm" in done.stderr
    assert "Grafana does not show it: no response from" in done.stderr
    assert "but" not in done.stderr.split()


def test_without_a_token_nothing_happens(alertmanager, grafana):
    """A pipeline that names a Grafana and has no token learns it before it deploys."""
    both = urls(alertmanager, grafana)
    done = deploy("start", *WEB, *both, GRAFANA_TOKEN=None)

    assert done.exit_code == 1
    assert "no token; set GRAFANA_TOKEN or give --grafana-token-file" in done.stderr
    assert silences(alertmanager) == []
    assert grafana.seen == []


def test_a_token_that_may_only_read(alertmanager, grafana, tmp_path):
    """The file's token is used, and the role that it takes is named."""
    file = tmp_path / "token"
    file.write_text(VIEWER)
    words = (*WEB, *urls(alertmanager, grafana), f"--grafana-token-file={file}")
    done = deploy("start", *words)

    assert done.exit_code == 1
    assert "needs the Editor role" in done.stderr
    assert done.stderr.endswith("\n  but the deploy window is open\n")


@pytest.mark.parametrize(
    "odd",
    [
        {},
        None,
        [{"id": 1, "tags": TAGS}],
        [{"id": "x", "tags": TAGS, "timeEnd": 1}],
        [{"id": 1, "tags": TAGS, "timeEnd": 1e300}],
    ],
)
def test_an_answer_that_makes_no_sense(odd, alertmanager, grafana):
    """It is an error about Grafana, and the window is open."""
    grafana.fault("^GET /api/annotations", reply=Reply(200, odd))
    done = deploy("start", *WEB, *urls(alertmanager, grafana))

    assert done.exit_code == 1
    assert "Grafana does not show it: " in done.stderr
    assert len(silences(alertmanager)) == 1
    assert grafana.annotations == {}
