"""For those who answer for services: are they good, at what price, better or worse."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import SERVICES
from jaxmon.artifacts.dashboards.events import SUMMARY
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import executive, now
from jaxmon.artifacts.slo import Slos


def board(slos: Slos, *, runbooks: str) -> Dashboard:
    """
    Return the dashboard; it reads only recorded series, by service.

    Args:
        slos: objectives.
        runbooks: URL to which a runbook's file name is appended.
    """
    return Dashboard(
        uid="jaxmon-executive",
        title="jaxmon / Executive",
        description=(
            "Whether services keep their objectives, how fast they are, what they "
            "cost, and how that compares with last week. Requires jaxmon's recording "
            "rules."
        ),
        since="now-7d",
        variables=SERVICES,
        annotations=SUMMARY,
        rows=(
            executive.glance(slos, runbooks),
            executive.quality(slos),
            now.budgets(slos),
            executive.cost(),
        ),
    )
