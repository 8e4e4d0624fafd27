"""
`jaxmon dashboards push` to a Grafana with dashboards of the v2 model, next to classic
ones.

What every push must do in both models is in the other modules. What holds after every
push is checked here, too: see `tests.helpers.dashboards.check_site`.
"""

import json
from collections.abc import Iterator
from functools import cache

import pytest

from jaxmon.cli.dashboards import Generation
from tests.fakes.grafana_models import as_v2, resource
from tests.fakes.grafana_rows import Quirks
from tests.helpers.dashboards import DEBUG, ONCALL, V2, WRITE
from tests.helpers.processes import some


pytestmark = V2
UID = "jaxmon-oncall"


@pytest.fixture(scope="module", autouse=True)
def generated_once() -> Iterator[None]:
    """Generate the dashboards once: of the same options they are the same each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Generation, "rendered", cache(Generation.rendered))
        yield


def put_file(site, document):
    """Make *document* the file for the dashboard on call."""
    path = site.directory / "dashboards" / f"{UID}.json"
    path.write_text(json.dumps(document))


# In which model a dashboard is written.


@pytest.mark.parametrize(
    ("form", "v2"),
    [
        ("auto", False),
        pytest.param("classic", False, marks=pytest.mark.exhaustive),
        ("v2", True),
    ],
)
def test_new_dashboards_get_the_model_that_was_asked_for(site, form, v2):
    """Without a wish that is the classic one, which every Grafana has."""
    site.push("--format", form, files=()).ok()
    assert {row.v2 for row in site.grafana.rows.values()} == {v2}
    again = site.push("--format", form, "--json", files=())
    told = json.loads(again.out)
    assert told["summary"] == {"unchanged": len(site.grafana.rows)}
    assert {one["format"] for one in told["dashboards"]} == {"v2" if v2 else "classic"}


@pytest.mark.exhaustive
def test_auto_follows_what_is_stored(site):
    """A dashboard that Grafana stores as v2 is compared and updated in that model."""
    site.push("--format", "v2", files=()).ok()
    assert site.push(files=()).code == 0
    assert {row.current.number for row in site.grafana.rows.values()} == {1}
    done = site.push("--datasource", "m", "--runbook-base", "https://x/", files=())
    assert done.code == 0
    assert site.grafana.rows[UID].v2
    assert site.grafana.rows[UID].current.number == 2


@pytest.mark.parametrize("options", some([("--force",), ()]))
def test_a_classic_dashboard_never_replaces_one_of_v2(site, options):
    """It would lose what only v2 has: refused, with what to do instead."""
    site.push("--format", "v2", files=()).ok()
    writes = len(site.grafana.requests(WRITE))
    done = site.push("--format", "classic", *options, files=())
    assert done.code == 3
    assert "push it in that model: --format auto or v2" in " ".join(done.out.split())
    put_file(site, ONCALL)
    assert site.push(*options).code == 3
    diff = site.run("diff", "--format", "classic", files=())
    assert (diff.code, diff.out) == (3, "")
    assert len(site.grafana.requests(WRITE)) - writes <= 1
    assert site.grafana.rows[UID].current.v2
    site.write(ONCALL)


def test_a_file_of_v2_replaces_a_classic_push(site):
    """What an earlier release pushed becomes a v2 dashboard, in its next version."""
    put_file(site, ONCALL)
    site.push().ok()
    assert not site.grafana.rows[UID].v2
    site.write({**ONCALL, "refresh": "1m"})
    assert site.outcomes()[1][UID] == "updated"
    row = site.grafana.rows[UID]
    assert (row.v2, row.current.number) == (True, 2)
    assert site.outcomes()[1][UID] == "unchanged"


def test_an_edit_of_a_classic_dashboard_is_kept_from_v2(site):
    """It is refused, and with force backed up as it was."""
    put_file(site, ONCALL)
    site.push().ok()
    site.grafana.edit(UID, refresh="5s")
    site.write(ONCALL)
    assert site.outcomes()[1][UID] == "refused"
    assert site.outcomes("--force")[1][UID] == "updated"
    [backup] = site.backups
    assert json.loads(backup.read_text())["refresh"] == "5s"
    assert site.grafana.rows[UID].v2


def test_an_edit_while_the_model_changes_is_kept(site):
    """The lock is taken before the classic dashboard is read: no edit fits between."""
    put_file(site, ONCALL)
    site.push().ok()
    site.write(ONCALL)
    site.grafana.fault(
        f"GET /api/dashboards/uid/{UID}$",
        before=lambda: site.grafana.edit(UID, refresh="5s"),
    )
    assert site.outcomes("--force")[1][UID] == "refused"
    assert site.grafana.body(UID)["refresh"] == "5s"


# What other Grafanas serve.


@pytest.mark.parametrize(
    ("version", "served"),
    [("10.4.2", "none"), ("11.6.0", "none"), ("12.1.0", "v1beta1, v0alpha1, v2alpha1")],
)
def test_a_grafana_without_v2(make_site, version, served):
    """It is named before anything is written, with what it serves and what it takes."""
    site = make_site(version=version)
    done = site.push()
    assert done.code == 1
    assert f"does not serve dashboard.grafana.app/v2 (it serves {served}" in done.err
    assert "Grafana 13 or later" in done.err
    assert site.grafana.requests(WRITE) == []
    for body in (ONCALL, DEBUG):
        path = site.directory / "dashboards" / f"{body['uid']}.json"
        path.write_text(json.dumps(body))


@pytest.mark.parametrize("namespace", some(["stacks-12345", "org-7"]))
def test_another_organisation(make_site, namespace):
    """Its namespace is asked for."""
    site = make_site(quirks=Quirks(namespace=namespace))
    assert site.outcomes()[0] == 0


def test_an_unknown_member_is_refused(site):
    """Grafana's words are shown: it decodes strictly."""
    document = resource(ONCALL)
    document["spec"]["titel"] = "x"
    put_file(site, document)
    done = site.push()
    assert done.code == 4
    assert 'unknown field "spec.titel"' in " ".join(done.out.split())
    site.write(ONCALL)


def test_members_that_the_server_adds_are_no_edit(site):
    """A file without them is unchanged after a push."""
    document = resource(ONCALL)
    for name in ("preload", "links", "annotations", "variables"):
        del document["spec"][name]
    put_file(site, document)
    assert site.outcomes()[0] == 0
    assert site.grafana.rows[UID].current.data["preload"] is False
    assert site.outcomes()[1][UID] == "unchanged"
    site.write(ONCALL)


# What belongs to others.


def test_labels_and_annotations_of_others_are_kept(pushed):
    """A push replaces the spec; what other tools noted in the metadata stays."""
    notes = pushed.grafana.rows[UID].notes
    notes["example.com/team"] = "sre"
    pushed.write({**ONCALL, "refresh": "1m"})
    assert pushed.outcomes()[1][UID] == "updated"
    assert pushed.grafana.rows[UID].notes["example.com/team"] == "sre"


@pytest.mark.parametrize(("folder", "granted"), [("general", 2), ("jaxmon", 0)])
def test_permissions_outside_of_folders(site, folder, granted):
    """Only there the default ones are asked for; folders have their own."""
    site.options = ("--folder", folder)
    site.push().ok()
    assert len(site.grafana.resources.grants) == granted
    assert "grant" not in json.dumps(site.grafana.rows[UID].notes)


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_a_managed_dashboard_is_left_to_its_manager(make_site, options):
    """The tool that keeps it is named."""
    site = make_site(quirks=Quirks(manager="terraform"))
    site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.put({**ONCALL, "refresh": "5s"}, folder="jaxmon", provisioned=True)
    done = site.push(*options)
    assert done.code == 3
    assert "managed by terraform boards, which allows no edits" in " ".join(
        done.out.split()
    )
    assert site.grafana.rows[UID].current.number == 1


def test_an_edit_that_was_undone_is_an_edit(pushed):
    """The record of a push names its generation; whoever saved since is named."""
    pushed.grafana.edit(UID, refresh="5s")
    pushed.grafana.edit(UID, refresh="30s")
    assert pushed.outcomes()[0] == 0
    pushed.write({**ONCALL, "refresh": "1m"})
    done = pushed.push()
    assert done.code == 3
    assert "version 3 was saved by user alice" in done.out


def test_a_dashboard_deleted_meanwhile_is_made_again(pushed):
    """It is refused once, and made by the next push."""
    pushed.write({**ONCALL, "refresh": "1m"})
    pushed.grafana.fault("^PUT", before=lambda: pushed.grafana.rows.pop(UID))
    assert [pushed.outcomes()[0] for _ in range(2)] == [3, 0]
    new = as_v2({**ONCALL, "refresh": "1m"})
    assert pushed.grafana.rows[UID].current.data == new


def test_a_folder_deleted_meanwhile_is_named(pushed):
    """That is no race for the dashboard: failed, with Grafana's words."""
    pushed.write({**ONCALL, "refresh": "1m"})
    pushed.grafana.fault("^PUT", before=pushed.grafana.folders.clear)
    done = pushed.push()
    assert done.code == 4
    assert 'folders.folder.grafana.app "jaxmon" not found' in " ".join(done.out.split())


@pytest.mark.parametrize(
    "where", ["GET /apis/[^/]+$", "settings", "GET /apis/.*/dashboards/", "^POST /apis"]
)
@pytest.mark.parametrize("how", [{"drop": True}, {"cut": True, "handled": True}])
def test_a_short_failure_of_the_new_api_is_waited_out(site, where, how, monkeypatch):
    """One failure of any request costs nothing, here either."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.01)
    site.grafana.fault(where, **how)
    assert site.push().code == 0
    assert site.grafana.faults[0].times == 0
    assert [len(row.versions) for row in site.grafana.rows.values()] == [1, 1]
