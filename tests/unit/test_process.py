"""
This process's own series, converted from prometheus_client.
"""

from __future__ import annotations

import os
from pathlib import Path

from jaxmon.catalog import METRICS
from jaxmon.exposition.process import ProcessFamilies


def test_every_process_metric_of_the_catalogue_is_exported() -> None:
    """The catalogue's process group and the converter agree in both directions."""
    families = {family.metric for family in ProcessFamilies().collect()}
    assert families == {metric for metric in METRICS if metric.group == "Process"}


def test_figures_are_those_of_this_process() -> None:
    """Descriptors are those in /proc/self, and there are three GC generations."""
    page = {
        name: value
        for family in ProcessFamilies().collect()
        for name, value in family.samples
    }
    assert (
        abs(page["process_open_fds"] - len(list(Path("/proc/self/fd").iterdir()))) <= 2
    )
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    assert abs(page["process_resident_memory_bytes"] - resident) < 64 << 20
    generations = [name for name in page if name.startswith("python_gc_collections")]
    assert generations == [
        f'python_gc_collections_total{{generation="{number}"}}' for number in range(3)
    ]


def test_default_registry_stays_untouched() -> None:
    """Nothing is registered where the user's program registers its own."""
    from prometheus_client import REGISTRY

    before = set(REGISTRY._collector_to_names)
    ProcessFamilies().collect()
    assert set(REGISTRY._collector_to_names) == before
