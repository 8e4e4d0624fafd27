"""The dashboard that an alert opens is about it, and selects what it is about."""

import re
from functools import cache

from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.rules import build as rules
from jaxmon_dashboards.boards import all_dashboards
from jaxmon_dashboards.boards.model import Dashboard, Variable
from tests.helpers.processes import each


GRAFANA = "https://grafana.example.com"
SITE = slo.Site(dashboards=GRAFANA)
# Labels by which some variable selects; others belong to the subject alone.
SELECTED = {"job": "job", "instance": "instance", "worker": "worker"}
SELECTED |= {"function": "function", "device": "device", "uuid": "gpu"}
EVERY_ALERT = each(
    {str((one.name, one.severity, *one.labels)): (one,) for one in alerts.all_alerts()}
)


@cache
def boards() -> dict[str, Dashboard]:
    return {one.uid: one for one in all_dashboards()}


def names(board: Dashboard) -> set[str]:
    """Return the names of the variables of *board*."""
    return {
        one.label if isinstance(one, Variable) else one.name for one in board.variables
    }


@EVERY_ALERT
def test_an_alert_opens_a_board_that_shows_it(alert):
    """The board exists, has each variable of the link, and a panel about the alert."""
    url = rules.document(alert, SITE)["annotations"]["dashboard_url"]
    found = re.fullmatch(rf"{GRAFANA}/d/([a-z-]+)\?(.+)", url)
    assert found
    board = boards()[found[1]]
    variables = dict(one.split("=", 1) for one in found[2].split("&"))

    assert {one.removeprefix("var-") for one in variables} <= names(board)
    assert any(alert.name in panel.alerts for panel in board.panels)


@EVERY_ALERT
def test_the_board_selects_what_the_alert_is_about(alert):
    """Each variable of the board is filled in from the label that the alert has."""
    url = rules.document(alert, SITE)["annotations"]["dashboard_url"]
    board = url.removeprefix(f"{GRAFANA}/d/").partition("?")[0]
    labels = {*(alert.expr.shape.labels or ()), *dict(alert.labels)}
    expected = {
        f"var-{variable}={{{{ $labels.{label} | urlquery }}}}"
        for label, variable in SELECTED.items()
        if label in labels and variable in names(boards()[board])
    }
    expected |= {
        f"var-{label}={{{{ $labels.{label} | urlquery }}}}"
        for label in SITE.service_labels
    }

    assert set(url.partition("?")[2].split("&")) == expected


def test_each_alert_has_a_board():
    """But those of objectives, which the board of all budgets shows."""
    names = {one.name for one in alerts.all_alerts()}

    assert {*rules._BOARD} == names - {one.alert for one in slo.load()}
