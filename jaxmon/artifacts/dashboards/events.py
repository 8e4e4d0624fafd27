"""
What changed, drawn across every panel: processes, programs, versions, deployments,
alerts.

Annotations are queries, too: each is evaluated for every point of a graph on every
refresh, so they read what is recorded of a service.
"""

from __future__ import annotations

from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.choices import ANNOTATIONS
from jaxmon.artifacts.dashboards.model import Annotation, Notes
from jaxmon.artifacts.overviews import functions
from jaxmon.artifacts.overviews.alerting import FIRING
from jaxmon.promql import Expr, alerts, eq, recorded
from jaxmon.symptoms.alert import PAGE
from jaxmon.symptoms.slowdowns import SAMPLES, VERSIONS


_STARTS, _ALERTS = ANNOTATIONS
# Of a release, people see its beginning.
_RECENT = "10m"
_MOST = 5


def _new(name: str, *labels: str) -> Expr:
    """Return series that their service has now, and did not have a moment ago."""
    now = recorded(name, q.JOB, labels=("job", *labels), unit="")
    before = now.offset(_RECENT)
    # All of a service that is new itself would be new.
    known = before.max("job")
    return now.unless(before, "job", *labels).and_(known, "job").max("job", *labels)


RECOMPILES = Annotation(
    name="Recompiles",
    # Where it begins: of many services, some function always recompiles.
    expr=functions.RECOMPILES(q.JOB)
    .sum("job", "function")
    .unless(functions.RECOMPILES(q.JOB).offset(_RECENT), "job", "function")
    .topk(_MOST),
    title="Recompiling",
    text="{{job}}: {{function}}",
    color="orange",
)
PROGRAMS = Annotation(
    name="Programs",
    expr=_new(SAMPLES, "function", "fingerprint"),
    title="New program",
    text="{{job}}: {{function}} {{fingerprint}}",
    color="yellow",
)
VERSION = Annotation(
    name="Versions",
    expr=_new(VERSIONS, "jax", "jaxlib", "platform_version"),
    title="New version",
    text="{{job}}: JAX {{jax}}, jaxlib {{jaxlib}}, {{platform_version}}",
    color="green",
)
# Over weeks, only what someone was called for.
PAGES = Annotation(
    name="Pages",
    expr=alerts(q.JOB, *FIRING, eq("severity", PAGE)).max("alertname", "job"),
    title="{{alertname}}",
    text="{{job}}",
    color="red",
)

DEPLOY_TAGS = ("jaxmon", "deploy")
"""Tags of what ``jaxmon dashboards annotate`` notes."""

DEPLOYMENTS = Notes(name="Deployments", tags=DEPLOY_TAGS, color="purple")

EVENTS = (_STARTS, RECOMPILES, VERSION, PROGRAMS, DEPLOYMENTS, _ALERTS)
SUMMARY = (VERSION, DEPLOYMENTS, PAGES)
