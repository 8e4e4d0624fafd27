"""For those who run training: is it fast, is it healthy, which rank holds it up."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import VARIABLES
from jaxmon.artifacts.dashboards.events import EVENTS
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import collectives, goodput, ranks, runs, training
from jaxmon.artifacts.slo import Slos


def board(slos: Slos) -> Dashboard:
    """Return the dashboard, with thresholds from *slos*."""
    return Dashboard(
        uid="jaxmon-training",
        title="jaxmon / Training",
        description=(
            "Whether runs make progress, what their time goes into, and which rank "
            "holds up the others."
        ),
        since="now-6h",
        variables=VARIABLES,
        annotations=EVENTS,
        rows=(
            runs.glance(slos),
            training.oncall(slos),
            runs.time(),
            goodput.across_restarts(slos),
            ranks.oncall(slos),
            training.debug(),
            collectives.inspected(),
        ),
    )
