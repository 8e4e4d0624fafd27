"""What a site may choose about its dashboards."""

import json
from pathlib import Path

import pytest
import yaml

from jaxmon_dashboards.boards import DashboardOptions, render_all
from tests.helpers.dashboards import RENDERED, panels, reread
from tests.helpers.processes import ROOT


def test_runbook_links_follow_the_option():
    """Panels about an alert link its runbook below the address that was given."""
    text = "\n".join(
        render_all(DashboardOptions(runbooks="https://wiki.example/rb/")).values()
    )
    assert "https://wiki.example/rb/JaxmonRecompileStorm.md" in text
    assert "https://wiki.example/rb/${__value.text}.md" in text
    assert "github.com" not in text


def test_thresholds_follow_the_objectives(tmp_path: Path):
    """Another objective moves the line in the panel and the colour in the table."""
    path = tmp_path / "slo.yaml"
    shipped = (ROOT / "alerts" / "slo.yaml").read_text()
    path.write_text(shipped.replace("objective: 99.9%", "objective: 99.5%"))
    other = render_all(DashboardOptions(slo=path))["oncall.json"]
    for text, bound in ((RENDERED["oncall.json"], 0.001), (other, 0.005)):
        by_title = {one["title"]: one for one in panels(json.loads(text))}
        for title in ("Request error ratio", "Request errors"):
            steps = by_title[title]["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert [one["value"] for one in steps] == [None, bound]


@pytest.mark.parametrize("number", [1, 30])
def test_any_objectives_will_do(number: int, tmp_path: Path):
    """A site's own file may have none of the names that ours has, and more of them."""
    document = {
        "slos": [
            {
                "name": f"own-{index}",
                "title": f"Own {index}",
                "description": "Calls hit.",
                "objective": "95%",
                "by": ["job"],
                "indicator": {
                    "good": "jaxmon_jit_cache_hits_total",
                    "total": "jaxmon_jit_calls_total",
                },
            }
            for index in range(number)
        ]
    }
    path = tmp_path / "slo.yaml"
    path.write_text(yaml.safe_dump(document))
    for text in render_all(DashboardOptions(slo=path)).values():
        dashboard = json.loads(text)
        assert reread(dashboard) == dashboard
        for panel in panels(dashboard):
            references = [one["refId"] for one in panel["targets"]]
            assert len(set(references)) == len(references)
            if panel["title"] == "Burn rate over one hour":
                assert len(references) == len(panel["links"]) == number


def test_site_options_reach_the_json():
    """The data source is preselected as asked for."""
    text = render_all(DashboardOptions(datasource="prom-eu"))["debug.json"]
    dashboard = json.loads(text)
    first = dashboard["templating"]["list"][0]
    assert first["current"] == {"selected": True, "text": "prom-eu", "value": "prom-eu"}
    assert dashboard["refresh"] == "30s"
