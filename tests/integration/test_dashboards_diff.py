"""`jaxmon dashboards diff`: what a push would change."""

import re

from tests.fakes.grafana_rows import VIEWER
from tests.fakes.http import Reply
from tests.helpers.dashboards import CLASSIC, DEBUG, ONCALL, WRITE


def test_no_difference(pushed):
    """After a push nothing differs: exit code 0, nothing on standard output."""
    done = pushed.run("diff")
    assert (done.code, done.out) == (0, "")
    assert "jaxmon-oncall: no difference" in done.err


def test_an_edit_is_shown(pushed):
    """Exit code 3; who edited stands on standard error, what on standard output."""
    pushed.grafana.edit("jaxmon-oncall", refresh="5s")
    done = pushed.run("diff")
    assert done.code == 3
    assert [line for line in done.out.splitlines() if line[:2] in ("- ", "+ ")] == {
        "classic": ['-  "refresh": "5s",', '+  "refresh": "30s",'],
        "v2": ['-      "autoRefresh": "5s",', '+      "autoRefresh": "30s",'],
    }[pushed.model]
    assert "\x1b" not in done.out
    assert "jaxmon-oncall: drifted: version 2 was saved by " in done.err
    assert "alice" in done.err


def test_a_new_version_is_shown(pushed):
    """What a push would bring is shown as an update."""
    pushed.write({**ONCALL, "refresh": "1m"})
    done = pushed.run("diff")
    assert done.code == 3
    member = {"classic": "refresh", "v2": "autoRefresh"}[pushed.model]
    assert re.search(rf'^\+ +"{member}": "1m",$', done.out, re.MULTILINE)
    assert "jaxmon-oncall: update\n" in done.err


def test_a_missing_dashboard_is_all_new(site):
    """In an empty Grafana every line is added, and nothing is written."""
    done = site.run("diff")
    assert done.code == 3
    assert "--- jaxmon-debug in Grafana: none" in done.out
    assert re.search('^[+] +"title": "Debug"', done.out, re.MULTILINE)
    assert site.grafana.requests(WRITE) == []


@CLASSIC
def test_the_new_format_is_named(site):
    """What cannot be compared is said, and counts as a difference."""
    site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.put(DEBUG, folder="jaxmon", v2=True)
    done = site.run("diff")
    assert done.code == 3
    assert "jaxmon-debug: v2: stored in another model than the classic" in done.err
    assert "jaxmon-debug" not in done.out


def test_a_reader_may_compare(pushed):
    """A token that may only look is enough where nothing differs."""
    assert pushed.run("diff", GRAFANA_TOKEN=VIEWER).code == 0


def test_a_dashboard_that_cannot_be_read(pushed):
    """An error is not a difference: exit code 1."""
    reply = Reply(500, {"message": "broken"})
    pushed.grafana.fault("GET /api/dashboards/uid/jaxmon-debug", reply=reply)
    done = pushed.run("diff")
    assert done.code == 1
    assert "500 broken" in done.err
