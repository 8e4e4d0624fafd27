"""Validates and relabels one agent's metrics."""

from __future__ import annotations

from jaxmon.catalog import BORROWED, BY_NAME, METRICS, Metric
from jaxmon.errors import PageError
from jaxmon.exposition.distributions import check_distribution
from jaxmon.exposition.encode import names_of
from jaxmon.exposition.families import Family
from jaxmon.exposition.parse import labels, parse, relabel, to_family
from jaxmon_exporter.polling import device_of


# An agent may be newer than this, but must not report that a target is down.
_OURS = ("jaxmon_", "process_", "python_")
# What is kept beyond a poll, such as how a new metric is introduced, must be short.
_LONGEST = 1000
_LONGEST_SERIES = 8192
_SHOWN = 80
_BORROWED = {metric.name for metric in BORROWED}
_CATALOGUE = {name for metric in METRICS for name in names_of(metric)}


def families(worker: str, page: str) -> list[Family]:
    """Return an agent's metrics with the label *worker*; `PageError` if invalid."""
    found = [
        # A device does not belong to the worker: others may use it, and the driver
        # reports it.
        to_family(
            family if family.name in _BORROWED else relabel(family, "worker", worker)
        )
        for family in parse(page)
    ]
    taken: dict[str, str] = {}
    for family in found:
        _check(family)
        _reserve_names(family.metric, taken)
    return found


def _reserve_names(metric: Metric, taken: dict[str, str]) -> None:
    """Add a metric's names to *taken*; `PageError` if another has one."""
    who = f"{metric.kind} {metric.name}"
    names = names_of(metric)
    for name in names:
        other = taken.get(name, who)
        if other != who:
            msg = f"{who} and {other} conflict and cannot be exported together"
            raise PageError(msg)
    taken.update(dict.fromkeys(names, who))


def compatible(
    page: list[Family], taken: dict[str, str]
) -> tuple[list[Family], list[PageError]]:
    """Return the families of *page* without names *taken*, and why not others."""
    kept, errors = [], []
    for family in page:
        try:
            if family.metric.name not in BY_NAME:
                _reserve_names(family.metric, taken)
        except PageError as error:
            errors.append(error)
        else:
            kept.append(family)
    return kept, errors


def _check(family: Family) -> None:
    """Reject metrics that agents may not export, wrong types and duplicate series."""
    if problem := _problem(family):
        raise PageError(problem)
    if family.metric.name in _BORROWED:
        _check_devices(family)
    if family.metric.kind in ("histogram", "summary"):
        check_distribution(family)


def _problem(family: Family) -> str:  # noqa: PLR0911 - each check has its own text
    name, names = family.metric.name, [series for series, _ in family.samples]
    metric = BY_NAME.get(name)
    if metric is None and len(name) + len(family.metric.help) > _LONGEST:
        return f"{name[:_SHOWN]} has a name and help of more than {_LONGEST} characters"
    if not name.startswith(_OURS):
        return f"{name} is not a jaxmon metric; names start with {', '.join(_OURS)}"
    if metric is not None and "agent" not in metric.sources:
        return f"{name} must not be exported by an agent"
    if metric is None and not _CATALOGUE.isdisjoint(names_of(family.metric)):
        return f"{name} collides with a sample name of a jaxmon metric"
    if metric is not None and metric is not family.metric:
        return f"{name} is a {family.metric.kind}; this sidecar has a {metric.kind}"
    if len(set(names)) < len(names):
        return f"{name} has a duplicate series"
    if max(map(len, names), default=0) > _LONGEST_SERIES:
        return f"{name} has a series of more than {_LONGEST_SERIES} characters"
    return ""


def _check_devices(family: Family) -> None:
    """Refuse what does not say of which device it is, or less than others rely on."""
    metric = family.metric
    for name, _ in family.samples:
        if len(name) > _LONGEST:
            msg = f"{metric.name} has a series of more than {_LONGEST} characters"
            raise PageError(msg)
        if not device_of(name):
            msg = f"{metric.name} does not start with a device uuid"
            raise PageError(msg)
        if missing := set(metric.labels) - labels(name).keys():
            msg = f"{metric.name} has no label {', '.join(sorted(missing))}"
            raise PageError(msg)
