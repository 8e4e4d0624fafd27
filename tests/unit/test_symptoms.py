"""Everything that can be wrong stands once, with who says it."""

import importlib
import json
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any

from jaxmon import symptoms
from jaxmon.cli.runbook import names
from jaxmon.limits import LIMITS
from jaxmon.symptoms.alert import SiteLimits
from jaxmon.symptoms.findings import SYMPTOMS
from jaxmon_alerts import slo
from jaxmon_alerts.rules.build import burn_alerts
from jaxmon_alerts.rules.causes import cause_alerts
from tests.helpers.processes import each


ROOT = Path(__file__).resolve().parents[2]


@cache
def panels() -> set[str]:
    """Return every panel as ``Dashboard: Panel``."""
    found = set()
    for path in (ROOT / "dashboards").glob("*.json"):
        dashboard: dict[str, Any] = json.loads(path.read_text())
        title = dashboard["title"].removeprefix("jaxmon / ")
        for row in dashboard["panels"]:
            for panel in (row, *row.get("panels", ())):
                found.add(f"{title}: {panel['title']}")
    return found


@each({name: (name,) for name in SYMPTOMS})
def test_symptoms_refer_to_what_exists(name):
    """Panel and runbook are there; what has no alert or no screen says why."""
    one = SYMPTOMS[name]

    assert not one.panel or one.panel in panels()
    assert not one.runbook or one.runbook in names()
    screens = one.finding or one.together or one.reason or one.ranks
    assert bool(one.missing) == (not screens or not one.alert), one
    # A finding makes the answer of itself, or has numbers that do, or is only advice.
    assert one.finding or not one.severity


def test_each_alert_is_of_a_symptom():
    """
    And none is of something that does not exist. Rows that share a name build the same,
    or each its own, which a label tells apart.
    """
    found = list(cause_alerts(SiteLimits()))
    built = {one.name for one in found}
    for name in built:
        builds = {one.rule[1] for one in SYMPTOMS.values() if one.alert == name} - {
            None
        }
        labels = [
            dict(one.labels).get("symptom", "") for one in found if one.name == name
        ]
        assert len(set(labels)) >= len(builds), name
    built |= {one.name for each in slo.load() for one in burn_alerts(each, 1)}
    assert {one.alert for one in SYMPTOMS.values() if one.alert} == built


def test_the_page_has_every_limit():
    """
    A site finds there what a limit is about; those of jobs are what jobs read. What a
    row lacks, it says why.
    """
    _, _, page = (ROOT / "docs/symptoms.md").read_text().partition("\n## ")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert {len(row) for row in rows} == {3}
    parts = [
        part.strip("| ") for row in rows for of in row for part in of.split("<br>")
    ]
    assert [part for part in parts if not part or part.endswith(":")] == []
    assert [name for name in LIMITS if f"`{name}`" not in page] == []
    job = "".join(path.read_text() for path in (ROOT / "jaxmon/job").glob("*.py"))
    read = set(re.findall(r"\b(?:limits|Limits\(\)\))\.(\w+)", job)) & LIMITS.keys()
    assert read == {name for one in SYMPTOMS.values() for name in one.ranks}


def test_the_page_begins_with_what_newcomers_see():
    """Ten rows name symptoms and pages that exist, here and in the terminal."""
    first, _, _ = (ROOT / "docs/symptoms.md").read_text().partition("\n## ")
    guide = (ROOT / "runbooks/symptoms.md").read_text()
    seen = re.findall(r"^\| \*\*(.+?)\*\*<br>", first, re.MULTILINE)
    assert seen == re.findall(r"^## (.+)$", guide, re.MULTILINE)
    assert len(seen) == 10


def test_each_symptom_stands_once():
    """The table has all symptoms of all modules of the package, by different names."""
    found = [
        one.name
        for info in pkgutil.iter_modules(symptoms.__path__, "jaxmon.symptoms.")
        for one in getattr(importlib.import_module(info.name), "SYMPTOMS", ())
        if not isinstance(one, str)
    ]
    assert sorted(found) == sorted(SYMPTOMS)
