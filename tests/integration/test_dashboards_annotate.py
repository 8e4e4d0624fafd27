"""`jaxmon dashboards annotate`: deployments as annotations of Grafana."""

from datetime import UTC, datetime

import pytest

from tests.fakes.http import Reply
from tests.helpers.dashboards import CLASSIC


pytestmark = CLASSIC
RELEASE = ("--job", "web", "--text", "release 41")
NOON = ("--start", "2026-11-24T12:00", "--end", "2026-11-24T12:05+00:00")


def annotate(site, *options, **environ):
    return site.run("annotate", *options, files=(), **environ)


def test_a_deployment_is_noted(site):
    """Text, tags and both times, in milliseconds, are what boards can query."""
    done = annotate(site, *RELEASE, *NOON).ok()
    assert done.out == "1\n"
    assert done.err == (
        "noted at 2026-11-24 12:00:00 UTC, with the tags jaxmon, deploy, web\n"
    )
    start = int(datetime(2026, 11, 24, 12, tzinfo=UTC).timestamp() * 1000)
    assert site.grafana.annotations == {
        1: {
            "text": "release 41",
            "tags": ["jaxmon", "deploy", "web"],
            "time": start,
            "timeEnd": start + 5 * 60_000,
        }
    }


def test_a_deployment_starts_now_and_is_ended_later(site):
    """The printed ID ends it: before that it is a moment."""
    before = datetime.now(UTC).timestamp() * 1000
    number = annotate(site, *RELEASE).ok().out.strip()
    noted = site.grafana.annotations[1]
    assert int(before) <= noted["time"] == noted["timeEnd"]
    done = annotate(site, "--id", number, "--end", "2100-01-01").ok()
    assert done.out == ""
    assert "annotation 1 ends at 2100-01-01 00:00:00 UTC" in done.err
    ended = site.grafana.annotations[1]
    assert ended["timeEnd"] == datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000
    assert (ended["time"], ended["text"]) == (noted["time"], "release 41")


def test_for_one_dashboard(pushed):
    """A dashboard that exists; of another one Grafana says that it does not."""
    annotate(pushed, *RELEASE, "--dashboard", "jaxmon-oncall").ok()
    assert pushed.grafana.annotations[1]["dashboardUID"] == "jaxmon-oncall"
    done = annotate(pushed, *RELEASE, "--dashboard", "nothing")
    assert done.code == 1
    assert "404 Dashboard not found; check the ID, or the UID" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--job is missing; give --job and --text, or --id and --end"),
        (("--job", "web"), "--text is missing"),
        (("--job", "web", "--text", " "), "--text is missing"),
        ((*RELEASE, "--start", "2026-11-24", "--end", "2026-11-23"), "before --start"),
        ((*RELEASE, "--start", "yesterday"), "is not a date or time"),
        ((*RELEASE, "--start", "0001-01-01T00:00+14:00"), "give a time from 1970 to"),
        (("--id", "7", "--end", "9999-12-31T23:59-12:00"), "give a time from 1970 to"),
        (("--id", "1"), "--id goes with --end alone"),
        (("--id", "1", "--end", "now", *RELEASE), "--id goes with --end alone"),
        (("--id", "0", "--end", "now"), "--id"),
    ],
)
def test_options_that_do_not_go_together(site, options, message):
    """A usage error says what is missing, and nothing is sent."""
    done = annotate(site, *options)
    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert site.grafana.seen == []


def test_an_annotation_that_is_not_there(site):
    """Grafana's words and what to check."""
    done = annotate(site, "--id", "7", "--end", "now")
    assert done.code == 1
    assert "ending annotation 7: Grafana returned 404 Could not find" in done.err


@pytest.mark.parametrize(
    "fault",
    [
        {"drop": True, "handled": True},
        {"cut": True, "handled": True},
        {"reply": Reply(502, {}), "handled": True},
    ],
    ids=["lost", "cut", "502"],
)
def test_what_may_have_arrived_is_not_sent_again(site, fault):
    """It would be there twice: an error instead."""
    site.grafana.fault("^POST /api/annotations", **fault)
    assert annotate(site, *RELEASE).code == 1
    assert len(site.grafana.annotations) == 1


def test_a_busy_server_is_asked_again(site, monkeypatch):
    """What it refused with 429 was not done."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.01)
    site.grafana.fault("^POST /api/annotations", reply=Reply(429, {"message": "busy"}))
    assert annotate(site, *RELEASE).ok().out == "1\n"


@pytest.mark.parametrize("odd", [[], {}, {"id": "x"}, {"id": None}, 7])
def test_an_answer_that_makes_no_sense(site, odd):
    """Without an ID it has failed."""
    site.grafana.fault("^POST /api/annotations", reply=Reply(200, odd))
    assert annotate(site, *RELEASE).code == 1
