"""
`jaxmon dashboards` when Grafana stores or answers what makes no sense.

What holds after every push is checked here, too: see `check_site` in
`tests.helpers.dashboards`.
"""

import json

import pytest

from jaxmon_dashboards.grafana.content import shown
from tests.fakes.http import Reply
from tests.helpers.dashboards import MANY, ONCALL
from tests.helpers.processes import some


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ("[" * 900 + "]" * 900, "nested deeper than 100 levels"),
        ("[" * 100_000, "nested deeper than 100 levels"),
        ("NaN", "NaN is not a number"),
        ("1e999", "a number is too large"),
        ("9" * 5000, "a number has 5000 digits"),
        ('{"a": 1, "a": 2}', "has a duplicate key 'a'"),
    ],
)
@MANY
def test_a_stored_dashboard_that_cannot_be_used(site, inner, reason):
    """It is left alone, with the reason; the others are pushed."""
    body = f'{{"meta": {{}}, "dashboard": {{"version": 1, "panels": {inner}}}}}'
    site.grafana.fault("uid/jaxmon-oncall$", reply=Reply(200, body), times=9)
    done = site.push("--force")
    assert done.code == 4
    assert reason in " ".join(done.out.split())
    assert site.grafana.body("jaxmon-debug")
    diff = site.run("diff")
    assert diff.code == 1
    assert reason in diff.err


def test_a_stored_dashboard_with_half_a_character(site):
    """Its backup is complete, and imports as the same dashboard."""
    site.grafana.put({**ONCALL, "title": "Mine \ud800 \N{GRINNING FACE}"})
    assert site.run("diff").code == 3
    assert site.push("--force").code == 0
    (path,) = site.backups
    assert "\N{GRINNING FACE}" in path.read_text(encoding="utf-8")
    saved = shown(json.loads(path.read_text()))
    assert saved["title"] == "Mine \ud800 \N{GRINNING FACE}"


@pytest.mark.parametrize(
    "value",
    [
        *("-1", "1e9", "nan", "inf", "1000000000", "9" * 400, "0", "+5", "\u0663"),
        *("Fri, 31 Dec 9999 23:59:59 GMT", "soon", ",", "1 2 3 4 5 6 7"),
    ],
)
@MANY
def test_absurd_times_to_wait(site, value, monkeypatch):
    """What cannot be waited for ends the push with a line; the rest is no wait."""
    waits: list[float] = []
    monkeypatch.setattr("jaxmon.cli.servers.time.sleep", waits.append)
    value = value.encode().decode("latin-1")
    reply = Reply(503, {"message": "busy"}, {"Retry-After": value})
    site.grafana.fault("health", reply=reply, times=9)
    done = site.push()
    assert done.code == 1
    assert done.err.rpartition("\n")[0].rpartition("\n")[2].startswith("Error: ")
    assert "is busy: 503" in done.err
    assert len(done.err.splitlines()[-1]) < 200
    assert all(0 < wait <= 30 for wait in waits)


@pytest.mark.parametrize(
    "place", ["http://[", "http://[::1", "//a:b:c", "x" * 5000, "%"]
)
@MANY
def test_absurd_addresses_to_go_to(site, place):
    """They are shown, and not understood."""
    reply = Reply(302, {}, {"Location": place})
    site.grafana.fault("health", reply=reply, times=9)
    done = site.push()
    assert done.code == 1
    assert f"redirects to {place[:100]}" in done.err
    assert len(done.err) < 600


ODD = (None, "x" * 5000, [1], {"a": 1})


@pytest.mark.parametrize(
    "what",
    ["health", "folders", "search", "uid/[^/]*$", "versions", "POST", "PUT", "/apis/"],
)
@pytest.mark.parametrize("status", some([200, 412]))
@MANY
def test_answers_of_another_shape(site, what, status):
    """Whatever Grafana answers in place of what it should, a push ends with a code."""
    backups = ("--backup-dir", str(site.directory / "backups"))
    site.grafana.put({**ONCALL, "refresh": "5s"})
    for value in ODD:
        keys = (
            *("dashboard", "meta", "version", "versions", "message", "status", "uid"),
            *("apiVersion", "metadata", "spec", "details", "namespace"),
        )
        for body in (value, dict.fromkeys(keys, value)):
            site.grafana.faults.clear()
            site.grafana.fault(what, reply=Reply(status, body), times=99)
            for words in (("push", "--force", *backups), ("diff",)):
                assert site.run(*words).code in range(6)
