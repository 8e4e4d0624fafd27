"""
`jaxmon dashboards push` against a strict Grafana that fails in every known way.

Whatever a case does, after it: no edit made by hand is lost, the token is nowhere but
in the Authorization header, and one more push writes nothing
(`tests.helpers.dashboards.check_site`).
"""

import json
import re
import stat

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon_dashboards.grafana.content import content, digest, pushed_digest
from tests.helpers.dashboards import CLASSIC, DEBUG, ONCALL, WRITE


V2_HEAD = '"apiVersion": "dashboard.grafana.app/v2", "kind": "Dashboard"'
NAMED_A = '"metadata": {"name": "a"}'

# What is there, and what has to be done about it.


def test_first_push_makes_folder_and_dashboards(site):
    """An empty Grafana gets the folder and both dashboards, in it, and says where."""
    done = site.push().ok()
    assert site.grafana.folders == {"jaxmon": "jaxmon"}
    assert {row.folder for row in site.grafana.rows.values()} == {"jaxmon"}
    assert f"Grafana {site.grafana.version}" in done.out
    assert "folder jaxmon (new)" in done.out
    assert f"{site.grafana.url}/d/jaxmon-oncall" in done.out
    assert "2 created." in done.out
    assert done.err == ""


def test_the_message_holds_the_hash_of_what_is_stored(pushed):
    """Each saved version can be recognised by its message alone."""
    version = pushed.grafana.rows["jaxmon-oncall"].current
    assert re.match(r"jaxmon push \S+ sha256:[0-9a-f]{64}$", version.message)
    assert pushed_digest(version.message) == digest(version.body)


def test_a_second_push_sends_no_save(pushed):
    """Where nothing has changed, not even a request to write is made."""
    saves = len(pushed.grafana.requests(WRITE))
    assert pushed.outcomes() == (
        0,
        {"jaxmon-debug": "unchanged", "jaxmon-oncall": "unchanged"},
    )
    assert len(pushed.grafana.requests(WRITE)) == saves


def test_new_content_becomes_the_next_version(pushed):
    """A changed file replaces the version that was read; the other stays as it is."""
    pushed.write({**ONCALL, "refresh": "1m"})
    assert pushed.outcomes() == (
        0,
        {"jaxmon-debug": "unchanged", "jaxmon-oncall": "updated"},
    )
    assert pushed.grafana.body("jaxmon-oncall")["refresh"] == "1m"
    assert pushed.grafana.rows["jaxmon-oncall"].current.number == 2


@CLASSIC
def test_a_removed_member_is_removed(pushed):
    """A push replaces; it does not merge."""
    pushed.write({k: v for k, v in ONCALL.items() if k != "fromAFutureRelease"})
    assert pushed.outcomes()[0] == 0
    assert "fromAFutureRelease" not in pushed.grafana.body("jaxmon-oncall")


def test_numbers_that_grafana_assigns_do_not_count(pushed):
    """Another id, version, schema, chosen value or empty member is no difference."""
    chosen = {"name": "datasource", "type": "datasource", "current": {"text": "p"}}
    pushed.write(
        {
            **ONCALL,
            "id": 77,
            "version": 900,
            "schemaVersion": 41,
            "iteration": 5,
            "links": [],
            "description": None,
            "panels": [{**ONCALL["panels"][0], "options": {"x": 1}}],
            "templating": {"list": [chosen]},
        }
    )
    assert pushed.outcomes()[1]["jaxmon-oncall"] == "unchanged"


def test_an_edit_is_refused_and_the_rest_goes_on(pushed):
    """What alice changed stays; who, and what to do, is said; the exit code is 3."""
    pushed.grafana.edit("jaxmon-oncall", title="On-call (alice)")
    pushed.write({**ONCALL, "refresh": "1m"})
    pushed.write({**DEBUG, "refresh": "1m"})
    done = pushed.push()
    assert done.code == 3
    assert re.search(
        r"drifted: version 2 was saved by (user )?alice on 2026-11-20", done.out
    )
    assert "1 updated, 1 refused." in done.out
    assert "jaxmon dashboards diff" in done.err
    assert pushed.grafana.body("jaxmon-oncall")["title"] == "On-call (alice)"
    assert pushed.grafana.body("jaxmon-debug")["refresh"] == "1m"


def test_force_replaces_an_edit_after_a_backup(pushed):
    """The edit is in a file of this user alone, whose path is printed."""
    pushed.grafana.edit("jaxmon-oncall", refresh="5s")
    edited = pushed.grafana.rows["jaxmon-oncall"].current.body
    done = pushed.push("--force").ok()
    [backup] = pushed.backups
    assert re.fullmatch(r"jaxmon-oncall-v2-\d{8}T\d{6}Z\.json", backup.name)
    assert str(backup) in done.out
    saved = json.loads(backup.read_text())
    assert saved.items() >= edited.items()
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stat.S_IMODE(backup.parent.stat().st_mode) == 0o700
    assert pushed.grafana.body("jaxmon-oncall")["refresh"] == "30s"


def test_force_without_a_backup_replaces_nothing(pushed):
    """Where the backup cannot be written, the edit stays and the push has failed."""
    pushed.grafana.edit("jaxmon-oncall", refresh="5s")
    blocker = pushed.directory / "a-file"
    blocker.touch()
    done = pushed.push("--force", "--backup-dir", str(blocker / "backups"))
    assert done.code == 4
    assert "backup failed, so not replaced" in done.out
    assert pushed.grafana.body("jaxmon-oncall")["refresh"] == "5s"


def test_two_backups_of_a_version_have_two_names(pushed, monkeypatch):
    """A backup never overwrites another one."""
    monkeypatch.setattr("jaxmon_dashboards.grafana.push.datetime", FrozenTime)
    for author in ("alice", "bob"):
        pushed.grafana.edit("jaxmon-oncall", refresh="5s", author=author)
        pushed.push("--force").ok()
        del pushed.grafana.rows["jaxmon-oncall"].versions[-2:]
    assert len(pushed.backups) == 2


class FrozenTime:
    """A clock that stands still."""

    @staticmethod
    def now(zone):
        from datetime import datetime

        return datetime(2026, 11, 20, 8, tzinfo=zone)


# Dry runs and output.


def test_a_dry_run_writes_nothing(site):
    """`--dry-run` reports what would be done, with exit code 5, and only reads."""
    done = site.push("--dry-run")
    assert done.code == 5
    assert "would create  jaxmon-oncall" in done.out
    assert "folder jaxmon (would be created)" in done.out
    assert "nothing was written" in done.out
    assert site.grafana.requests(WRITE) == []


def test_json_holds_everything(pushed):
    """`--json` is one object with what the text says."""
    pushed.grafana.edit("jaxmon-oncall", refresh="5s")
    done = pushed.push("--json")
    told = json.loads(done.out)
    assert told["grafana"] == {
        "url": pushed.grafana.url,
        "version": pushed.grafana.version,
    }
    assert told["folder"] == {"uid": "jaxmon", "created": False}
    assert told["dry_run"] is False
    assert told["summary"] == {"unchanged": 1, "refused": 1}
    alice = {"classic": "alice", "v2": "user alice"}[pushed.model]
    assert told["dashboards"][1] == {
        "uid": "jaxmon-oncall",
        "title": "On-call",
        "state": "drifted",
        "outcome": "refused",
        "format": pushed.model,
        "reason": f"version 2 was saved by {alice} on 2026-11-20, not by a push",
        "version": 2,
        "url": "",
        "backup": None,
    }


# Files.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object is needed"),
        ('{"uid": "a"}', "a title of 1 to 5000"),
        ('{"uid": "a b", "title": "t"}', "letters, digits, - or _"),
        ('{"uid": "a", "title": "t", "x": NaN}', "NaN"),
        ('{"uid": "a", "title": "On-call"}', "both have title='On-call'"),
        ('{"uid": "a", "title": "t", "__inputs": [1]}', "exported for manual import"),
        ('{"apiVersion": "v2beta1", "spec": {}}', "('v2beta1', None) is not supp"),
        (f'{{{V2_HEAD}, "spec": {{"title": "t"}}}}', "metadata.name=None is invalid"),
        (f'{{{V2_HEAD}, "spec": 7}}', "metadata.name=None is invalid"),
        (f'{{{V2_HEAD}, {NAMED_A}, "spec": 7}}', "a title of 1 to 5000"),
        (
            f'{{{V2_HEAD}, {NAMED_A}, "spec": {{"title": "On-call"}}}}',
            "both have title",
        ),
        ('{"uid": "a", "title": "t", "tags": "x"}', "give a list"),
    ],
)
def test_a_file_that_cannot_be_pushed(site, text, message):
    """One bad file stops the push before anything is asked, and is named."""
    path = site.directory / "dashboards" / "z.json"
    path.write_text(text)
    done = site.push()
    assert done.code == 1
    assert "z.json" in done.err
    assert message in done.err
    assert site.grafana.seen == []
    path.unlink()


def test_the_tag_is_added(site):
    """A file without our tag gets it: without, the next push would not know it."""
    site.write({**ONCALL, "tags": ["sre"]})
    site.push().ok()
    assert site.grafana.body("jaxmon-oncall")["tags"] == ["sre", "jaxmon"]


@CLASSIC
@pytest.mark.exhaustive
def test_generated_dashboards_are_pushed_without_files(site):
    """Without files, what `jaxmon dashboards build` writes is what Grafana gets."""
    pytest.importorskip("grafana_foundation_sdk")
    built = site.directory / "built"
    assert (
        CliRunner().invoke(main, ["dashboards", "build", "--out", str(built)]).exit_code
        == 0
    )
    assert site.push(files=()).code == 0
    for path in built.glob("*.json"):
        body = json.loads(path.read_text())
        assert content(site.grafana.body(body["uid"])) == content(body)
    again = json.loads(site.push("--json", files=()).out)
    assert again["summary"] == {"unchanged": len(list(built.glob("*.json")))}


@pytest.mark.parametrize("option", ["--slo=slo.yaml", "--format=v2"])
def test_options_of_generation_do_not_go_with_files(site, option):
    """What shapes generated dashboards cannot shape given ones: a usage error."""
    done = site.push(option)
    assert done.code == 2
    assert "give either these or FILES" in " ".join(done.err.split())
