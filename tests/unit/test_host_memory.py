"""The host's memory, from a directory that stands for the root of a system."""

import os
import resource
from pathlib import Path

from jaxmon.facts.memory import HostMemory
from jaxmon.host.resources import container


PAGE = os.sysconf("SC_PAGE_SIZE")
GIB = 1 << 30


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def memory(root: Path = Path("/")) -> HostMemory:
    return HostMemory(**container.memory(root))


PROCESS = {
    "proc/self/statm": "1000 200 50 1 0 60 0\n",
    "proc/meminfo": "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n",
}


def test_figures_of_the_process_and_the_host(tmp_path: Path) -> None:
    """Pages become bytes; a system without cgroups has none."""
    found = memory(system(tmp_path, PROCESS))

    assert found.virtual == 1000 * PAGE
    assert found.resident == 200 * PAGE
    assert found.available == 8192 * 1024
    assert found.cgroup is None
    assert found.cgroup_limit is None


def test_the_cgroup_that_has_least_left_counts(tmp_path: Path) -> None:
    """Limits hold at every level; version 2 writes ``max`` where there is none."""
    base = "sys/fs/cgroup/pod"
    files = {
        "proc/self/cgroup": "0::/pod/main/inner\n",
        f"{base}/main/inner/memory.max": "max\n",
        f"{base}/main/inner/memory.current": "5\n",
        f"{base}/main/memory.max": "800\n",
        f"{base}/main/memory.current": "500\n",
        f"{base}/memory.max": "1000\n",
        f"{base}/memory.current": "900\n",
    }

    found = memory(system(tmp_path, {**PROCESS, **files}))

    assert (found.cgroup, found.cgroup_limit) == (900, 1000)


def test_files_that_were_read_are_no_memory_in_use(tmp_path: Path) -> None:
    """The kernel counts them, up to the limit, and drops them when memory is needed."""
    stat = "anon 100\ninactive_file 700\nactive_file 50\ntotal_inactive_file 600\n"
    used = {
        "sys/fs/cgroup": ("0::/\n", "memory.current", "memory.max"),
        "sys/fs/cgroup/memory": (
            "4:memory:/\n",
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
        ),
    }
    found = []
    for base, (group, current, most) in used.items():
        files = {
            "proc/self/cgroup": group,
            f"{base}/{current}": "990\n",
            f"{base}/{most}": "1000\n",
            f"{base}/memory.stat": stat,
        }
        root = system(tmp_path / current, {**PROCESS, **files})
        found.append(memory(root).cgroup)

    assert found == [290, 390]


def test_a_container_sees_its_cgroup_as_the_root(tmp_path: Path) -> None:
    """The name that the kernel reports is the outer one."""
    files = {
        "proc/self/cgroup": "0::/../../kubepods/pod1\n",
        "sys/fs/cgroup/memory.max": "2000\n",
        "sys/fs/cgroup/memory.current": "100\n",
    }

    found = memory(system(tmp_path, {**PROCESS, **files}))

    assert (found.cgroup, found.cgroup_limit) == (100, 2000)


def test_version_1_of_cgroups(tmp_path: Path) -> None:
    """There, no limit is a number near the largest one."""
    base = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "3:cpu,cpuacct:/a\n2:memory:/a\n",
        f"{base}/a/memory.limit_in_bytes": "9223372036854771712\n",
        f"{base}/memory.limit_in_bytes": "3000\n",
        f"{base}/memory.usage_in_bytes": "10\n",
    }

    found = memory(system(tmp_path, {**PROCESS, **files}))

    assert (found.cgroup, found.cgroup_limit) == (10, 3000)


def test_an_empty_system_tells_nothing(tmp_path: Path) -> None:
    """What cannot be read is unknown, not an error."""
    found = memory(tmp_path)

    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    assert found == HostMemory(virtual_limit=found.virtual_limit)
    assert (found.virtual_limit is not None) is limited
    assert limited or found.room is None


def test_the_real_system_tells_about_this_process() -> None:
    """Resident memory is part of the address space, and more than a few megabytes."""
    found = memory()

    assert found.resident is not None
    assert found.virtual is not None
    assert 1 << 20 < found.resident < found.virtual


def test_the_tightest_limit_decides_what_room_there_is() -> None:
    """Little is less than 256 MiB; more in use than allowed is none."""
    roomy = HostMemory(virtual=GIB, virtual_limit=4 * GIB, available=2 * GIB)
    tight = HostMemory(
        virtual=GIB, virtual_limit=4 * GIB, cgroup=GIB, cgroup_limit=GIB + 1000
    )

    assert (roomy.room, roomy.is_tight) == (2 * GIB, False)
    assert (tight.room, tight.is_tight) == (1000, True)
    assert HostMemory(cgroup=2, cgroup_limit=1).room == 0
    assert (HostMemory().room, HostMemory().is_tight) == (None, False)
