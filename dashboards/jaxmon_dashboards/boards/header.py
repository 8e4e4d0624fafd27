"""What stands above the rows of a dashboard: variables, and events as annotations."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.promql import Expr, alerts, eq, recorded
from jaxmon.symptoms.alert import PAGE
from jaxmon.symptoms.steps import SAMPLES, VERSIONS
from jaxmon_alerts.overviews import services
from jaxmon_alerts.overviews.hosts import FIRING, STARTS
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Annotation, Notes, Variable


_ALERT = ("alertname", "job", "severity")

SERVICES = (
    # Without a pattern for "All": only the jobs that run jaxmon, not every job of
    # this Prometheus. `up` and `process_*` exist for those, too.
    Variable(
        label="job",
        title="Service",
        metric=catalog.BUILD_INFO,
        text="The Prometheus job, which is the service.",
    ),
)
"""Variables of boards on services, whose series are recorded."""

VARIABLES = (
    *SERVICES,
    Variable(
        label="instance",
        title="Host",
        metric=catalog.BUILD_INFO,
        matchers=(q.JOB,),
        all_value=".+",
        text="The scraped address: a host's sidecar, or an agent.",
    ),
    Variable(
        label="worker",
        title="Worker",
        metric=catalog.BUILD_INFO,
        matchers=q.HOST,
        all_value=".*",
        text="The slot of a process on its host. Series scraped directly from an agent "
        "have none; enter .+ to exclude them.",
    ),
    Variable(
        label="function",
        title="Function",
        metric=catalog.JIT_CACHE_MISSES,
        matchers=q.PROCESS,
        all_value=".*",
        text="The jitted function.",
    ),
    Variable(
        label="device",
        title="Device",
        metric=catalog.LIVE_ARRAYS,
        matchers=q.PROCESS,
        all_value=".*",
        text="The local device, as JAX numbers it.",
    ),
    *q.VARIABLES,
)

_STARTS = Annotation(
    name="Starts",
    expr=STARTS(q.JOB).sum("job"),
    title="Processes started",
    text="{{job}}",
    color="blue",
)
# Their beginnings: for as long as many fire, every graph would be red.
_ALERTS = Annotation(
    name="Alerts",
    expr=q.firing().max(*_ALERT).unless(alerts(*FIRING).offset("5m"), *_ALERT),
    title="{{alertname}}",
    text="{{severity}}: {{job}}",
    color="red",
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
    name="Recompiles",
    # Where it begins: of many services, some function always recompiles.
    expr=services.RECOMPILES(q.JOB)
    .sum("job", "function")
    .unless(services.RECOMPILES(q.JOB).offset(_RECENT), "job", "function")
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
