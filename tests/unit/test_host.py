"""The host collector, against what /proc says."""

import os
import shutil
from pathlib import Path

import pytest

from jaxmon.catalog import COLLECTOR_ERRORS, METRICS
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
    own = {metric for metric in METRICS if metric.group == "Host"}
    assert families - {COLLECTOR_ERRORS} == own


def test_pressure_is_the_kernels(tmp_path: Path) -> None:
    """Stalled time is exported in seconds, for what the kernel reports."""
    pressure = tmp_path / "proc/pressure"
    pressure.mkdir(parents=True)
    line = "avg10=0.00 avg60=0.12 avg300=0.50 total={}"
    (pressure / "cpu").write_text(f"some {line.format(2_500_000)}\n")
    (pressure / "io").write_text(
        f"some {line.format(7_000_000)}\nfull {line.format(500_000)}\nfull total=x\n"
    )

    assert of(Host(root=tmp_path), "jaxmon_host_pressure_seconds_total") == {
        'resource="cpu",kind="some"': 2.5,
        'resource="io",kind="some"': 7.0,
        'resource="io",kind="full"': 0.5,
    }


def card(root: Path, name: str, received: str, sent: str, *, real: bool) -> None:
    statistics = root / "sys/class/net" / name / "statistics"
    statistics.mkdir(parents=True)
    (statistics / "rx_bytes").write_text(f"{received}\n")
    (statistics / "tx_bytes").write_text(f"{sent}\n")
    if real:
        (root / "sys/class/net" / name / "device").mkdir()


def test_traffic_is_told_of_network_cards_only(tmp_path: Path) -> None:
    """Bridges and tunnels repeat what went over a card; loopback is no network."""
    card(tmp_path, "eth0", "1000", "20", real=True)
    card(tmp_path, "eth1", "nonsense", "1", real=True)
    card(tmp_path, "docker0", "900", "10", real=False)
    card(tmp_path, "lo", "5", "5", real=False)
    host = Host(root=tmp_path)

    assert of(host, "jaxmon_host_network_receive_bytes_total") == {
        'interface="eth0"': 1000
    }
    assert of(host, "jaxmon_host_network_transmit_bytes_total") == {
        'interface="eth0"': 20
    }


def test_a_container_shows_its_own_end_of_the_cable(tmp_path: Path) -> None:
    """If no card is visible, what is visible is exported, up to a bound."""
    for number in range(40):
        card(tmp_path, f"veth{number:02}", str(number), "0", real=False)

    found = of(Host(root=tmp_path), "jaxmon_host_network_receive_bytes_total")
    assert list(found.values()) == list(range(16))


def test_disks_agree_with_the_system(tmp_path: Path) -> None:
    """Size and space of a directory's file system are those of statvfs."""
    found = of(Host(directories=[tmp_path]), "jaxmon_host_disk_size_bytes")
    disk = os.statvfs(tmp_path)

    assert found == {f'directory="{tmp_path}"': disk.f_blocks * disk.f_frsize}


def test_a_directory_that_is_gone_is_a_counted_failure(tmp_path: Path) -> None:
    """The others are reported all the same."""
    host = Host(directories=[tmp_path / "gone", tmp_path])

    assert len(of(host, "jaxmon_host_disk_available_bytes")) == 1
    assert of(host, "jaxmon_collector_errors_total") == {
        'collector="host",reason="directory_unreadable"': 2
    }


def of(host: Host, name: str) -> dict[str, float]:
    (family,) = (found for found in host.collect() if found.metric.name == name)
    return {
        series.partition("{")[2].rstrip("}"): value for series, value in family.samples
    }


def test_what_a_host_does_not_tell_is_left_out(tmp_path: Path) -> None:
    """A sandbox without ``/proc`` costs those figures and no others."""
    names = {family.metric.name for family in Host(root=tmp_path).collect()}
    assert "jaxmon_host_memory_size_bytes" not in names
    assert "jaxmon_host_cpus" in names


@pytest.mark.filterwarnings("ignore:.*memory stats:RuntimeWarning")
def test_files_that_were_emptied_cost_themselves(tmp_path: Path) -> None:
    """Sandboxes put empty files over what they hide; the rest is exported."""
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/cpu").write_text("some avg10=0 total=2000000\n")
    for name in ("stat", "meminfo", "loadavg"):
        (tmp_path / "proc" / name).touch()
    told = {
        family.metric.name for family in Host(root=tmp_path).collect() if family.samples
    }
    assert told >= {"jaxmon_host_cpus", "jaxmon_host_pressure_seconds_total"}
    assert told.isdisjoint({"jaxmon_host_cpu_seconds_total", "jaxmon_host_load1"})


def test_a_card_that_comes_later_is_told(tmp_path: Path) -> None:
    """Cards are looked for again when an interface came or went."""
    host = Host(root=tmp_path)
    card(tmp_path, "eth0", "1", "1", real=True)
    name = "jaxmon_host_network_receive_bytes_total"
    assert of(host, name) == {'interface="eth0"': 1}
    card(tmp_path, "eth1", "2", "1", real=True)
    assert of(host, name) == {'interface="eth0"': 1, 'interface="eth1"': 2}
    shutil.rmtree(tmp_path / "sys/class/net/eth0")
    assert of(host, name) == {'interface="eth1"': 2}
