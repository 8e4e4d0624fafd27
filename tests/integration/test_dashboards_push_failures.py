"""
`jaxmon dashboards push` when requests, tokens, addresses or proxies fail.

What holds after every push is checked here, too: see `check_site` in
`tests.helpers.dashboards`.
"""

import random
from typing import Any

import pytest

from tests.fakes.grafana_rows import Quirks
from tests.fakes.http import Reply
from tests.helpers.dashboards import DEBUG, MANY, ONCALL, SAVE
from tests.helpers.processes import some


# Things go wrong.


@pytest.mark.parametrize(
    "fault",
    [
        {"reply": Reply(429, {"message": "slow"}, {"Retry-After": "0"})},
        {"reply": Reply(502, "<html>bad gateway</html>", type="text/html")},
        {"reply": Reply(503, "", type="text/plain")},
        {"reply": Reply(504, {"message": "late"})},
        {"drop": True},
        {"cut": True},
        {"drop": True, "handled": True},
    ],
    ids=["429", "502", "503", "504", "drop", "cut", "lost"],
)
@pytest.mark.parametrize(
    "where",
    ["/api/health", "GET /api/folders", "/api/search", "GET /api/dashboards/uid",
     "POST /api/folders", SAVE],
)  # fmt: skip
@MANY
def test_a_short_failure_is_waited_out(site, where, fault, monkeypatch):
    """One failure of any request, before or after it did its work, costs nothing."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.01)
    if where == "/api/search":
        site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.fault(where, **fault)
    assert site.push().code == 0
    assert site.grafana.faults[0].times == 0
    assert [len(row.versions) for row in site.grafana.rows.values()] == [1, 1]


@pytest.mark.parametrize("cut", [True, False])
def test_a_lost_answer_to_an_update(pushed, cut, monkeypatch):
    """A save that arrived is not made twice; the second attempt meets the lock."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.01)
    pushed.write({**ONCALL, "refresh": "1m"})
    how = {"cut": True} if cut else {"drop": True}
    pushed.grafana.fault(SAVE, handled=True, **how)
    done = pushed.push()
    assert done.code == 0
    assert "already pushed" in done.out
    assert len(pushed.grafana.rows["jaxmon-oncall"].versions) == 2


def test_a_server_that_asks_for_an_hour(site):
    """A wait that is too long is not begun."""
    reply = Reply(429, {"message": "quota"}, {"Retry-After": "3600"})
    site.grafana.fault(SAVE, reply=reply)
    done = site.push()
    assert done.code == 4
    assert "it requested a wait of 3,600 s" in " ".join(done.out.split())
    assert "1 failed, 1 created." in done.out


def test_a_long_wait_is_announced(site, monkeypatch):
    """A wait is announced with its duration."""
    waits: list[float] = []
    monkeypatch.setattr("jaxmon.cli.servers.time.sleep", waits.append)
    reply = Reply(429, {"message": "quota"}, {"Retry-After": "20"})
    site.grafana.fault("health", reply=reply)
    done = site.push().ok()
    assert waits == [20.0]
    assert done.err == "Grafana is busy; retrying in 20 s\n"


def test_one_that_fails_does_not_stop_the_others(site):
    """Grafana's reason is shown and the exit code is 4."""
    site.write({**DEBUG, "refresh": "1s"})
    done = site.push()
    assert done.code == 4
    assert "Dashboard refresh interval is too low" in " ".join(done.out.split())
    assert "1 failed, 1 created." in done.out


def test_all_that_fail(site):
    """Where every dashboard fails, the exit code is 1."""
    site.grafana.fault(SAVE, reply=Reply(500, {"message": "x"}), times=2)
    assert site.push().code == 1


def test_one_that_cannot_be_looked_at(site):
    """A dashboard that Grafana cannot show fails alone."""
    reply = Reply(500, {"message": "dashboard data is invalid"})
    site.grafana.fault("GET /api/dashboards/uid/jaxmon-debug", reply=reply)
    assert site.outcomes() == (
        4,
        {"jaxmon-debug": "failed", "jaxmon-oncall": "created"},
    )


ODD: list[Any] = [None, [], {}, "text", 7, [1], [{}], {"dashboard": {}, "meta": {}},
       {"dashboard": {"version": "x"}, "meta": {"version": None}}, {"version": []},
       {"dashboard": {"version": 1, "tags": 7}, "meta": {"folderUid": 7}},
       {"message": {}, "versions": {"a": 1}}]  # fmt: skip


@pytest.mark.parametrize("odd", some(ODD), ids=range(len(ODD)))
@pytest.mark.parametrize("status", [200, 202, 404, 412, 500])
@MANY
def test_answers_that_make_no_sense(pushed, odd, status):
    """Whatever JSON arrives, a push ends with a message, and replaces nothing odd."""
    pushed.write({**ONCALL, "refresh": "1m"})
    for match in ("versions", "uid/jaxmon-oncall$", "search", "folders", "POST", "api"):
        pushed.grafana.faults.clear()
        pushed.grafana.fault(match, reply=Reply(status, odd), times=3)
        done = pushed.push()
        assert done.code in (0, 1, 3, 4)
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "seed",
    [0, 1, 2, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(3, 10))],
)
def test_any_history(make_site, seed, monkeypatch):
    """Pushes, edits, moves and failures in any order: a push after quiet succeeds."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.0)
    rng = random.Random(seed)  # noqa: S311 - repeatable, nothing to guard
    site = make_site(quirks=Quirks(list_hides_first_message=rng.random() < 0.5))
    grafana = site.grafana

    def edit():
        uid = rng.choice(list(grafana.rows))
        grafana.edit(uid, refresh=f"{rng.randint(5, 60)}s", author="alice")

    def fail():
        where = rng.choice(["^GET", "^POST", "versions", "search", "folders"])
        hows: list[dict[str, Any]] = [
            {"drop": True},
            {"drop": True, "handled": True},
            {"cut": True},
            {"reply": Reply(503, {}), "times": rng.randint(1, 6)},
            {"reply": Reply(500, {})},
            {"before": edit if grafana.rows else list},
        ]
        grafana.fault(where, **rng.choice(hows))

    actions = [
        site.push,
        lambda: site.push("--force"),
        lambda: site.push("--dry-run"),
        lambda: site.write({**ONCALL, "refresh": f"{rng.randint(1, 9)}m"}),
        lambda: site.write({**DEBUG, "time": {"from": f"now-{rng.randint(1, 9)}h"}}),
        fail,
    ]
    with_rows = [
        edit,
        lambda: grafana.restore(rng.choice(list(grafana.rows)), 1),
        lambda: grafana.move(
            rng.choice(list(grafana.rows)), rng.choice(["", "jaxmon"])
        ),
    ]
    for _ in range(15):
        done = rng.choice(actions + (with_rows if grafana.rows else []))()
        assert done is None or done.code in (0, 1, 3, 4, 5)
    grafana.faults.clear()
    assert site.push().code in (0, 3)
