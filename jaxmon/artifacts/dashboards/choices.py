"""Dashboard variables and annotations."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Annotation
from jaxmon.artifacts.dashboards.variables import Variable
from jaxmon.artifacts.overviews.alerting import FIRING
from jaxmon.artifacts.overviews.processes import STARTS
from jaxmon.promql import alerts


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
        text=(
            "The slot of a process on its host. Series scraped directly from an agent "
            "have none; enter .+ to exclude them."
        ),
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
    *hardware.VARIABLES,
)

ANNOTATIONS = (
    Annotation(
        name="Starts",
        expr=STARTS(q.JOB).sum("job"),
        title="Processes started",
        text="{{job}}",
        color="blue",
    ),
    # Their beginnings: for as long as many fire, every graph would be red.
    Annotation(
        name="Alerts",
        expr=hardware.firing()
        .max(*_ALERT)
        .unless(alerts(*FIRING).offset("5m"), *_ALERT),
        title="{{alertname}}",
        text="{{severity}}: {{job}}",
        color="red",
    ),
)
