"""
Which hardware belongs to the selected services: GPUs and hosts.

On one machine a sidecar reports programs and hardware under one job. In Kubernetes a
DaemonSet reports hardware under a separate job, and programs have sidecars, or none. So
GPUs are selected by their uuid, which agents export for the devices they use, and hosts
by their GPUs. A TPU's uuid is its position in its host; it is always read next to its
program.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxmon import catalog
from jaxmon.artifacts.dashboards.model import DependentVariable
from jaxmon.artifacts.dashboards.queries import FIRING, HOST, JOB, PROCESS
from jaxmon.artifacts.promql import (
    Expr,
    Matcher,
    alerts,
    alerts_since,
    counter,
    eq,
    gauge,
    gauge_over,
    ne,
    re,
    up,
)
from jaxmon.catalog import Metric


GPU, _TPU = re("uuid", "$gpu"), re("uuid", "TPU-.+")
_OF_GPU = re("instance", "$host")

_RANGE = "$__range"


def accelerator(metric: Metric) -> Expr:
    """
    Return a gauge of the selected GPUs, whichever sidecar reads them, and of the TPUs
    that the selected sidecars read.
    """
    return gauge(metric, GPU).or_(gauge(metric, *HOST, _TPU))


def host(metric: Metric, *matchers: Matcher) -> Expr:
    """
    Return a gauge of the selected sidecars, and of those that read the selected GPUs.
    """
    own = gauge(metric, *HOST, *matchers)
    return own.or_(gauge(metric, _OF_GPU, *matchers))


def host_rate(metric: Metric, *matchers: Matcher) -> Expr:
    """Return the rise per second of a counter of the same sidecars."""
    own = counter(metric, *HOST, *matchers).rate()
    return own.or_(counter(metric, _OF_GPU, *matchers).rate())


def targets() -> Expr:
    """
    Return whether Prometheus could scrape what is selected, and what reads its GPUs.
    """
    return up(*HOST).or_(up(_OF_GPU))


def firing(*matchers: Matcher) -> Expr:
    """
    Return the firing alerts about the selected services and the hardware they run on.
    """
    return _about_chosen(alerts, *FIRING, *matchers)


def firing_since() -> Expr:
    """
    Return since when alerts about the same have been pending or firing, as a Unix time.
    """
    return _about_chosen(alerts_since, *FIRING[:1])


def _about_chosen(series: Callable[..., Expr], *matchers: Matcher) -> Expr:
    # A variable without values matches what has no such label: at a site without GPUs
    # that would be the alerts of every service.
    gpus = series(*matchers, GPU, ne("uuid", ""))
    # Of a host that programs share, but not about the GPUs of others.
    hosts = series(*matchers, _OF_GPU, ne("instance", ""), eq("uuid", ""))
    return series(JOB, *matchers).or_(gpus).or_(hosts)


def _seen(metric: Metric, *matchers: Matcher) -> Expr:
    return gauge_over(metric, "last", _RANGE, *matchers)


def _gpus() -> Expr:
    """
    Return the GPUs that the chosen processes use or the chosen sidecars read, by uuid.
    """
    used = _seen(catalog.DEVICE_INFO, *PROCESS).max("uuid")
    read = _seen(catalog.ACCELERATOR_INFO, *PROCESS).max("uuid")
    parts = _seen(catalog.GPU_MIG_INFO, *PROCESS).max("uuid")
    # Heat, power and errors are the whole GPU's, of which the program knows a part.
    whole = _seen(catalog.GPU_MIG_INFO).and_(used, "uuid").max("parent")
    return used.or_(read).or_(parts).or_(whole.relabelled("uuid", "parent"))


VARIABLES = (
    DependentVariable(
        name="gpu",
        title="GPU",
        label="uuid",
        values='(?:GPU|MIG)-[^"]+',
        expr=_gpus(),
        text=(
            "GPUs used by the selected processes or read by the selected sidecars, "
            "whatever their job."
        ),
    ),
    DependentVariable(
        name="host",
        title="Hosts of GPUs",
        label="instance",
        values='[^"]+',
        expr=_seen(catalog.ACCELERATOR_INFO, GPU).max("instance"),
        text="The sidecars that read the selected GPUs.",
        hidden=True,
    ),
)
