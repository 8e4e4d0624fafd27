"""GPUs and TPUs in one schema: load, memory, power, health."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import VARIABLES
from jaxmon.artifacts.dashboards.events import EVENTS
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import accelerators, devices, gpus, tpus
from jaxmon.artifacts.slo import Slos


def board(slos: Slos) -> Dashboard:
    """Return the dashboard, with thresholds from *slos*."""
    return Dashboard(
        uid="jaxmon-accelerators",
        title="jaxmon / Accelerators",
        description=(
            "Load, memory, power and health of GPUs and TPUs, by the service that "
            "uses them; the last rows are of one vendor each."
        ),
        since="now-3h",
        variables=VARIABLES,
        annotations=EVENTS,
        rows=(
            devices.glance(slos),
            devices.worst(),
            accelerators.oncall().opened("Load and health"),
            accelerators.debug().opened("Power and identity"),
            gpus.debug(),
            tpus.debug(),
        ),
    )
