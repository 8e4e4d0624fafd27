"""The Debug dashboard: which function, which process, which device, and why."""

from __future__ import annotations

from jaxmon.artifacts.dashboards.choices import ANNOTATIONS, VARIABLES
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.rows import (
    accelerators,
    errors,
    functions,
    gpus,
    memory,
    monitoring,
    processes,
    programs,
    requests,
    tpus,
    training,
    transfers,
)
from jaxmon.artifacts.dashboards.rows import calls as execution
from jaxmon.artifacts.dashboards.rows import checks as determinism
from jaxmon.artifacts.dashboards.rows import compiles as compilation
from jaxmon.artifacts.slo import Slos


def dashboard(slos: Slos) -> Dashboard:
    """Return the dashboard with the thresholds of *slos*."""
    return Dashboard(
        uid="jaxmon-debug",
        title="jaxmon / Debug",
        description="Which function, which process, which device, and why. Choose "
        "them above; Service and Host narrow the other choices.",
        since="now-1h",
        variables=VARIABLES,
        annotations=ANNOTATIONS,
        rows=(
            functions.debug(slos),
            execution.debug(),
            compilation.debug(),
            programs.debug(),
            requests.debug(),
            training.debug(),
            memory.debug(),
            transfers.debug(),
            determinism.debug(),
            errors.debug(),
            accelerators.debug(),
            gpus.debug(),
            tpus.debug(),
            processes.debug(),
            monitoring.debug(),
        ),
    )
