"""What differs from one site to the next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jaxmon.artifacts.alerts.model import RUNBOOKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    How dashboards are to be rendered.

    Args:
        runbooks: address that a runbook's file name is appended to.
        datasource: uid of the data source to preselect; empty for Grafana's default.
        refresh: how often Grafana asks again, such as ``30s``; empty for never.
        slo: the site's ``slo.yaml``, for thresholds; by default what jaxmon ships.
    """

    runbooks: str = RUNBOOKS
    datasource: str = ""
    refresh: str = "30s"
    slo: Path | None = None
