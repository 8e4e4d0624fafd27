"""Alerts as the documents of rules, with the dashboards that they open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jaxmon.promql.identity import Identity
from jaxmon.symptoms import (
    compiles,
    hardware,
    job,
    memory,
    monitoring,
    recompiles,
    requests,
    results,
    runs,
    starts,
    steps,
    time,
)
from jaxmon.symptoms.alert import Alert
from jaxmon_alerts.slo.site import Site


ONCALL = "jaxmon-oncall"
"""
Opened by what has no board of its own, as an objective: it shows all budgets. Only
services are selected there.
"""

# By the module of the symptom.
_BOARDS = {
    "jaxmon-serving": (requests,),
    "jaxmon-training": (steps, runs, time, job),
    "jaxmon-accelerators": (hardware,),
    "jaxmon-fleet": (starts,),
    "jaxmon-itself": (monitoring,),
    "jaxmon-debug": (compiles, memory, recompiles, results),
}
_BOARD = {
    **{
        one.alert: board
        for board, modules in _BOARDS.items()
        for module in modules
        for one in module.SYMPTOMS
        if one.rule[1]
    },
    "JaxmonNonFinite": "jaxmon-training",
    "JaxmonNotReady": "jaxmon-debug",
    "JaxmonProgramsDiverge": "jaxmon-fleet",
    "JaxmonServiceVanished": "jaxmon-serving",
    "JaxmonSlowdown": "jaxmon-debug",
    "JaxmonThunderingCompilation": "jaxmon-fleet",
    "JaxmonTrainingDied": "jaxmon-training",
    "JaxmonWarmupFailed": "jaxmon-debug",
}
# Labels of alerts, and the variables that select by them.
_VARIABLES = {
    "job": "job",
    "instance": "instance",
    "worker": "worker",
    "function": "function",
    "device": "device",
    "uuid": "gpu",
}


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """
    How the rules will be used.

    Args:
        scale: divides every duration, so that alerts can be watched arriving: at 60, an
            hour is a minute. Limits that are not durations stay.
        drawn: whether there are dashboards, for which overviews are recorded.
    """

    scale: float = 1
    drawn: bool = True


def document(alert: Alert, site: Site) -> dict[str, Any]:
    """Return *alert* in rule-file form, as *site* wants it."""
    identity = Identity(site.service_labels, site.process_labels)
    waits = {"for": alert.for_, "keep_firing_for": alert.keep_for}
    # A command works wherever jaxmon is installed.
    runbooks = {"runbook": f"jaxmon runbook show {alert.name}"}
    if site.runbooks:
        runbooks = {"runbook_url": f"{site.runbooks}/{alert.name}.md", **runbooks}
    return {
        "alert": alert.name,
        "expr": identity.query(str(alert.expr)),
        **{key: value for key, value in waits.items() if value},
        "labels": {
            "severity": site.severity(alert.severity),
            **dict(site.labels),
            **dict(alert.labels),
        },
        "annotations": {
            "summary": identity.text(alert.summary),
            "description": identity.text(alert.description),
            **runbooks,
            "dashboard_url": site.dashboards
            + _address(alert.name, alert.kept, identity),
        },
    }


def _address(alert: str, labels: Iterable[str], identity: Identity) -> str:
    """
    Return the path of the dashboard about *alert*, a template of its *labels*, and of
    those that services have at the site.
    """
    found = {*labels}
    board = _BOARD.get(alert, ONCALL)
    own = {label: label for label in identity.service} if "job" in found else {}
    selectable = ("job",) if board == ONCALL else _VARIABLES
    known = {label: _VARIABLES[label] for label in selectable if label in found}
    values = "&".join(
        f"var-{name}={{{{ $labels.{label} | urlquery }}}}"
        for label, name in (own | known).items()
    )
    return f"/d/{board}?{values}"
