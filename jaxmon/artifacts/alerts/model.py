"""The alert model and its rule-file form."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from jaxmon.artifacts.alerts import boards
from jaxmon.artifacts.slo.severity import Severity
from jaxmon.artifacts.slo.site import Site
from jaxmon.promql import Expr
from jaxmon.promql.identity import Identity


DEPLOY_NOISE = (("deploy", "expected"),)
"""Label of alerts that a deployment causes; inhibited while one is in progress."""

COUNT = '{{ $value | printf "%.0f" }}'
"""How often, in a summary: rises between scrapes are no whole numbers."""

PROCESS = ("job", "instance", "worker")
"""Labels that identify a process; without a sidecar there is no worker."""

_LABEL = re.compile(r"\$labels\.(\w+)")


@dataclass(frozen=True, slots=True)
class Options:
    """
    How the rules will be used.

    Args:
        scale: divides every duration, so that alerts can be watched arriving: at 60, an
            hour is a minute. Limits that are not durations stay.
        drawn: whether there are dashboards, for which overviews are recorded.
    """

    scale: float = 1
    drawn: bool = True


@dataclass(frozen=True, slots=True)
class Alert:
    """
    One alerting rule.

    Args:
        name: CamelCase, prefix Jaxmon; shared by the conditions of one objective.
        expr: fires for each series that it yields.
        severity: ``page`` notifies immediately, ``ticket`` during working hours,
            ``info`` only inhibits other alerts.
        summary: what is wrong, with values; a template, only of labels that *expr*
            keeps.
        description: what that means, one or two sentences.
        for_: how long *expr* must hold.
        keep_for: how long it goes on firing without *expr*, across gaps.
        labels: further labels of the alert.

    Raises:
        ValueError: *summary* mentions a label that the alert does not have.
    """

    name: str
    expr: Expr
    severity: Severity
    summary: str
    description: str
    for_: str = ""
    keep_for: str = ""
    labels: tuple[tuple[str, str], ...] = field(default=())

    def __post_init__(self) -> None:
        known = {*self._labels, "severity"}
        named = set(_LABEL.findall(self.summary))
        if wrong := sorted(named - known):
            msg = f"{self.name} has no label {', '.join(wrong)}; it has {sorted(known)}"
            raise ValueError(msg)

    @property
    def _labels(self) -> frozenset[str]:
        return (self.expr.shape.labels or frozenset()).union(dict(self.labels))

    def document(self, site: Site) -> dict[str, Any]:
        """Return the rule in rule-file form, as *site* wants it."""
        identity = Identity(site.service_labels, site.process_labels)
        waits = {"for": self.for_, "keep_firing_for": self.keep_for}
        return {
            "alert": self.name,
            "expr": identity.query(str(self.expr)),
            **{key: value for key, value in waits.items() if value},
            "labels": {
                "severity": site.severity(self.severity),
                **dict(site.labels),
                **dict(self.labels),
            },
            "annotations": {
                "summary": identity.text(self.summary),
                "description": identity.text(self.description),
                **self._runbook(site),
                "dashboard_url": site.dashboards
                + boards.address(self.name, self._labels, identity),
            },
        }

    def _runbook(self, site: Site) -> dict[str, str]:
        """Return where the runbook is: a command works wherever jaxmon is installed."""
        command = {"runbook": f"jaxmon runbook show {self.name}"}
        if not site.runbooks:
            return command
        return {"runbook_url": f"{site.runbooks}/{self.name}.md", **command}
