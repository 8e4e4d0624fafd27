"""How programs and sidecars meet, and what the examples and pages about it say."""

import json
import os
import re
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.agents import instrumented
from tests.helpers.processes import (
    ROOT,
    clean_environ,
    free_port,
    http_get,
    require_program,
    until,
)


SCRIPTS = Path(sysconfig.get_path("scripts"))


def test_a_shared_directory_lets_its_group_in(run_dir: Path) -> None:
    """In a directory with an fsGroup the socket is open to that group, only there."""
    group = os.getgid()
    if os.geteuid() == 0:
        group = 10001
        os.chown(run_dir, 0, group)
    for permissions, expected in ((0o2777, 0o660), (0o700, 0o600)):
        run_dir.chmod(permissions)
        with instrumented(socket=True, run_dir=str(run_dir)):
            status = (run_dir / "agent-0.sock").stat()
            assert stat.S_IMODE(status.st_mode) == expected
            if permissions & stat.S_ISGID:
                assert status.st_gid == group


def test_a_sidecar_reads_programs_of_another_user(run_dir: Path) -> None:
    """Two users meet by the directory's group, as in a pod, and without it do not."""
    program = (
        "import jaxmon, sys\n"
        "jaxmon.instrument(port=None)\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    # Not at once below the directory for temporary files, where an agent trusts only
    # what is its own.
    shared = run_dir / "shared"
    shared.mkdir()
    run_dir.chmod(0o711)
    environ = clean_environ(shared, HOME="/", PYTHONDONTWRITEBYTECODE="1")
    probe = (*user(1000, 1000), sys.executable, "-c", "import jaxmon")
    if subprocess.run(probe, env=environ, check=False).returncode:
        pytest.skip("cannot become another user here that reads this checkout")
    os.chown(shared, 0, 10001)
    shared.chmod(0o2777)
    port, other_port = free_port(), free_port()
    with (
        subprocess.Popen(
            (*user(1000, 1000, 10001), sys.executable, "-c", program),
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as agent,
        sidecar(user(10001, 10001), port, environ),
        sidecar(user(10002, 10002), other_port, environ),
    ):
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline()
            up = 'jaxmon_agent_up{worker="0"}'
            until(lambda: f"{up} 1" in page(port), "the program's series")
            until(lambda: f"{up} 0" in page(other_port), "a program out of reach")
            assert "jaxmon_hook_active" in page(port)
            assert "jaxmon_hook_active" not in page(other_port)
        finally:
            agent.communicate(timeout=240)


def user(uid: int, gid: int, *groups: int) -> tuple[str, ...]:
    """
    Return what runs a command as *uid*, who may read everything and write nothing of
    others: where Python is installed for root alone, it still starts.
    """
    listed = ",".join(map(str, (gid, *groups)))
    may_read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    ids = (f"--reuid={uid}", f"--regid={gid}", f"--groups={listed}")
    return (require_program("setpriv"), *ids, *may_read)


@contextmanager
def sidecar(
    as_user: tuple[str, ...], port: int, environ: dict[str, str]
) -> Iterator[None]:
    command = (*as_user, str(SCRIPTS / "jaxmon-exporter"), "--port", str(port))
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def page(port: int) -> str:
    """Return the page of the sidecar on *port*, nothing while it starts."""
    try:
        return http_get(f"http://127.0.0.1:{port}/metrics")
    except OSError:
        return ""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """
    Return the variables of a job on one node, with commands that stand for Slurm's.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    # srun's own options end where the command begins.
    for name, text in (
        ("srun", 'while [[ "$1" == --* ]]; do shift; done\nexec "$@"'),
        ("scontrol", "echo 127.0.0.1"),
    ):
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    targets = tmp_path / "targets"
    targets.mkdir()
    with tempfile.TemporaryDirectory(prefix="jm-", dir="/tmp") as run_dir:
        yield {
            "PATH": f"{programs}:{SCRIPTS}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NAME": 'train "\\ 2',
            "SLURM_JOB_NODELIST": "node[1]",
            "JAXMON_RUN_DIR": run_dir,
            "JAXMON_EXPORTER_PORT": str(free_port()),
            "JAXMON_TARGETS_DIR": str(targets),
        }


def test_slurm_job_has_a_sidecar_and_ends_as_its_program(tmp_path, slurm):
    """
    While the program runs, a file gives Prometheus the address of the sidecar, which
    serves; the job ends with the program's exit code, and leaves neither file nor
    process.
    """
    (tmp_path / "train.py").write_text(
        "import json, pathlib, sys, time, urllib.request\n"
        "path = pathlib.Path(sys.argv[1], '7.json')\n"
        "while not path.exists(): time.sleep(0.05)\n"
        "[group] = json.loads(path.read_text())\n"
        "while True:\n"
        "    try:\n"
        "        url = f'http://{group[\"targets\"][0]}/metrics'\n"
        "        page = urllib.request.urlopen(url, timeout=5).read()\n"
        "        break\n"
        "    except OSError: time.sleep(0.05)\n"
        "print(json.dumps({**group, 'page': b'jaxmon_build_info' in page}))\n"
        "sys.exit(3)\n"
    )
    done = subprocess.run(
        [
            "bash",
            str(ROOT / "examples/slurm/train.sbatch"),
            slurm["JAXMON_TARGETS_DIR"],
        ],
        cwd=tmp_path,
        env=clean_environ(**slurm),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "targets": [f"127.0.0.1:{slurm['JAXMON_EXPORTER_PORT']}"],
        "labels": {"job": "train __ 2"},
        "page": True,
    }
    assert list(Path(slurm["JAXMON_TARGETS_DIR"]).iterdir()) == []
    with pytest.raises(OSError, match="refused"):
        http_get(f"http://127.0.0.1:{slurm['JAXMON_EXPORTER_PORT']}/metrics")


def test_commands_in_the_deployment_page_are_there() -> None:
    """Each path that the page names exists, and each variable is a setting."""
    settings = (ROOT / "docs/settings.md").read_text()
    pages = [ROOT / "docs/deployment.md", *(ROOT / "exporters").glob("*/**/README.md")]
    assert len(pages) >= 4
    for page in pages:
        text = page.read_text()
        for path in re.findall(r"\b(?:exporters|examples)/[\w./-]+\w", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
        for name in re.findall(r"\bJAXMON_[A-Z_]+\b", text):
            assert f"`{name}`" in settings or name in SCRIPT_VARIABLES, name
        for options in re.findall(r"^jaxmon exporter (.+)$", text, re.MULTILINE):
            for option in re.findall(r"--[a-z-]+", options):
                assert f"`{option}`" in settings, option


# Of the Slurm example.
SCRIPT_VARIABLES = ("JAXMON_TARGETS_DIR",)
