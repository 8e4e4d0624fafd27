"""Grafana dashboards: model and rendering."""

from __future__ import annotations

from jaxmon_dashboards.boards.build import all_dashboards as all_dashboards
from jaxmon_dashboards.boards.build import render_all as render_all
from jaxmon_dashboards.boards.options import DashboardOptions as DashboardOptions
from jaxmon_dashboards.boards.options import Format as Format
