"""Deploy windows in a real Alertmanager, and as Grafana shows them at once."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jaxmon.cli.main import main
from jaxmon.host.http.session import Session
from jaxmon.symptoms.alert import DEPLOY_NOISE
from jaxmon_alerts import rules, slo
from jaxmon_alerts.silences import LONGEST, DeployWindows
from tests.fakes.grafana import FakeGrafana
from tests.fakes.grafana_rows import TOKEN, VIEWER
from tests.fakes.http import Reply
from tests.helpers.processes import free_port, http_get, until
from tests.helpers.prometheus import Alertmanager, Prometheus


NOISE = dict(DEPLOY_NOISE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    directory = tmp_path_factory.mktemp("alertmanager")
    config = directory / "alertmanager.yaml"
    silent = replace(slo.load(), site=slo.Site(webhook=""))
    config.write_text(rules.render(silent)["alertmanager.yaml"])
    with Alertmanager(directory, config) as running:
        yield running


@pytest.fixture
def alertmanager(server: Alertmanager) -> Iterator[Alertmanager]:
    """Return the Alertmanager, without open windows before and after the test."""
    yield server
    windows = DeployWindows(Session("Alertmanager", server.url), NOISE)
    for window in windows.open():
        windows.stop(window.scope)


def deploy(alertmanager: Alertmanager, *words: str) -> Result:
    """Run ``jaxmon deploy`` with *words*."""
    return deploy_noted(*words, ALERTMANAGER_URL=alertmanager.url, GRAFANA_TOKEN=None)


def silences(alertmanager: Alertmanager) -> list[dict[str, Any]]:
    every = json.loads(http_get(f"{alertmanager.url}/api/v2/silences"))
    return [one for one in every if one["status"]["state"] == "active"]


def test_a_window_silences_what_a_deployment_causes(alertmanager):
    """Only labelled alerts of that job and cluster are suppressed, and pages never."""
    done = deploy(alertmanager, "start", "--job=web", "--cluster=eu", "--max=30m")
    noise = {**NOISE, "severity": "ticket"}
    alertmanager.post(
        {"alertname": "Noise", "job": "web", "cluster": "eu", **noise},
        {"alertname": "OtherJob", "job": "api", "cluster": "eu", **noise},
        {"alertname": "OtherCluster", "job": "web", "cluster": "us", **noise},
        {"alertname": "Ticket", "job": "web", "cluster": "eu", "severity": "ticket"},
        {"alertname": "Page", "job": "web", "cluster": "eu", "severity": "page"},
    )

    assert done.exit_code == 0, done.output
    assert done.output.startswith("open for job=web cluster=eu, closes at ")
    until(
        lambda: (
            alertmanager.states()
            == {
                "Noise/ticket": "suppressed",
                "OtherJob/ticket": "active",
                "OtherCluster/ticket": "active",
                "Ticket/ticket": "active",
                "Page/page": "active",
            }
        ),
        "only the noise of the deployment to be suppressed",
    )


def test_a_site_limits_a_window_by_its_own_labels(alertmanager):
    """What a site calls its partition is matched, listed and needed to close it."""
    scope = ("--job=web", "--label=partition=a100", "--label", "site=north")
    done = deploy(alertmanager, "start", *scope)
    noise = {**NOISE, "severity": "ticket", "job": "web", "site": "north"}
    alertmanager.post(
        {"alertname": "Here", "partition": "a100", **noise},
        {"alertname": "There", "partition": "h100", **noise},
    )

    assert done.exit_code == 0, done.output
    expected = {"Here/ticket": "suppressed", "There/ticket": "active"}
    until(
        lambda: expected.items() <= alertmanager.states().items(),
        "only the alert of that partition to be suppressed",
    )
    deploy(alertmanager, "stop", "--job=web")
    listed = deploy(alertmanager, "list").output
    assert listed.startswith("job=web partition=a100 site=north  closes at ")
    closed = deploy(alertmanager, "stop", *scope).output
    assert closed == "closed for job=web partition=a100 site=north\n"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--label=partition", "'partition' is not a label; give NAME=VALUE"),
        ("--label=partition=", "'partition=' is not a label; give NAME=VALUE"),
        ("--label=cluster=eu", "--label cannot give cluster; use --cluster"),
        (
            "--label=deploy=no",
            "--label cannot give deploy; all windows have that label",
        ),
        ("--job=", "--job is empty"),  # a variable of a pipeline that is not set
    ],
)
def test_a_label_that_cannot_be_one_is_rejected(word, message, alertmanager):
    """The error says what to give instead; nothing is silenced."""
    done = deploy(alertmanager, "start", "--job=web", word)

    assert done.exit_code == 2
    assert message in done.stderr
    assert silences(alertmanager) == []


def test_it_says_who_and_why_and_ends_by_itself(alertmanager):
    """The silence has an author, a comment and the end that --max gives."""
    # Alertmanager keeps milliseconds.
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    deploy(
        alertmanager,
        *("start", "--job=web", "--max=90m", "--by=ci", "--reason=release 41"),
    )
    after = datetime.now(UTC)
    (silence,) = silences(alertmanager)
    end = datetime.fromisoformat(silence["endsAt"])

    assert silence["createdBy"] == "ci"
    assert silence["comment"] == "jaxmon deploy: release 41"
    assert before <= end - timedelta(minutes=90) <= after


def test_a_window_is_never_open_for_longer_than_the_limit(alertmanager):
    """A pipeline that starts windows in a loop does not silence its service forever."""
    windows = DeployWindows(Session("Alertmanager", alertmanager.url), NOISE)
    now = datetime.now(UTC)
    windows.start({"job": "web"}, LONGEST, by="ci", comment="one", now=now)
    later = now + timedelta(hours=3)
    window = windows.start({"job": "web"}, LONGEST, by="ci", comment="two", now=later)

    assert window.end - window.start == LONGEST


def test_stop_closes_that_window_only(alertmanager):
    """Windows of another cluster, and silences that people made, stay."""
    deploy(alertmanager, "start", "--job=web", "--cluster=eu")
    deploy(alertmanager, "start", "--job=web", "--cluster=us")
    done = deploy(alertmanager, "stop", "--job=web", "--cluster=eu")
    again = deploy(alertmanager, "stop", "--job=web", "--cluster=eu")
    listed = deploy(alertmanager, "list")

    assert done.output == "closed for job=web cluster=eu\n"
    assert again.exit_code == 0
    assert again.stderr == "no deploy window is open for job=web cluster=eu\n"
    assert listed.output.startswith("job=web cluster=us  closes at ")
    assert len(listed.output.splitlines()) == 1


def test_foreign_silences_are_left_alone(alertmanager):
    """A silence by a person is neither listed, extended nor closed."""
    session = Session("Alertmanager", alertmanager.url)
    now = datetime.now(UTC)
    job = {"name": "job", "value": "web", "isRegex": False, "isEqual": True}
    silence = {
        "matchers": [job],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(minutes=1)).isoformat(),
        "createdBy": "a person",
        "comment": "maintenance",
    }
    made = session.decoded(session.post("/api/v2/silences", silence))["silenceID"]
    opened = deploy(alertmanager, "start", "--job=web")
    assert opened.output.startswith("open for job=web in all clusters, ")
    deploy(alertmanager, "stop", "--job=web")

    assert [one["id"] for one in silences(alertmanager)] == [made]
    assert deploy(alertmanager, "list").stderr == "no deploy window is open\n"
    session.delete(f"/api/v2/silence/{made}")


def test_list_as_json(alertmanager):
    """A program gets the same, with times in full."""
    deploy(alertmanager, "start", "--job=web", "--namespace=prod", "--by=ci")
    (window,) = json.loads(deploy(alertmanager, "list", "--json").output)

    assert window["labels"] == {"job": "web", "namespace": "prod"}
    assert window["by"] == "ci"
    start, end = (datetime.fromisoformat(window[at]) for at in ("start", "end"))
    assert start < end


@pytest.mark.parametrize("length", ["30s", "5h", "soon", "0m", "-1m"])
def test_the_length_has_bounds(length, alertmanager):
    """What is too short, too long or no duration is rejected with what is allowed."""
    done = deploy(alertmanager, "start", "--job=web", f"--max={length}")

    assert done.exit_code == 2
    assert "1m to 4h" in done.stderr or "is not a duration such as" in done.stderr
    assert silences(alertmanager) == []


def test_a_prometheus_is_no_alertmanager(tmp_path: Path):
    """The wrong one of the two servers is recognised."""
    with Prometheus(tmp_path, {}) as prometheus:
        words = ["deploy", "start", "--job=web", "--alertmanager", prometheus.url]
        done = CliRunner().invoke(main, words)

    assert done.exit_code == 1
    assert "is not an Alertmanager" in done.stderr


def test_a_password_is_sent_and_a_wrong_one_reported(tmp_path: Path):
    """A password in the URL works; without it, the error says what to do."""
    bcrypt = pytest.importorskip("bcrypt")
    hashed = bcrypt.hashpw(b"right-password", bcrypt.gensalt(5)).decode()
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users:\n  ci: {hashed}\n")
    config = tmp_path / "alertmanager.yaml"
    silent = replace(slo.load(), site=slo.Site(webhook=""))
    config.write_text(rules.render(silent)["alertmanager.yaml"])
    with Alertmanager(tmp_path, config, web) as running:
        url = running.url.replace("http://", "http://ci:right-password@")
        words = ["deploy", "start", "--job=web", "--alertmanager"]
        right = CliRunner().invoke(main, [*words, url])
        wrong = CliRunner().invoke(main, [*words, url.replace("right", "wrong")])
        bare = CliRunner().invoke(main, [*words, running.url])

    assert right.exit_code == 0, right.output
    for refused in (wrong, bare):
        assert refused.exit_code == 1
        assert "rejected the request (401); give a token" in refused.stderr
        assert "password@" not in refused.output


# --- noted in Grafana -----------------------------------------------------------------

WEB = ("--job=web", "--cluster=eu")
TAGS = ["jaxmon", "deploy", "web", "cluster=eu"]


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    """Return a Grafana; every request that it got was a valid one."""
    with FakeGrafana() as running:
        yield running
    assert running.violations == []


def deploy_noted(*words: str, **environ: str | None) -> Result:
    """Run ``jaxmon deploy`` with *words*; the token is never printed."""
    runner = CliRunner(env={"GRAFANA_TOKEN": TOKEN, **environ})
    done = runner.invoke(main, ["deploy", *words])
    assert TOKEN not in done.output
    return done


def urls(alertmanager: Alertmanager | None, grafana: FakeGrafana | None) -> list[str]:
    """Return the options for both, of which a missing one is down."""
    down = f"http://127.0.0.1:{free_port()}"
    return [
        f"--alertmanager={alertmanager.url if alertmanager else down}",
        f"--grafana={grafana.url if grafana else down}",
    ]


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_a_deployment_is_silenced_and_shown_until_it_ends(alertmanager, grafana):
    """The annotation lasts as long as the window, also when that is extended."""
    both = {"ALERTMANAGER_URL": alertmanager.url, "GRAFANA_URL": grafana.url}
    done = deploy_noted("start", *WEB, "--max=20m", "--reason=release 41", **both)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("noted in Grafana as annotation 1\n")
    (silence,) = silences(alertmanager)
    noted = dict(grafana.annotations[1])
    assert (noted["text"], noted["tags"]) == ("release 41", TAGS)
    for member, moment in (("time", "startsAt"), ("timeEnd", "endsAt")):
        known = datetime.fromisoformat(silence[moment])
        # Alertmanager starts a silence when it gets it.
        assert abs(noted[member] - milliseconds(known)) < 60_000

    assert deploy_noted("start", *WEB, "--max=2h", **both).exit_code == 0
    (extended,) = silences(alertmanager)
    assert extended["startsAt"] == silence["startsAt"]
    assert extended["endsAt"] > silence["endsAt"]
    longer = grafana.annotations[1]["timeEnd"] - noted["timeEnd"]
    assert longer >= timedelta(minutes=99).total_seconds() * 1000
    assert deploy_noted("start", *WEB, "--max=5m", **both).exit_code == 0
    assert grafana.annotations[1]["timeEnd"] - noted["timeEnd"] == longer

    before = milliseconds(datetime.now(UTC))
    done = deploy_noted("stop", *WEB, **both)
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
    deploy_noted("start", *WEB, *both)
    deploy_noted("start", "--job=web", "--cluster=us", *both)
    deploy_noted("start", "--job=web", *both)
    before = {number: dict(one) for number, one in grafana.annotations.items()}
    done = deploy_noted("stop", "--job=web", *both)

    assert "annotation 3 in Grafana ends now" in done.stdout
    assert grafana.annotations[1] == before[1]
    assert grafana.annotations[2] == before[2]
    again = deploy_noted("stop", "--job=web", *both)
    assert again.exit_code == 0
    assert again.stderr == (
        "no deploy window is open for job=web\nGrafana shows no deployment of job=web\n"
    )


@pytest.mark.parametrize("command", ["start", "stop"])
def test_grafana_is_down(command, alertmanager, grafana, monkeypatch):
    """The window opens, or closes, all the same; the error says both."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.01)
    deploy_noted("start", *WEB, *urls(alertmanager, grafana))
    done = deploy_noted(command, *WEB, *urls(alertmanager, None))

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
    done = deploy_noted("start", *WEB, "--max=10m", *urls(None, grafana))
    assert done.exit_code == 1
    assert "Error: no deploy window was opened: no response from" in done.stderr
    assert done.stderr.endswith("\n  but Grafana shows the deployment\n")
    planned = grafana.annotations[1]["timeEnd"] - 600_000
    assert before <= planned <= milliseconds(datetime.now(UTC))

    done = deploy_noted("stop", *WEB, *urls(None, grafana))
    assert done.exit_code == 1
    assert "the deploy window may be open until it ends: no response" in done.stderr
    assert done.stderr.endswith("\n  but Grafana shows that it has ended\n")
    assert grafana.annotations[1]["timeEnd"] <= milliseconds(datetime.now(UTC))


def test_both_are_down(monkeypatch):
    """Both reasons are given, and nothing is claimed."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.01)
    done = deploy_noted("start", *WEB, *urls(None, None))

    assert done.exit_code == 1
    assert "no deploy window was opened: no response from Alertm" in done.stderr
    assert "Grafana does not show it: no response from" in done.stderr
    assert "but" not in done.stderr.split()


def test_without_a_token_nothing_happens(alertmanager, grafana):
    """A pipeline that names a Grafana and has no token learns it before it deploys."""
    words = ("start", *WEB, *urls(alertmanager, grafana))
    done = deploy_noted(*words, GRAFANA_TOKEN=None)

    assert done.exit_code == 1
    assert "no token; set GRAFANA_TOKEN or give --grafana-token-file" in done.stderr
    assert silences(alertmanager) == []
    assert grafana.seen == []


def test_a_token_that_may_only_read(alertmanager, grafana, tmp_path):
    """The file's token is used, and the role that it takes is named."""
    file = tmp_path / "token"
    file.write_text(VIEWER)
    words = ("start", *WEB, *urls(alertmanager, grafana))
    done = deploy_noted(*words, f"--grafana-token-file={file}")

    assert done.exit_code == 1
    assert "needs the Editor role" in done.stderr
    assert done.stderr.endswith("\n  but the deploy window is open\n")


@pytest.mark.parametrize(
    "odd",
    [
        *({}, None),
        [{"id": 1, "tags": TAGS}],
        [{"id": "x", "tags": TAGS, "timeEnd": 1}],
        [{"id": 1, "tags": TAGS, "timeEnd": 1e300}],
    ],
)
def test_an_answer_that_makes_no_sense(odd, alertmanager, grafana):
    """It is an error about Grafana, and the window is open."""
    grafana.fault("^GET /api/annotations", reply=Reply(200, odd))
    done = deploy_noted("start", *WEB, *urls(alertmanager, grafana))

    assert done.exit_code == 1
    assert "Grafana does not show it: " in done.stderr
    assert len(silences(alertmanager)) == 1
    assert grafana.annotations == {}
