"""
What each service uses of accelerators, whoever reads them.

A sidecar beside the program reads them, or a DaemonSet under a job of its own. Agents
export the uuid of each device that they use, which is where the job comes from. A GPU
that two jobs use counts for both.
"""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.overviews.model import HOST, Overview
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, gauge, re


_GPUS, _TPUS = re("uuid", "GPU-.+"), re("uuid", "TPU-.+")
# A TPU's uuid is only its position in its host.
_TPU = (*HOST, "uuid")


def _of_jobs(metric: Metric) -> Expr:
    gpus = gauge(catalog.DEVICE_INFO, _GPUS).max("job", "uuid")
    chips = gauge(catalog.DEVICE_INFO, _TPUS).max(*_TPU)
    values = gauge(metric, _GPUS).max("uuid")
    of_chips = gauge(metric, _TPUS).max(*_TPU)
    found = gpus.joined(values, on=("uuid",), take=()).or_(
        chips.joined(of_chips, on=_TPU, take=())
    )
    return found.of_unit(metric.unit)


UTILIZATION = Overview(
    "job",
    catalog.ACCELERATOR_UTILIZATION_RATIO,
    "avg",
    lambda _: _of_jobs(catalog.ACCELERATOR_UTILIZATION_RATIO).avg("job"),
)
POWER = Overview(
    "job",
    catalog.ACCELERATOR_POWER_WATTS,
    "sum",
    lambda _: _of_jobs(catalog.ACCELERATOR_POWER_WATTS).sum("job"),
)
PRICE = Overview(
    "job",
    catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR,
    "sum",
    lambda _: _of_jobs(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR).sum("job"),
)
TENSOR_CORES = Overview(
    "job",
    catalog.GPU_TENSOR_ACTIVE_RATIO,
    "avg",
    lambda _: _of_jobs(catalog.GPU_TENSOR_ACTIVE_RATIO).avg("job"),
)

HOSTS = (UTILIZATION, POWER, PRICE, TENSOR_CORES)
