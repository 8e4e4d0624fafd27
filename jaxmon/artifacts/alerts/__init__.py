"""Alerting rules, routing and inhibition."""

from __future__ import annotations

from jaxmon.artifacts.alerts.build import all_alerts as all_alerts
from jaxmon.artifacts.alerts.build import all_groups as all_groups
from jaxmon.artifacts.alerts.build import render as render
from jaxmon.artifacts.alerts.rules import Options as Options
from jaxmon.symptoms.alert import Alert as Alert
