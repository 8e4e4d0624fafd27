"""Whether jaxmon works, and what it costs."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import VARIABLES
from jaxmon.artifacts.dashboards.events import EVENTS
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import agents, monitoring
from jaxmon.artifacts.slo import Slos


def board(slos: Slos) -> Dashboard:
    """Return the dashboard, with thresholds from *slos*."""
    return Dashboard(
        uid="jaxmon-itself",
        title="jaxmon / jaxmon itself",
        description=(
            "Whether agents and sidecars work, so that the other boards can be "
            "trusted, and what they cost."
        ),
        since="now-3h",
        variables=VARIABLES,
        annotations=EVENTS,
        rows=(
            agents.glance(slos),
            monitoring.oncall().opened(),
            agents.cost(),
            monitoring.debug().opened(),
        ),
    )
