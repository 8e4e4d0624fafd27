"""What is needed to find causes: which function, process and device, and why."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import VARIABLES
from jaxmon.artifacts.dashboards.events import EVENTS
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import (
    accelerators,
    calls,
    checks,
    compiles,
    errors,
    functions,
    gpus,
    memory,
    monitoring,
    processes,
    programs,
    ranks,
    requests,
    tpus,
    training,
    transfers,
)
from jaxmon.artifacts.slo import Slos


def board(slos: Slos) -> Dashboard:
    """Return the dashboard, with thresholds from *slos*."""
    return Dashboard(
        uid="jaxmon-debug",
        title="jaxmon / Debug",
        description=(
            "Which function, process and device, and why. Select them above; Service "
            "and Host narrow the other lists."
        ),
        since="now-1h",
        variables=VARIABLES,
        annotations=EVENTS,
        rows=(
            functions.debug(slos),
            calls.debug(),
            compiles.debug(slos),
            programs.debug(),
            requests.debug(),
            training.debug(),
            ranks.oncall(slos),
            memory.debug(),
            transfers.debug(),
            checks.debug(),
            errors.debug(),
            accelerators.debug(),
            gpus.debug(),
            tpus.debug(),
            processes.debug(),
            monitoring.debug(),
        ),
    )
