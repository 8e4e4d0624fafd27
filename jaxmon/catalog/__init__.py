"""
Every metric that jaxmon exports, once.

Agent, sidecar, dashboards, alerts, docs and tests refer to the constants in here; no
module outside this package spells a metric name. Names are complete as exposed (base
unit and ``_total`` included). See `docs/metrics.md`, which is generated from here.
"""

from __future__ import annotations

from jaxmon.catalog import (
    accelerators,
    calls,
    gpu_activity,
    gpus,
    host,
    indicators,
    memory,
    process,
    tpus,
)
from jaxmon.catalog.accelerators import *  # noqa: F403 - one table on several sheets
from jaxmon.catalog.calls import *  # noqa: F403
from jaxmon.catalog.gpu_activity import *  # noqa: F403
from jaxmon.catalog.gpus import *  # noqa: F403
from jaxmon.catalog.host import *  # noqa: F403
from jaxmon.catalog.indicators import *  # noqa: F403
from jaxmon.catalog.memory import *  # noqa: F403
from jaxmon.catalog.model import AGENT as AGENT
from jaxmon.catalog.model import BOTH as BOTH
from jaxmon.catalog.model import SIDECAR as SIDECAR
from jaxmon.catalog.model import Kind as Kind
from jaxmon.catalog.model import Metric as Metric
from jaxmon.catalog.model import Source as Source
from jaxmon.catalog.process import *  # noqa: F403
from jaxmon.catalog.tpus import *  # noqa: F403
from jaxmon.catalog.values import *  # noqa: F403


# As the documentation lists them.
_SHEETS = (
    calls,
    memory,
    indicators,
    process,
    host,
    accelerators,
    gpus,
    gpu_activity,
    tpus,
)

METRICS: tuple[Metric, ...] = tuple(
    value
    for sheet in _SHEETS
    for value in vars(sheet).values()
    if isinstance(value, Metric)
)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
