"""Grafana dashboards: model and rendering."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.build import all_dashboards as all_dashboards
from jaxmon.artifacts.dashboards.build import render_all as render_all
from jaxmon.artifacts.dashboards.options import DashboardOptions as DashboardOptions
from jaxmon.artifacts.dashboards.options import Format as Format
