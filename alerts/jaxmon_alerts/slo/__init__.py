"""
Service-level objectives: the one place where targets and limits are set.

`load` reads ``slo.yaml`` into `Slos`; dashboards, recording rules and alerts take their
queries from those.
"""

from __future__ import annotations

from jaxmon_alerts.slo.load import Slos as Slos
from jaxmon_alerts.slo.load import default as default
from jaxmon_alerts.slo.load import load as load
from jaxmon_alerts.slo.model import Slo as Slo
from jaxmon_alerts.slo.site import Site as Site
