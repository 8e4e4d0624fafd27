"""For those who run servers: how fast, for whom not, and what requests wait for."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import VARIABLES
from jaxmon.artifacts.dashboards.events import EVENTS
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import replicas, requests
from jaxmon.artifacts.slo import Slos


def board(slos: Slos) -> Dashboard:
    """Return the dashboard, with thresholds from *slos*."""
    return Dashboard(
        uid="jaxmon-serving",
        title="jaxmon / Serving",
        description=(
            "How fast requests are served, cold and warm, what they wait for, and "
            "which replica differs from the others."
        ),
        since="now-3h",
        variables=VARIABLES,
        annotations=EVENTS,
        rows=(
            replicas.glance(slos),
            requests.oncall(slos),
            replicas.stalls(slos),
            replicas.throughput(slos),
            replicas.replicas(),
            requests.serverless(),
            requests.debug().opened("Distributions"),
        ),
    )
