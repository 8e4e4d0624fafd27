"""The cgroup metrics of a process, from trees as the kernel lays them out."""

from pathlib import Path

from jaxmon.host.resources import container


STALLED = (
    "some avg10=0 avg60=0 avg300=0 total={}\nfull avg10=0 avg60=0 avg300=0 total={}\n"
)


def group(root: Path, name: str, **files: str) -> None:
    directory = root / "sys/fs/cgroup" / name.strip("/")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    for file, text in files.items():
        (directory / file.replace("__", ".")).write_text(text)


def process(root: Path, lines: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)


def told(root: Path) -> dict[str, float]:
    return {
        series: value
        for family in container.families(root)
        for series, value in family.samples
    }


def test_a_container_tells_memory_cpu_and_pressure(tmp_path: Path) -> None:
    """Every figure is the kernel's, in base units; the tightest limit around holds."""
    process(tmp_path, "0::/pod/app\n")
    group(
        tmp_path,
        "/pod/app",
        memory__current="3000\n",
        memory__max="max\n",
        memory__stat="anon 10\ninactive_file 1000\n",
        memory__events="low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\n",
        cpu__stat="usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\n"
        "nr_periods 5\nnr_throttled 1\nthrottled_usec 250000\n",
        cpu__max="150000 100000\n",
        cpu__pressure=STALLED.format(1_000_000, 0),
        memory__pressure=STALLED.format(2_000_000, 500_000),
        io__pressure=STALLED.format(0, 0),
    )
    group(tmp_path, "/pod", memory__max="8000\n", cpu__max="max 100000\n")
    group(tmp_path, "/", memory__max="9000\n")

    pressure = "jaxmon_container_pressure_seconds_total"
    assert told(tmp_path) == {
        "jaxmon_container_memory_used_bytes": 3000,
        "jaxmon_container_memory_working_set_bytes": 2000,
        "jaxmon_container_memory_limit_bytes": 8000,
        "jaxmon_container_oom_kills_total": 2,
        'jaxmon_container_cpu_seconds_total{mode="user"}': 2,
        'jaxmon_container_cpu_seconds_total{mode="system"}': 1,
        "jaxmon_container_cpu_throttled_seconds_total": 0.25,
        "jaxmon_container_cpu_limit": 1.5,
        f'{pressure}{{resource="cpu",kind="some"}}': 1,
        f'{pressure}{{resource="cpu",kind="full"}}': 0,
        f'{pressure}{{resource="memory",kind="some"}}': 2,
        f'{pressure}{{resource="memory",kind="full"}}': 0.5,
        f'{pressure}{{resource="io",kind="some"}}': 0,
        f'{pressure}{{resource="io",kind="full"}}': 0,
    }


def test_a_group_under_another_name_is_what_is_mounted(tmp_path: Path) -> None:
    """Without a namespace a container reads the host's name of its group."""
    process(tmp_path, "0::/kubepods/burstable/pod1/abc\n")
    group(tmp_path, "/", memory__current="5\n")

    assert told(tmp_path) == {"jaxmon_container_memory_used_bytes": 5}


def test_a_bare_host_tells_nothing(tmp_path: Path) -> None:
    """The root of all groups has no figures of its own."""
    process(tmp_path, "0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.stat").write_text("user_usec 1\n")

    assert told(tmp_path) == {}


def test_version_1_and_no_groups_tell_nothing(tmp_path: Path) -> None:
    """Where version 2 does not manage the process, nothing is guessed."""
    assert told(tmp_path) == {}
    process(tmp_path, "4:memory:/docker/abc\n1:cpu:/docker/abc\n")
    assert told(tmp_path) == {}


def test_files_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    """What is not a number is not exported."""
    process(tmp_path, "0::/app\n")
    group(
        tmp_path,
        "/app",
        memory__current="much\n",
        memory__stat="inactive_file\n",
        cpu__stat="user_usec x\n",
        cpu__max="0\n",
        cpu__pressure="some\nfull total=\n",
    )
    (tmp_path / "sys/fs/cgroup/app/io.pressure").write_bytes(b"\xff\xfe")

    assert told(tmp_path) == {}
