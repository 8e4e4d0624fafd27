"""Pushing to Grafanas that answer in ways of their own."""

import pytest

from tests.fakes.grafana_rows import Quirks
from tests.fakes.http import Reply
from tests.helpers.dashboards import CLASSIC, ONCALL


# Grafana differs from release to release.


@CLASSIC
def test_a_message_that_only_the_list_has(make_site):
    """Releases that find no version by its number are asked for the list."""
    site = make_site(
        quirks=Quirks(version_by_number=False, list_hides_first_message=False)
    )
    site.push().ok()
    site.write({**ONCALL, "refresh": "1m"})
    assert site.outcomes()[1]["jaxmon-oncall"] == "updated"


@CLASSIC
def test_a_first_version_whose_message_the_list_hides(make_site):
    """The list calls the first version "Initial save"; by number it has its message."""
    site = make_site(quirks=Quirks(list_hides_first_message=True))
    site.push().ok()
    site.write({**ONCALL, "refresh": "1m"})
    assert site.outcomes()[1]["jaxmon-oncall"] == "updated"


@CLASSIC
def test_no_history_no_update(pushed):
    """If the history cannot be read, edits cannot be detected: refused."""
    pushed.write({**ONCALL, "refresh": "1m"})
    pushed.grafana.fault("/versions", reply=Reply(403, {"message": "no"}), times=9)
    done = pushed.push()
    assert done.code == 3
    assert "may not read the version history" in done.out


@CLASSIC
def test_a_server_that_adds_empty_members(make_site):
    """Members that mean nothing, added while storing, are no edit."""

    def rewrite(body):
        body.setdefault("links", [])
        body["panels"][0].setdefault("targets", None)
        body["schemaVersion"] = 42

    site = make_site(quirks=Quirks(rewrite=rewrite))
    assert site.outcomes()[0] == 0
    assert site.outcomes() == (
        0,
        {"jaxmon-debug": "unchanged", "jaxmon-oncall": "unchanged"},
    )


def test_a_server_that_changes_what_it_stores(make_site):
    """A change that means something is reported, not pushed again and again."""
    site = make_site(quirks=Quirks(rewrite=lambda body: body.update(editable=True)))
    assert site.outcomes()[0] == 0
    assert site.outcomes()[0] == 3


@CLASSIC
def test_saves_that_wait_for_approval(make_site):
    """202 means stored nowhere: neither success nor a reason to try again."""
    site = make_site(quirks=Quirks(gitops=True, min_refresh=60))
    code, outcomes = site.outcomes()
    assert code == 3
    assert outcomes == {"jaxmon-debug": "pending", "jaxmon-oncall": "pending"}
    assert site.grafana.rows == {}


@CLASSIC
@pytest.mark.parametrize("page", [True, False])
@pytest.mark.parametrize("options", [(), ("--force",)])
def test_a_model_that_grafana_does_not_serve(make_site, options, page):
    """Grafana 12 stores dashboards in drafts of v2: those alone are refused."""
    site = make_site(version="12.1.0", quirks=Quirks(stored_version="v2beta1"))
    site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.put({**ONCALL, "refresh": "5s"}, folder="jaxmon", v2=True)
    if page:
        html = Reply(404, "<html>not here</html>", type="text/html")
        site.grafana.fault("GET /apis/", reply=html)
    done = site.push(*options)
    assert done.code == 3
    told = " ".join(done.out.split())
    assert "v2: stored in another model than the classic" in told
    assert "takes Grafana 13 or later" in told
    assert "jaxmon-debug" in site.grafana.rows
    assert site.grafana.body("jaxmon-oncall")["refresh"] == "5s"
