"""The On-call dashboard: is it on fire, since when, who, and what to look at next."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import ANNOTATIONS, VARIABLES
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import (
    accelerators,
    errors,
    memory,
    monitoring,
    now,
    requests,
    services,
    training,
)
from jaxmon.artifacts.dashboards.rows import compiles as compilation
from jaxmon.artifacts.slo import Slos


def dashboard(slos: Slos, *, runbooks: str) -> Dashboard:
    """
    Return the dashboard with the thresholds of *slos*.

    Args:
        slos: objectives and alert thresholds.
        runbooks: address that a runbook's file name is appended to.
    """
    return Dashboard(
        uid="jaxmon-oncall",
        title="jaxmon / On-call",
        description="Is it on fire, since when, who is affected, and where to look.",
        since="now-3h",
        variables=VARIABLES,
        annotations=ANNOTATIONS,
        rows=(
            now.oncall(slos, runbooks),
            services.oncall(slos),
            now.budgets(slos),
            requests.oncall(slos),
            training.oncall(slos),
            compilation.oncall(slos),
            errors.oncall(),
            memory.oncall(slos),
            accelerators.oncall(),
            monitoring.oncall(),
        ),
    )
