"""Every sheet of the catalogue, and every metric."""

from __future__ import annotations

from jaxmon.catalog import accelerators, calls, gpus, host, indicators, process
from jaxmon.catalog.accelerators import *  # noqa: F403 - one table on several sheets
from jaxmon.catalog.gpus import *  # noqa: F403
from jaxmon.catalog.host import *  # noqa: F403
from jaxmon.catalog.model import Metric


# As the documentation lists them.
_SHEETS = (calls, indicators, process, host, accelerators, gpus)

METRICS: tuple[Metric, ...] = tuple(
    value
    for sheet in _SHEETS
    for value in vars(sheet).values()
    if isinstance(value, Metric)
)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
