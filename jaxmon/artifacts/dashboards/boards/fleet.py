"""From cluster to process: what runs where, in which version, and what stands out."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import VARIABLES
from jaxmon.artifacts.dashboards.events import EVENTS
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import fleet
from jaxmon.artifacts.slo import Slos


def board(slos: Slos) -> Dashboard:
    """Return the dashboard, with thresholds from *slos*."""
    return Dashboard(
        uid="jaxmon-fleet",
        title="jaxmon / Fleet",
        description=(
            "From cluster to process: what runs where, in which version, what starts "
            "or compiles at the moment, and what stands out."
        ),
        since="now-6h",
        variables=VARIABLES,
        annotations=EVENTS,
        rows=(
            fleet.glance(slos),
            fleet.starts(slos),
            fleet.differences(),
            fleet.down(),
            fleet.worst(slos),
        ),
    )
