"""Pushing where others own folders, titles and dashboards."""

import pytest

from tests.fakes.grafana_rows import Quirks
from tests.fakes.http import Reply
from tests.helpers.dashboards import CLASSIC, DEBUG, ONCALL, SAVE, WRITE


def test_a_moved_dashboard_stays_where_it_is(pushed):
    """A move by hand is an edit: refused, and undone only by force."""
    pushed.grafana.folders["team"] = "Team"
    pushed.grafana.move("jaxmon-oncall", "team")
    done = pushed.push()
    assert done.code == 3
    assert "it is in folder team, not in jaxmon" in done.out
    assert pushed.grafana.rows["jaxmon-oncall"].folder == "team"
    pushed.push("--force").ok()
    assert pushed.grafana.rows["jaxmon-oncall"].folder == "jaxmon"


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_a_foreign_dashboard_is_left_alone(site, options):
    """A dashboard without our tag is never replaced, whatever its uid, even forced."""
    site.grafana.put({**ONCALL, "tags": ["theirs"], "title": "Theirs"})
    code, outcomes = site.outcomes(*options)
    assert (code, outcomes["jaxmon-oncall"]) == (3, "refused")
    assert site.grafana.body("jaxmon-oncall")["title"] == "Theirs"


def test_a_foreign_dashboard_is_adopted_by_its_tag(site):
    """Given our tag it counts as edited, so that force replaces it after a backup."""
    site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.put({**ONCALL, "title": "Mine"}, folder="jaxmon")
    assert site.outcomes()[0] == 3
    assert site.outcomes("--force")[0] == 0
    assert site.grafana.body("jaxmon-oncall")["title"] == "On-call"


@pytest.mark.parametrize("titles_unique", [True, False])
def test_a_taken_title_is_refused(make_site, titles_unique):
    """Another dashboard of the folder with our title is not doubled or taken over."""
    site = make_site(quirks=Quirks(titles_unique=titles_unique))
    site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.put({"uid": "other", "title": "On-call"}, folder="jaxmon")
    done = site.push("--force")
    assert done.code == 3
    assert "another dashboard with this title, uid other" in done.out
    assert "jaxmon-oncall" not in site.grafana.rows


def test_a_title_taken_elsewhere_does_not_matter(site):
    """Only the folder that is pushed to is looked at."""
    site.grafana.put({"uid": "other", "title": "On-call"})
    assert site.outcomes()[0] == 0


def test_a_taken_title_is_found_on_a_later_page(site):
    """A folder with more dashboards than fit one answer is read to its end."""
    site.grafana.folders["jaxmon"] = "jaxmon"
    for number in range(501):
        title = f"A{number}" if number else "On-call"
        site.grafana.put({"uid": f"o{number}", "title": title}, folder="jaxmon")
    assert site.outcomes()[1]["jaxmon-oncall"] == "refused"
    assert site.grafana.requests("GET /api/search.*page=2")


@CLASSIC
def test_a_title_that_search_does_not_know_yet(make_site):
    """An old server's refusal of the title is no lost lock: failed, not repeated."""
    site = make_site(quirks=Quirks(titles_unique=True))
    site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.put({"uid": "other", "title": "On-call"}, folder="jaxmon")
    site.grafana.fault("/api/search", reply=Reply(200, []))
    done = site.push()
    assert done.code == 4
    assert (
        "412 A dashboard with the same name in the folder already exists"
        in " ".join(done.out.split())
    )
    assert len(site.grafana.requests(SAVE)) == 2


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_what_another_owner_keeps_is_refused(site, options):
    """Provisioned dashboards are left alone."""
    site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.put({**ONCALL, "refresh": "5s"}, folder="jaxmon", provisioned=True)
    done = site.push(*options)
    assert done.code == 3
    assert "provisioned: provisioned from a file" in done.out
    assert "jaxmon-debug" in site.grafana.rows
    assert site.grafana.body("jaxmon-oncall")["refresh"] == "5s"
    assert not any(b"jaxmon-oncall" in one.body for one in site.grafana.requests(WRITE))


def test_the_top_level_is_a_folder_too(site):
    """`--folder general` puts the dashboards outside of all folders and makes none."""
    site.options = ("--folder", "general")
    assert site.outcomes()[0] == 0
    assert site.grafana.folders == {}
    assert {row.folder for row in site.grafana.rows.values()} == {""}


def test_an_existing_folder_is_taken_as_it_is(site):
    """A folder that is there keeps its title."""
    site.grafana.folders["sre"] = "Reliability"
    site.options = ("--folder", "sre")
    assert site.outcomes("--folder-title", "Other")[0] == 0
    assert site.grafana.folders == {"sre": "Reliability"}


def test_no_folder_is_made_for_nothing(site):
    """Where all is refused, no empty folder is left behind."""
    site.grafana.put({**ONCALL, "tags": []})
    site.grafana.put({**DEBUG, "tags": []})
    assert site.outcomes()[0] == 3
    assert site.grafana.folders == {}


def test_a_folder_title_under_another_uid(site):
    """A server that wants unique titles refuses; the message says what to do."""
    site.grafana.folders["other"] = "jaxmon"
    done = site.push()
    assert done.code == 1
    assert "give its UID with --folder" in done.err
    site.options = ("--folder", "other")
