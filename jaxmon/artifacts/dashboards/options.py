"""Installation-specific options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jaxmon.settings import RUNBOOKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    How dashboards are rendered.

    Args:
        runbooks: URL to which a runbook's file name is appended.
        datasource: uid of the data source to preselect; empty for Grafana's default.
        refresh: how often Grafana refreshes, such as ``30s``; empty for never.
        slo: your ``slo.yaml``, for thresholds; by default the one that jaxmon ships.
    """

    runbooks: str = RUNBOOKS
    datasource: str = ""
    refresh: str = "30s"
    slo: Path | None = None
