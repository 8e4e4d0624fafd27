"""Grafana dashboards: model and rendering."""

from __future__ import annotations

from jaxmon_dashboards.boards.build import DashboardOptions as DashboardOptions
from jaxmon_dashboards.boards.build import Format as Format
from jaxmon_dashboards.boards.build import all_dashboards as all_dashboards
from jaxmon_dashboards.boards.build import render_all as render_all
