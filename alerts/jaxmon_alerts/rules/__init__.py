"""Alerting rules, routing and inhibition."""

from __future__ import annotations

from jaxmon.symptoms.alert import Alert as Alert
from jaxmon_alerts.rules.build import RuleOptions as RuleOptions
from jaxmon_alerts.rules.build import all_alerts as all_alerts
from jaxmon_alerts.rules.build import all_groups as all_groups
from jaxmon_alerts.rules.build import render as render
