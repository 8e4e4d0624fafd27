"""
Decides which of two collectors provides a series.

Our own driver readings take precedence, because they are fresher and their meaning is
known. Another exporter only fills gaps: series that none of our collectors currently
provides. So a series is never exported twice, and gaps are filled automatically if a
driver is missing, too old or hung.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from jaxmon import catalog
from jaxmon.exposition.families import Family, Sample, samples_of, series


_UUID = re.compile(r'\{uuid="([^"\\]*)"')
_BORROWED = {metric.name for metric in catalog.BORROWED}
_SENT_BY_NVLINK = catalog.GPU_NVLINK_TRANSMIT_BYTES
COUNTERS = {
    catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND.name: catalog.GPU_PCIE_TRANSMIT_BYTES,
    catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND.name: catalog.GPU_PCIE_RECEIVE_BYTES,
    catalog.GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND.name: _SENT_BY_NVLINK,
    catalog.GPU_NVLINK_RECEIVE_BYTES_PER_SECOND.name: catalog.GPU_NVLINK_RECEIVE_BYTES,
}
"""
Counters by the rate metric they replace: rates are only for devices without counters.
"""


def instance(uuid: str, number: str) -> str:
    """Return the name of a GPU instance, for which `unserved` puts MIG's UUIDs."""
    return f"{uuid}/{number}"


def unserved(
    first: Sequence[Family],
    second: Iterable[Family],
    *,
    all_gpus: bool = False,
    all_rates: bool = False,
) -> list[Family]:
    """
    Return the series of *second*, of another exporter, that are not in *first*. Of GPUs
    that *first* does not know, although it knows some, only with *all_gpus*: in a
    container not all may be visible; rates of what *first* counts, only with
    *all_rates*.
    """
    served = {name for family in first for name, _ in family.samples}
    ours = _identities(first)
    instances = _instances(first)
    found = []
    for family in second:
        kept: list[Sample] = []
        for sample in family.samples:
            for uuid, name, value in _named(sample, instances):
                if uuid is not None:
                    if (
                        family.metric.name == catalog.ACCELERATOR_INFO.name
                        and uuid in ours
                    ):
                        continue
                    if ours and not all_gpus and uuid not in ours:
                        continue
                    counter = COUNTERS.get(family.metric.name)
                    if counter and not all_rates and series(counter, uuid) in served:
                        continue
                if name not in served:
                    served.add(name)
                    kept.append((name, value))
        found.append(Family(family.metric, kept))
    return found


def unowned(families: Sequence[Family], owned: set[str]) -> list[Family]:
    """
    Return *families* without devices in *owned*, and add theirs to it: of several
    agents and a driver that know a device, the first provides all of its metrics.
    """
    described = {device_of(name) for name, _ in samples_of(families, *catalog.BORROWED)}
    described |= _identities(families)
    found = list(families)
    if not described.isdisjoint(owned):
        found = [
            Family(
                family.metric,
                [
                    sample
                    for sample in family.samples
                    if device_of(sample[0]) not in owned
                ],
            )
            if family.metric.name in _BORROWED
            else family
            for family in families
        ]
    owned |= described
    return found


def device_of(name: str) -> str:
    """Return the UUID in a series of a device, ``""`` if it is not the first label."""
    match = _UUID.search(name)
    return match[1] if match else ""


def _named(
    sample: Sample, instances: dict[str, list[str]]
) -> Iterator[tuple[str | None, str, float]]:
    """Yield device, series and value; an instance becomes its MIG devices, if any."""
    name, value = sample
    match = _UUID.search(name)
    if match is None:
        yield None, name, value
    elif "/" not in match[1]:
        yield match[1], name, value
    else:
        for uuid in instances.get(match[1], ()):
            yield uuid, f"{name[: match.start(1)]}{uuid}{name[match.end(1) :]}", value


def _identities(families: Iterable[Family]) -> set[str]:
    found = samples_of(families, catalog.ACCELERATOR_INFO, catalog.GPU_MIG_INFO)
    return {device_of(name) for name, _ in found}


def _instances(families: Iterable[Family]) -> dict[str, list[str]]:
    from jaxmon.exposition.parse import labels  # noqa: PLC0415 - few have instances

    found: dict[str, list[str]] = {}
    for name, _ in samples_of(families, catalog.GPU_MIG_INFO):
        device = labels(name)
        key = instance(device["parent"], device["gpu_instance"])
        found.setdefault(key, []).append(device["uuid"])
    return found
