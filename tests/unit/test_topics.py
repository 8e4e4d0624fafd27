"""Topics of findings refer to panels and runbooks that exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxmon.cli.runbook import names
from jaxmon.report.findings.finding import TOPICS


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


@pytest.mark.parametrize("name", TOPICS)
def test_topics_refer_to_what_exists(name):
    """The panel and the runbook of each topic are there."""
    topic = TOPICS[name]

    assert not topic.panel or topic.panel in panels()
    assert not topic.runbook or topic.runbook in names()
