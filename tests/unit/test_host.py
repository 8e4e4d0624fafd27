"""
The host collector, against what /proc says.
"""

from __future__ import annotations

import os
from pathlib import Path

from jaxmon.catalog import METRICS
from jaxmon_exporter.collectors.host import Host


def page() -> dict[str, float]:
    return {
        name: value for family in Host().collect() for name, value in family.samples
    }


def test_figures_agree_with_proc() -> None:
    """Memory, CPUs and CPU time are those of the kernel."""
    found = page()
    meminfo = dict(
        line.split(":") for line in Path("/proc/meminfo").read_text().splitlines()
    )
    total = int(meminfo["MemTotal"].split()[0]) * 1024
    assert found["jaxmon_host_memory_size_bytes"] == total
    assert 0 < found["jaxmon_host_memory_available_bytes"] < total
    assert found["jaxmon_host_cpus"] == os.cpu_count()
    ticks = Path("/proc/stat").read_text().splitlines()[0].split()
    user = int(ticks[1]) / os.sysconf("SC_CLK_TCK")
    mode = 'jaxmon_host_cpu_seconds_total{mode="user"}'
    assert abs(found[mode] - user) < 0.1 * user + 5


def test_guest_time_is_not_counted_twice() -> None:
    """Modes that the kernel also counts as user or nice time are left out."""
    assert not any("guest" in series for series in page())


def test_every_host_metric_of_the_catalogue_is_exported() -> None:
    """The catalogue's host group and the collector agree in both directions."""
    families = {family.metric for family in Host().collect()}
    assert families == {metric for metric in METRICS if metric.group == "Host"}
