"""A dashboard: rows of panels below variables, and events drawn across all panels."""

from __future__ import annotations

from dataclasses import dataclass

from jaxmon import catalog
from jaxmon.promql import Expr, alerts, eq, recorded
from jaxmon.symptoms.alert import PAGE
from jaxmon.symptoms.steps import SAMPLES, VERSIONS
from jaxmon_alerts.overviews import services
from jaxmon_alerts.overviews.hosts import FIRING, STARTS, firing
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Color,
    DependentVariable,
    Panel,
    Row,
    Variable,
)


@dataclass(frozen=True, slots=True)
class Annotation:
    """Events drawn across every panel when *expr* yields something."""

    name: str
    title: str
    text: str
    color: Color
    expr: Expr


@dataclass(frozen=True, slots=True)
class Notes:
    """Annotations that Grafana itself keeps, which have all these *tags*."""

    name: str
    tags: tuple[str, ...]
    color: Color


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A whole dashboard; its uid is part of its address, and stays."""

    uid: str
    title: str
    description: str
    since: str
    variables: tuple[Variable | DependentVariable, ...]
    annotations: tuple[Annotation | Notes, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The panels of all rows."""
        return tuple(panel for row in self.rows for panel in row.panels)


_ALERT = ("alertname", "job", "severity")

VARIABLES = (
    # Without a pattern for "All": only the jobs that run jaxmon, not every job of
    # this Prometheus. `up` and `process_*` exist for those, too.
    Variable(
        *("job", "Service", catalog.BUILD_INFO),
        "The Prometheus job, which is the service.",
    ),
    Variable(
        *("instance", "Host", catalog.BUILD_INFO),
        "The scraped address: a host's sidecar, or an agent.",
        *((q.JOB,), ".+"),
    ),
    Variable(
        *("worker", "Worker", catalog.BUILD_INFO),
        "The slot of a process on its host. Series scraped directly from an agent have "
        "none; enter .+ to exclude them.",
        *(q.HOST, ".*"),
    ),
    *q.VARIABLES,
)
"""Every variable; a board has those that its panels select by."""

_STARTS = Annotation(
    *("Starts", "Processes started", "{{job}}", "blue"), STARTS(q.JOB).sum("job")
)
# Their beginnings: for as long as many fire, every graph would be red.
_ALERTS = Annotation(
    *("Alerts", "{{alertname}}", "{{severity}}: {{job}}", "red"),
    firing(q.JOB).max(*_ALERT).unless(firing(q.JOB).offset("5m"), *_ALERT),
)
# Of a release, people see its beginning.
_RECENT = "10m"
_MOST = 5


def _new(name: str, *labels: str) -> Expr:
    """Return series that their service has now, and did not have a moment ago."""
    now = recorded(name, q.JOB, labels=("job", *labels), unit="")
    before = now.offset(_RECENT)
    # All of a service that is new itself would be new.
    jobs = before.max("job")
    return now.unless(before, "job", *labels).and_(jobs, "job").max("job", *labels)


RECOMPILES = Annotation(
    *("Recompiles", "Recompiling", "{{job}}: {{function}}", "orange"),
    # Where it begins: of many services, some function always recompiles.
    services.RECOMPILES(q.JOB)
    .sum("job", "function")
    .unless(services.RECOMPILES(q.JOB).offset(_RECENT), "job", "function")
    .topk(_MOST),
)
PROGRAMS = Annotation(
    *("Programs", "New program", "{{job}}: {{function}} {{fingerprint}}", "yellow"),
    _new(SAMPLES, "function", "fingerprint"),
)
VERSION = Annotation(
    *("Versions", "New version"),
    *("{{job}}: JAX {{jax}}, jaxlib {{jaxlib}}, {{platform_version}}", "green"),
    _new(VERSIONS, "jax", "jaxlib", "platform_version"),
)
# Over weeks, only what someone was called for.
PAGES = Annotation(
    *("Pages", "{{alertname}}", "{{job}}", "red"),
    alerts(q.JOB, *FIRING, eq("severity", PAGE)).max("alertname", "job"),
)

DEPLOY_TAGS = ("jaxmon", "deploy")
"""Tags of what ``jaxmon dashboards annotate`` notes."""

DEPLOYMENTS = Notes(name="Deployments", tags=DEPLOY_TAGS, color="purple")

EVENTS = (_STARTS, RECOMPILES, VERSION, PROGRAMS, DEPLOYMENTS, _ALERTS)
SUMMARY = (VERSION, DEPLOYMENTS, PAGES)
