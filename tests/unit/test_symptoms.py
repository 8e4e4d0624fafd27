"""Everything that can be wrong stands once, with who says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from jaxmon.artifacts import slo
from jaxmon.artifacts.alerts.burn import burn_alerts
from jaxmon.artifacts.alerts.causes import cause_alerts
from jaxmon.cli.runbook import names
from jaxmon.limits import Limits
from jaxmon.report.status.model import ReasonKind
from jaxmon.symptoms import SYMPTOMS
from jaxmon.symptoms.fleet import FLEET
from jaxmon.symptoms.program import PROGRAM


ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize("name", SYMPTOMS)
def test_symptoms_refer_to_what_exists(name):
    """Panel and runbook are there; what has no alert or no screen says why."""
    one = SYMPTOMS[name]

    assert not one.panel or one.panel in panels()
    assert not one.runbook or one.runbook in names()
    screens = one in PROGRAM or bool(one.kinds)
    assert bool(one.missing) == (not screens or not one.alert), one


def test_each_alert_and_each_reason_is_of_a_symptom():
    """And none is of something that does not exist."""
    built = {one.name for one in cause_alerts(Limits())}
    built |= {one.name for each in slo.load() for one in burn_alerts(each, 1)}
    assert {one.alert for one in SYMPTOMS.values() if one.alert} == built
    kinds = {kind for one in SYMPTOMS.values() for kind in one.kinds}
    assert kinds == {*get_args(ReasonKind)} - {"finding"}
    assert len(SYMPTOMS) == len(PROGRAM) + len(FLEET)
