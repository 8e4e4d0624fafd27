"""This process's own series, as Prometheus's own Python client has them."""

import os
import time
from pathlib import Path

import pytest

from jaxmon.catalog import METRICS, UPTIME_SECONDS
from jaxmon.host.resources import process
from jaxmon.host.resources.process import ProcessFamilies


def page(families: ProcessFamilies) -> dict[str, float]:
    """Return the exported values, by series."""
    return {
        name: value for family in families.collect() for name, value in family.samples
    }


def test_every_process_metric_of_the_catalogue_is_exported() -> None:
    """The catalogue's process group and the exported metrics are the same."""
    families = {family.metric for family in ProcessFamilies().collect()}
    families.remove(UPTIME_SECONDS)
    assert families == {metric for metric in METRICS if metric.group == "Process"}


def test_figures_are_those_of_prometheus_client() -> None:
    """Users who switch from its exporter to ours keep dashboards, and their meaning."""
    from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

    registry = CollectorRegistry()
    collectors = ProcessCollector(registry=registry), GCCollector(registry=registry)
    ours = page(ProcessFamilies())
    del ours[UPTIME_SECONDS.name]
    theirs = {
        sample.name
        + "".join(f'{{{key}="{value}"}}' for key, value in sample.labels.items()): (
            sample.value
        )
        for collector in collectors
        for metric in collector.collect()
        for sample in metric.samples
    }
    assert ours.keys() == theirs.keys()
    for name, tolerance in {
        "process_max_fds": 0,
        # It rounds the moment of the boot down to a second.
        "process_start_time_seconds": 1.1,
        "process_open_fds": 2,
        "process_cpu_seconds_total": 0.5,
        "process_virtual_memory_bytes": 64 << 20,
        "process_resident_memory_bytes": 64 << 20,
        'python_gc_collections_total{generation="2"}': 2,
    }.items():
        assert ours[name] == pytest.approx(theirs[name], abs=tolerance), name


def test_start_does_not_move() -> None:
    """The start time is the same at each poll, and before it."""
    families = ProcessFamilies()
    first = page(families)["process_start_time_seconds"]
    assert first <= time.time()
    assert page(families)["process_start_time_seconds"] == first


def test_uptime_is_by_the_clock_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the age of the process, and setting the time of day does not change it."""
    families = ProcessFamilies()
    before = time.monotonic()
    first = page(families)
    started, uptime = first["process_start_time_seconds"], first[UPTIME_SECONDS.name]
    assert uptime > 0
    assert started + uptime == pytest.approx(time.time(), abs=60)

    monkeypatch.setattr(process, "wall_time", lambda: time.time() + 3600)
    later = page(families)[UPTIME_SECONDS.name]
    assert uptime <= later <= uptime + time.monotonic() - before


def test_a_name_with_brackets_does_not_shift_the_fields(tmp_path: Path) -> None:
    """A process may be called anything, such as ``a) R 1 (b``."""
    own = Path("/proc/self/stat").read_text()
    rest = own.rpartition(")")[2]
    (tmp_path / "stat").write_text(f"1 (a) R 1 (b c){rest}")
    (tmp_path / "statm").write_text("3 2 1 0 0 0 0\n")
    (tmp_path / "fd").mkdir()
    page_size = os.sysconf("SC_PAGE_SIZE")
    page_size = os.sysconf("SC_PAGE_SIZE")
    told = page(ProcessFamilies(tmp_path))
    expected = page(ProcessFamilies())["process_start_time_seconds"]
    assert told["process_start_time_seconds"] == pytest.approx(expected, abs=0.1)
    assert told["process_virtual_memory_bytes"] == 3 * page_size
    assert told["process_resident_memory_bytes"] == 2 * page_size
    assert told["process_open_fds"] == 0


def test_what_the_system_hides_is_left_out(tmp_path: Path) -> None:
    """Without ``/proc``, what Python itself knows is exported."""
    told = page(ProcessFamilies(tmp_path))
    assert not {name for name in told if "memory" in name or "open" in name}
    assert "process_start_time_seconds" not in told
    assert UPTIME_SECONDS.name not in told
    assert told["process_cpu_seconds_total"] > 0
