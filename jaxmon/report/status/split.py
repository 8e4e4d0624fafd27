"""The processes of a reading, each by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeVar

from jaxmon.report.status.reading import Key, Reading


T = TypeVar("T")


def by_process(reading: Reading) -> dict[str, Reading]:
    """Return what *reading* says of each process; what belongs to none has ``""``."""
    values = _split(reading.values)
    histograms = _split(reading.histograms)
    sums: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for name, of in reading.sums.items():
        for worker, value in of.items():
            sums[worker][name] = {worker: value}
    return {
        worker: Reading(
            reading.time,
            values.get(worker, {}),
            histograms.get(worker, {}),
            sums.get(worker, {}),
        )
        for worker in {*values, *histograms, *sums}
    }


def _split(
    found: Mapping[str, Mapping[Key, T]],
) -> dict[str, dict[str, dict[Key, T]]]:
    split: dict[str, dict[str, dict[Key, T]]] = defaultdict(lambda: defaultdict(dict))
    for name, of in found.items():
        for key, value in of.items():
            split[key[0]][name][key] = value
    return {worker: dict(of) for worker, of in split.items()}
