"""An alert as data: when it fires, how urgent it is, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, TypeAlias

from jaxmon.host.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr


Severity: TypeAlias = Literal["page", "ticket", "info"]
PAGE: Severity = "page"
TICKET: Severity = "ticket"
INFO: Severity = "info"
SEVERITIES = (PAGE, TICKET, INFO)

DEPLOY_NOISE = (("deploy", "expected"),)
"""Label of alerts that a deployment causes; inhibited while one is in progress."""

COUNT = '{{ $value | printf "%.0f" }}'
"""How often, in a summary: rises between scrapes are no whole numbers."""

PROCESS = ("job", "instance", "worker")
"""Labels that identify a process; without a sidecar there is no worker."""

AN_INSTANCE = (
    "{{ $labels.instance }} {{ with $labels.worker }}(worker {{ . }}) {{ end }}"
)
A_PROCESS = f"A process of job {{{{ $labels.job }}}} on {AN_INSTANCE}"
A_FUNCTION = "Function {{ $labels.function }} of job {{ $labels.job }} "
"""What an alert is about, in its summary, mostly at the start."""

MONITORING_ALERT = "JaxmonMonitoringDegraded"
"""What is wrong with jaxmon itself; several modules have a part of it."""

FORMER_NAMES = {
    "JaxmonAcceleratorIdle": "JaxmonTimeLost",
    "JaxmonAcceleratorUnderused": "JaxmonTimeLost",
    "JaxmonAgentHookInactive": f"{MONITORING_ALERT}/hook_inactive",
    "JaxmonCacheHitRateBudgetBurn": "JaxmonRecompileStorm",
    "JaxmonCheckpointAge": "JaxmonCheckpointFailed/checkpoint_age",
    "JaxmonColdLatency": "JaxmonColdStartBudgetBurn/cold_latency",
    "JaxmonColdStarts": "JaxmonColdStartBudgetBurn/cold_requests",
    "JaxmonCollectorDown": f"{MONITORING_ALERT}/collector_down",
    "JaxmonCompileSlow": "JaxmonColdStartBudgetBurn",
    "JaxmonDataStarvation": "JaxmonTimeLost",
    "JaxmonExportFailing": f"{MONITORING_ALERT}/export",
    "JaxmonGpuEccErrors": "JaxmonGpuFault/ecc",
    "JaxmonGpuNeedsReset": "JaxmonGpuFault/reset",
    "JaxmonGpuXid": "JaxmonGpuFault/xid",
    "JaxmonKeyReuse": "JaxmonCheckFailed/key_reuse",
    "JaxmonNcclStuck": "JaxmonRankStuck/nccl",
    "JaxmonNotReady": "JaxmonWarmupFailed/not_ready",
    "JaxmonRankSlow": "JaxmonStraggler/rank_slow",
    "JaxmonSpansDropped": f"{MONITORING_ALERT}/spans",
    "JaxmonTpuRuntimeDown": f"{MONITORING_ALERT}/tpu_runtime",
    "JaxmonWebConfigFailed": f"{MONITORING_ALERT}/web_config",
}
"""
Names of alerts until the last release, and where their runbooks and conditions are now:
the name, and the label `symptom` after a slash.
"""

_LABEL = re.compile(r"\$labels\.(\w+)")

Match: TypeAlias = tuple[tuple[str, str], ...]


class ExpectedRun(NamedTuple):
    """
    A job that is expected to run.

    Args:
        match: labels of its processes, ``job`` among them.
        processes: how many there should be.
    """

    match: Match
    processes: int


class SiteLimits(Limits):
    """
    The limits of a site, and what else its alerts depend on.

    Attributes:
        scale: divides the durations that are no limits.
        runs: that are expected to run.
        page: what the site calls the severity.
    """

    scale: float = 1
    runs: Iterable[ExpectedRun] = ()
    page: str = PAGE

    @classmethod
    def of(
        cls, limits: Limits, scale: float, runs: Iterable[ExpectedRun], page: str
    ) -> Self:
        """Return *limits*, with every duration divided by *scale*, and the rest."""
        made = cls(**limits.scaled(scale).changed)
        made.scale, made.runs, made.page = scale, runs, page
        return made

    def duration(self, text: str) -> str:
        """Return a duration that is no limit, scaled."""
        return durations.scaled(text, self.scale)


@dataclass(frozen=True, slots=True)
class Alert:
    """
    One alerting rule.

    Args:
        expr: fires for each series that it yields.
        severity: ``page`` notifies immediately, ``ticket`` during working hours,
            ``info`` only inhibits other alerts.
        summary: what is wrong, with values; a template, only of labels that *expr*
            keeps.
        description: what that means, one or two sentences; that of its symptom if
            empty.
        for_: how long *expr* must hold.
        keep_for: how long it goes on firing without *expr*, across gaps.
        labels: further labels of the alert.
        name: CamelCase, prefix Jaxmon; that of its symptom or its objective, whose
            conditions share it.

    Raises:
        ValueError: *summary* mentions a label that the alert does not have.
    """

    expr: Expr
    summary: str
    description: str = ""
    severity: Severity = TICKET
    for_: str = ""
    keep_for: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        labels = {*self.kept, "severity"}
        named = set(_LABEL.findall(self.summary))
        if wrong := sorted(named - labels):
            of = self.name or self.summary
            msg = f"{of} has no label {', '.join(wrong)}; it has {sorted(labels)}"
            raise ValueError(msg)

    @property
    def symptom(self) -> str:
        """Which condition of its name it is; empty if that has one."""
        return dict(self.labels).get("symptom", "")

    @property
    def kept(self) -> frozenset[str]:
        """The labels that it has, besides its severity."""
        return (self.expr.shape.labels or frozenset()).union(dict(self.labels))
