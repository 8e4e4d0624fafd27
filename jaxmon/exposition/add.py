"""Adds the counts of one set of families to those of another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from jaxmon.catalog import AGENT, OTLP_EXPORTS, PROGRAMS, RUNS_GROUP, Metric
from jaxmon.errors import PageError
from jaxmon.exposition.families import Family, Sample


def lasting(families: Iterable[Family]) -> list[Family]:
    """Return those *families* that outlive the process of an agent: its counts."""
    return [family for family in families if _lasts(family.metric)]


def _lasts(metric: Metric) -> bool:
    if metric.kind not in ("counter", "histogram") or metric.group == RUNS_GROUP:
        return False
    # How many programs a process has is read as such. Which agents push must be known
    # of ended ones as well.
    is_agents = metric.sources == AGENT and metric.name != PROGRAMS.name
    return is_agents or metric.name == OTLP_EXPORTS.name


def prepare() -> None:
    """Import what `read` needs: an import at exit would hide an interrupt's code."""
    import jaxmon.exposition.parse  # noqa: F401, PLC0415 - few processes need it


def read(text: str) -> list[Family]:
    """Return the families in *text* that outlive a process, or raise `PageError`."""
    # Few processes need them, and only when they exit.
    from jaxmon.catalog import BY_NAME  # noqa: PLC0415
    from jaxmon.exposition import parse  # noqa: PLC0415

    found = lasting(map(parse.to_family, parse.parse(text)))
    found = [of for of in found if BY_NAME.get(of.metric.name) is of.metric]
    for family in found:
        if len(dict(family.samples)) < len(family.samples):
            msg = f"{family.metric.name} has a duplicate series"
            raise PageError(msg)
        if family.metric.kind == "histogram":
            parse.check_histogram(family)
    return found


def added(families: Iterable[Family], before: Iterable[Family]) -> list[Family]:
    """Return *families* with the counts *before* added; 0.3 to 1.4 µs each sample."""
    earlier = {family.metric.name: family for family in before}
    found = []
    for family in families:
        past = earlier.pop(family.metric.name, None)
        if past is not None and past.metric.kind == family.metric.kind:
            found.append(family._replace(samples=_sums(family, past)))
        else:
            found.append(family)
    return [*found, *earlier.values()]


def _sums(family: Family, past: Family) -> list[Sample]:
    if (sums := _pairwise(family.samples, past.samples)) is not None:
        return sums
    if family.metric.kind != "histogram":
        rest = dict(past.samples)
        sums = [(name, value + rest.pop(name, 0)) for name, value in family.samples]
        return [*sums, *rest.items()]
    groups = dict(_histograms(past))
    sums = []
    for labels, samples in _histograms(family):
        sums += _pairwise(samples, groups.pop(labels, [])) or samples
    for samples in groups.values():
        sums += samples
    return sums


def _pairwise(samples: list[Sample], past: list[Sample]) -> list[Sample] | None:
    """Return the sums of the same series in the same order, `None` if they differ."""
    if [name for name, _ in samples] != [name for name, _ in past]:
        return None
    pairs = zip(samples, past, strict=True)
    return [(name, value + count) for (name, value), (_, count) in pairs]


def _histograms(family: Family) -> Iterator[tuple[str, list[Sample]]]:
    length = len(family.metric.name)

    def labels(sample: Sample) -> str:
        text = sample[0][length:].partition("{")[2].removesuffix("}")
        # The label of a bucket is the last one.
        is_bucket = sample[0].startswith("_bucket{", length)
        return text.rpartition('le="')[0].rstrip(",") if is_bucket else text

    for key, samples in groupby(family.samples, labels):
        yield key, list(samples)
