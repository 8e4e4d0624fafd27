"""The alert model and its rule-file form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from jaxmon.artifacts.promql import Expr
from jaxmon.artifacts.slo.thresholds import Severity
from jaxmon.settings import RUNBOOKS


DEPLOY_NOISE = (("deploy", "expected"),)
"""Label of alerts that a deployment causes; inhibited while one is in progress."""

PROCESS = ("job", "instance", "worker")
"""Labels that identify a process; without a sidecar there is no worker."""

_LABEL = re.compile(r"\$labels\.(\w+)")


@dataclass(frozen=True, slots=True)
class Options:
    """
    Where the alerts will be used.

    Args:
        runbook_base: URL to which the alert's name and ``.md`` are appended.
        scale: divides every duration, so that alerts can be watched arriving: at 60, an
            hour is a minute. Thresholds that are not durations stay.
        webhook: where Alertmanager sends notifications; a placeholder by default,
            `None` for nowhere.
    """

    runbook_base: str = RUNBOOKS
    scale: float = 1
    webhook: str | None = "https://alerts.example.com/jaxmon"


@dataclass(frozen=True, slots=True)
class Alert:
    """
    One alerting rule.

    Args:
        name: CamelCase, prefix Jaxmon; shared by the conditions of one objective.
        expr: fires for each series that it yields.
        severity: ``page`` notifies immediately, ``ticket`` during working hours,
            ``info`` only inhibits other alerts.
        summary: what is wrong, one static sentence.
        description: the same with values, as a template; only labels that *expr* keeps.
        for_: how long *expr* must hold.
        labels: further labels of the alert.
        runbook_url: filled in by `all_alerts`.

    Raises:
        ValueError: *description* mentions a label that the alert does not have.
    """

    name: str
    expr: Expr
    severity: Severity
    summary: str
    description: str
    for_: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    runbook_url: str = ""

    def __post_init__(self) -> None:
        known = {*(self.expr.shape.labels or ()), *dict(self.labels), "severity"}
        if wrong := sorted(set(_LABEL.findall(self.description)) - known):
            msg = f"{self.name} has no label {', '.join(wrong)}; it has {sorted(known)}"
            raise ValueError(msg)

    def document(self) -> dict[str, Any]:
        """Return the rule in rule-file form."""
        waits = {"for": self.for_} if self.for_ else {}
        return {
            "alert": self.name,
            "expr": str(self.expr),
            **waits,
            "labels": {"severity": self.severity, **dict(self.labels)},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": self.runbook_url,
            },
        }
