"""
Accelerators with the job that uses them.

Whoever reads an accelerator reports it: a sidecar beside the program, or a DaemonSet
under a job of its own. Agents export the uuid of each device that they use, which is
where the job comes from. A GPU that two jobs use counts for both.
"""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.hardware import GPUS
from jaxmon.catalog import Metric
from jaxmon.promql import Expr, gauge, re


_GPUS, _TPUS = re("uuid", "GPU-.+"), re("uuid", "TPU-.+")
_TPU = ("instance", "uuid")


def of_job(metric: Metric) -> Expr:
    """
    Return a gauge of the accelerators that the chosen processes use, by job and uuid; a
    TPU also by instance, as its uuid is only its position there.
    """
    gpus = gauge(catalog.DEVICE_INFO, *q.PROCESS, _GPUS).max("job", "uuid")
    chips = gauge(catalog.DEVICE_INFO, *q.PROCESS, _TPUS).max("job", *_TPU)
    of_gpus = gauge(metric, *GPUS).max("uuid")
    of_chips = gauge(metric, *q.HOST, _TPUS).max(*_TPU)
    found = gpus.joined(of_gpus, on=("uuid",), take=()).of_unit(metric.unit)
    return found.or_(chips.joined(of_chips, on=_TPU, take=()).of_unit(metric.unit))
