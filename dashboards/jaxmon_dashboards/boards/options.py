"""Installation-specific options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self, TypeAlias

from jaxmon.settings import RUNBOOKS
from jaxmon_alerts.slo import Site


Format: TypeAlias = Literal["classic", "v2"]
"""Which of Grafana's two models of a dashboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """
    How dashboards are rendered.

    Args:
        runbooks: URL to which a runbook's file name is appended; by default the site's,
            or jaxmon's own.
        datasource: uid of the data source to preselect; empty for Grafana's default.
        refresh: how often Grafana refreshes, such as ``30s``; empty for never.
        slo: your ``slo.yaml``, for thresholds; by default the one that jaxmon ships.
    """

    runbooks: str = ""
    datasource: str = ""
    refresh: str = "30s"
    slo: Path | None = None

    def at(self, site: Site) -> Self:
        """Return the options with what *site* says about them."""
        return replace(self, runbooks=self.runbooks or _base(site))


def _base(site: Site) -> str:
    return f"{site.runbooks}/" if site.runbooks else RUNBOOKS
