"""What someone on call needs: what is wrong, since when, for whom, what next."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import SERVICES
from jaxmon.artifacts.dashboards.events import EVENTS
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import (
    accelerators,
    compiles,
    errors,
    memory,
    monitoring,
    now,
    requests,
    services,
    training,
)
from jaxmon.artifacts.slo import Slos


def board(slos: Slos, *, runbooks: str) -> Dashboard:
    """
    Return the dashboard.

    Args:
        slos: objectives and alert thresholds.
        runbooks: URL to which a runbook's file name is appended.
    """
    return Dashboard(
        uid="jaxmon-oncall",
        title="jaxmon / On-call",
        description="What is wrong, since when, who is affected, and where to look.",
        since="now-3h",
        variables=SERVICES,
        annotations=EVENTS,
        rows=(
            now.oncall(slos, runbooks),
            services.oncall(slos),
            now.budgets(slos),
            requests.oncall(slos),
            training.oncall(slos),
            compiles.oncall(slos),
            errors.oncall(),
            memory.oncall(slos),
            accelerators.oncall(),
            monitoring.oncall(),
        ),
    )
