"""Pushing while others edit and push."""

import threading

import pytest

from tests.fakes.grafana_rows import TOKEN, Quirks
from tests.helpers.dashboards import DEBUG, ONCALL, SAVE
from tests.helpers.processes import run_python


# Others write at the same time.


def test_an_edit_between_plan_and_save_is_kept(pushed):
    """The version lock holds; the dashboard is refused, the other one is written."""
    pushed.write({**ONCALL, "refresh": "1m"})
    pushed.write({**DEBUG, "refresh": "1m"})
    pushed.grafana.fault(
        SAVE, before=lambda: pushed.grafana.edit("jaxmon-oncall", refresh="5s")
    )
    done = pushed.push()
    assert done.code == 3
    assert "changed during the push: version 2 was saved by " in done.out
    assert pushed.grafana.body("jaxmon-oncall")["refresh"] == "5s"
    assert pushed.grafana.body("jaxmon-debug")["refresh"] == "1m"


def test_force_does_not_replace_what_it_has_not_seen(pushed):
    """An edit that comes after the backup is refused, also with force."""
    pushed.grafana.edit("jaxmon-oncall", refresh="5s")
    pushed.grafana.fault(
        SAVE, before=lambda: pushed.grafana.edit("jaxmon-oncall", refresh="7s")
    )
    assert pushed.outcomes("--force") == (
        3,
        {"jaxmon-debug": "unchanged", "jaxmon-oncall": "refused"},
    )
    assert pushed.grafana.body("jaxmon-oncall")["refresh"] == "7s"


def test_a_dashboard_made_by_hand_meanwhile_is_kept(site):
    """A save that should create does not replace what appeared under its uid."""
    site.grafana.fault(
        SAVE, before=lambda: site.grafana.put({**DEBUG, "tags": [], "title": "Hers"})
    )
    assert site.outcomes() == (
        3,
        {"jaxmon-debug": "refused", "jaxmon-oncall": "created"},
    )
    assert site.grafana.body("jaxmon-debug")["title"] == "Hers"


def test_two_first_pushes_at_once_make_one_version(site):
    """The slower one finds its work done: folder, dashboards, one version of each."""
    rounds = []

    def meanwhile():
        rounds.append(site.push())

    site.grafana.fault("^POST /api/folders", before=meanwhile)
    assert site.push().code == 0
    assert [one.code for one in rounds] == [0]
    assert [len(row.versions) for row in site.grafana.rows.values()] == [1, 1]


def test_two_different_pushes_at_once(pushed):
    """The slower one is refused, and says to push again; it never overwrites."""
    pushed.write({**ONCALL, "refresh": "2m"})
    pushed.grafana.fault(
        SAVE, before=lambda: pushed.pushed_elsewhere({**ONCALL, "refresh": "1h"})
    )
    done = pushed.push()
    assert done.code == 3
    assert "changed during the push: push again" in done.out
    assert pushed.grafana.body("jaxmon-oncall")["refresh"] == "1h"
    assert pushed.outcomes()[0] == 0


def test_real_pushes_at_once(site):
    """Four pushes in processes leave one version of each dashboard, and none fails."""
    codes: list[int] = []

    def push():
        done = run_python(
            "-m", "jaxmon", "dashboards", "push", "--url", site.url,
            str(site.directory / "dashboards"), env={"GRAFANA_TOKEN": TOKEN},
        )  # fmt: skip
        site.printed += [done.out, done.err]
        codes.append(done.code)

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 4
    assert [len(row.versions) for row in site.grafana.rows.values()] == [1, 1]


@pytest.mark.parametrize("status", [409, 412])
def test_a_folder_made_meanwhile_is_used(make_site, status):
    """Another client created the folder between our check and our request."""
    site = make_site(quirks=Quirks(folder_conflict=status))
    site.grafana.fault(
        "^POST /api/folders",
        before=lambda: site.grafana.folders.update(jaxmon="jaxmon"),
    )
    assert site.outcomes()[0] == 0
