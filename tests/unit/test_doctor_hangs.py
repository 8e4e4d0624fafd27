"""What `jaxmon doctor` says about hangs of jobs of several processes."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jaxmon.preflight.doctor import Check, environment
from jaxmon.preflight.doctor.environment import processes_with
from jaxmon.screens.timeouts import TIMEOUTS, timeout
from tests.helpers.findings import by_status


GPU, CPU = TIMEOUTS["gpu"].flag, TIMEOUTS["cpu"].flag
JOB = {"SLURM_NTASKS": "4"}
PACKAGES = {"jaxlib": "0.10.2", "jax-cuda12-plugin": "0.10.2"}
QUIET: dict[str, Any] = {"processes": lambda _: []}


def check(environ: Mapping[str, str], **packages: str) -> list[Check]:
    """Return what is found with these packages besides the usual ones."""
    known = PACKAGES | {name.replace("_", "-"): text for name, text in packages.items()}
    return list(environment.hangs(environ, known.get))


def test_a_job_without_a_limit_is_advised() -> None:
    """Of several processes, on a platform and with a jaxlib that has one."""
    [found] = check(JOB)
    assert found.status == "note"
    assert "with no time limit" in found.text
    assert f"XLA_FLAGS={GPU}=30m" in found.advice
    assert "a legitimate pause that is longer ends the job" in found.advice

    for environ in ({}, {"SLURM_NTASKS": "1"}, {"SLURM_NTASKS": "many"}):
        assert check(environ) == []
    assert check(JOB, jaxlib="0.8.2") == []
    assert check(JOB, libtpu="0.0.21") == []
    assert check(JOB | {"JAX_PLATFORMS": "tpu"}) == []
    # This one has a default.
    [found] = check({"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_PLATFORMS": "cpu"})
    assert (found.status, found.text.split()[0]) == ("ok", f"{CPU}=1800")


def test_a_limit_that_is_set_is_in_order() -> None:
    """The one for the start of NCCL is no limit for a hang."""
    [found] = check(JOB | {"XLA_FLAGS": f"--xla_a=1 {GPU}=10m"})
    assert (found.status, found.text.split()[0]) == ("ok", f"{GPU}=10m")
    [found] = check(JOB | {"XLA_FLAGS": "--xla_gpu_nccl_termination_timeout_seconds=9"})
    assert found.status == "note"
    assert "applies only while NCCL is set up" in found.text


def test_a_flag_that_would_abort_the_process_is_found() -> None:
    """Also in a job of one process."""
    [found] = check({"XLA_FLAGS": f"{GPU}=10m"}, jaxlib="0.9.0")
    assert found.status == "warning"
    assert "XLA aborts at flags that it does not know" in found.advice
    [found] = check({"XLA_FLAGS": f"{GPU}=600"})
    assert (found.status, found.text.split()[-1]) == ("warning", "unit")


def test_flags_are_those_of_this_jaxlib() -> None:
    """XLA itself accepts those that are named, and aborts at a misspelled one."""
    for flag, known in (
        (" ".join(of.assignment.partition("=")[2] for of in TIMEOUTS.values()), True),
        (f"{GPU}_x=30m", False),
        (f"{GPU}=600", False),
    ):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from jaxlib import xla_client as c\nc.make_cpu_client()",
            ],
            env={**os.environ, "XLA_FLAGS": flag},
            capture_output=True,
            check=False,
            text=True,
        )
        assert (done.returncode == 0) is known, done.stderr
        assert ("Unknown flag" in done.stderr) is ("_x=" in flag)
    import jaxlib

    for platform in ("cuda", "gpu", "cpu"):
        assert timeout(platform, jaxlib.__version__) is not None
    assert timeout("tpu", jaxlib.__version__) is None
    assert timeout("gpu", "strange") is None


def ras(
    environ: Mapping[str, str], version: str = "", **options: Any
) -> dict[str, list[str]]:
    """Return what is found about the RAS of NCCL, which has this version."""
    packages = {"nvidia-nccl-cu12": version}
    found = environment.nccl(environ, packages.get, **{**QUIET, **options})
    return by_status([one for one in found if "Inspector" not in one.text])


def test_without_nccl_nothing_is_said() -> None:
    """Nor about a job of one process."""
    assert ras(JOB) == {}
    assert ras({"NCCL_RAS_ENABLE": "0"}, "2.27.3") == {}


def test_a_disabled_or_missing_ras_is_found() -> None:
    """NCCL before 2.24 has none."""
    assert ras(JOB, "2.28.9") == {"ok": ["NCCL 2.28.9 with RAS"]}
    assert list(ras(JOB, "2.23.4")) == ["note"]
    assert list(ras({**JOB, "NCCL_RAS_ENABLE": "0"}, "2.28.9")) == ["warning"]


def test_a_process_that_uses_nccl_should_be_reachable(tmp_path: Path) -> None:
    """If no process listens where its RAS should, that is said, with the process."""
    one = tmp_path / "proc/4711"
    one.mkdir(parents=True)
    (one / "maps").write_text("7f00-7f01 r-xp 0 08:01 5 /usr/lib/libnccl.so.2.28.9\n")
    other = tmp_path / "proc/4712"
    other.mkdir()
    (other / "maps").write_text("7f00-7f01 r-xp 0 08:01 5 /usr/lib/libc.so.6\n")
    (tmp_path / "proc/uptime").write_text("1 1")
    assert processes_with("libnccl.so", tmp_path) == [4711]

    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        found = ras({"NCCL_RAS_ADDR": place}, processes=lambda _: [4711])
        assert found == {"ok": [f"NCCL's RAS listens at {place} (pid 4711)"]}
    found = ras({"NCCL_RAS_ADDR": place}, processes=lambda _: [4711])
    assert found == {
        "note": [f"pid 4711 use NCCL, but its RAS does not listen at {place}"]
    }
    found = ras({"NCCL_RAS_ADDR": "nonsense"}, processes=lambda _: [1, 2, 3, 4])
    assert list(found) == ["note"]


def test_this_process_has_loaded_its_own_libraries() -> None:
    """As the kernel says."""
    assert os.getpid() in processes_with("libc.so")
    assert processes_with("no-such-library") == []


@pytest.mark.parametrize("state", ["hung", "progressing"])
def test_a_hang_is_told_what_would_have_ended_it(state: str) -> None:
    """On the platform and with the jaxlib of its ranks, and if no limit is set."""
    from jaxmon.facts.host import host
    from jaxmon.job.text import time_limit
    from jaxmon.job.verdict import judge
    from tests.job.ranks import waiting

    def text(**setup: str) -> str:
        ranks = waiting(4, age=60.0 if state == "hung" else 0.1)
        for one in ranks:
            one["setup"] = "s"
        found = judge([host("h", {"ranks": ranks, "setups": {"s": setup}})])
        return time_limit(found.jobs[0])

    gpu = {"platform": "gpu", "jaxlib": "0.10.2"}
    if state != "hung":
        assert text(**gpu) == ""
        return
    assert text(**gpu).startswith(f"no time limit ends this. XLA_FLAGS={GPU}=30m")
    cpu = {"platform": "cpu", "jaxlib": "0.10.2"}
    assert text(**cpu).startswith(f"{CPU} is 1800: it raises an error")
    assert text(**cpu, **{f"XLA_FLAGS {CPU}": "60"}).startswith(f"{CPU} is 60: it")
    assert text(**gpu, **{f"XLA_FLAGS {GPU}": "10m"}).startswith(f"{GPU} is 10m: it")
    assert text(platform="gpu", jaxlib="0.8.2") == ""
    assert text(platform="tpu", jaxlib="0.10.2") == ""
    assert text() == ""
