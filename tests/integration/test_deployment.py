"""
What the images and examples do, as far as that shows without containers or clusters.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from jaxmon.exposition.parse import parse
from tests.instrumented import instrumented
from tests.support import (
    ROOT,
    clean_environ,
    free_port,
    http_get,
    require_program,
    until,
)


DOCKER = ROOT / "exporters/docker"
HEALTHCHECK = DOCKER / "healthcheck.py"
EXTRAS = ("nvidia", "tpu", "web")
SCRIPTS = Path(sysconfig.get_path("scripts"))


def test_every_path_that_the_dockerfile_copies_is_there() -> None:
    """
    What is copied from the checkout exists, and its ignore file lets it through.
    """
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source
        for name, arguments in instructions(DOCKER / "Dockerfile")
        if name == "COPY" and not arguments[0].startswith("--from")
        for source in arguments[:-1]
    }
    assert "pyproject.toml" in copied
    assert copied - {path for path in copied if (ROOT / path).exists()} == set()
    assert copied == allowed


def test_dockerfile_ends_as_a_number_that_is_not_root() -> None:
    """
    The image runs jaxmon-exporter as a numeric user, and checks its health with a file
    that it has.
    """
    found = instructions(DOCKER / "Dockerfile")
    last = dict(found)
    copied = [one for name, one in found if name == "COPY"]

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"][0])
    assert json.loads(" ".join(last["ENTRYPOINT"])) == ["jaxmon-exporter"]
    assert last["EXPOSE"] == ["9467"]
    check = json.loads(" ".join(last["HEALTHCHECK"]).partition(" CMD ")[2])
    assert check[0] == "python"
    assert [HEALTHCHECK.relative_to(ROOT).as_posix(), check[1]] in copied


def test_requirements_are_everything_that_the_sidecar_needs() -> None:
    """
    Without resolving dependencies nothing is missing from the image, nothing is there
    that is not needed, and each version is pinned.
    """
    listed = {
        canonicalize_name(line)
        for line in (DOCKER / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    pins = {
        canonicalize_name(line.partition("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert listed == needed()
    assert listed <= pins


@pytest.mark.timeout(420)
def test_image_can_be_put_together_and_serves(tmp_path: Path) -> None:
    """
    The commands of the Dockerfile, run on what it copies, with the image's paths moved:
    the listed packages and the wheel, each without dependencies, make a jaxmon-exporter
    that serves its page, and whose health check says so.
    """
    source, target = copied_sources(tmp_path / "src"), tmp_path / "opt"
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    commands = 0
    for name, arguments in instructions(DOCKER / "Dockerfile"):
        text = " ".join(arguments)
        text = text.replace("/opt/jaxmon", str(target)).replace("/src", str(source))
        if name == "FROM" and commands:
            break
        if name == "ENV":
            environ |= dict(one.split("=", 1) for one in shlex.split(text))
        if name == "RUN":
            run("bash", "-euc", text, cwd=source, environ=environ)
            commands += 1
    assert commands

    command = (str(target / "bin/jaxmon-exporter"), "--demo")
    serves(command, str(target / "bin/python"), tmp_path / "run")


def test_health_check_says_whether_the_sidecar_serves(run_dir: Path) -> None:
    """
    The health check ends with 0 while the sidecar answers, and with 1 before and after.
    """
    serves((str(SCRIPTS / "jaxmon-exporter"),), sys.executable, run_dir)


def test_a_shared_directory_lets_its_group_in(run_dir: Path) -> None:
    """
    In a directory as Kubernetes leaves a volume with an fsGroup, an agent's socket is
    open to that group, whoever made it, and elsewhere to its own user alone.
    """
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
    """
    A program and a sidecar that have nothing in common but the group of the directory
    meet there, as in a pod with an fsGroup; without that group they do not.
    """
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
            agent.communicate(timeout=30)


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
    """
    Return the page of the sidecar on *port*, nothing while it starts.
    """
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
            "SLURM_JOB_NAME": "train",
            "SLURM_JOB_NODELIST": "node[1]",
            "JAXMON_RUN_DIR": run_dir,
            "JAXMON_EXPORTER_PORT": str(free_port()),
            "JAXMON_TARGETS_DIR": str(targets),
        }


def test_slurm_job_has_a_sidecar_and_ends_as_its_program(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    """
    While the program runs, a file tells Prometheus where the sidecar is, which serves;
    the job ends with the program's exit code, and leaves neither file nor process.
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
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "targets": [f"127.0.0.1:{slurm['JAXMON_EXPORTER_PORT']}"],
        "labels": {"job": "train"},
        "page": True,
    }
    assert list(Path(slurm["JAXMON_TARGETS_DIR"]).iterdir()) == []
    with pytest.raises(OSError, match="refused"):
        http_get(f"http://127.0.0.1:{slurm['JAXMON_EXPORTER_PORT']}/metrics")


def test_commands_in_the_deployment_page_are_there() -> None:
    """
    Each path of this repository that the page names exists, and each setting of the
    sidecar or an agent is one.
    """
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


def instructions(dockerfile: Path) -> list[tuple[str, list[str]]]:
    """
    Return name and arguments of each instruction, continued lines joined.
    """
    lines = [
        line
        for line in dockerfile.read_text().splitlines()
        if not line.lstrip().startswith("#")
    ]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (name, rest.split())
        for name, _, rest in (line.partition(" ") for line in joined.splitlines())
        if name
    ]


def needed() -> set[str]:
    """
    Return what jaxmon with the image's extras asks for, directly or not.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    waiting = [Requirement(one) for one in project["dependencies"]]
    waiting += [Requirement(one) for extra in EXTRAS for one in optional[extra]]
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found.add(name)
            texts = distribution(name).requires or []
            waiting += [
                one
                for one in map(Requirement, texts)
                if one.marker is None or one.marker.evaluate({"extra": ""})
            ]
    return found


def copied_sources(directory: Path) -> Path:
    """
    Make *directory* hold what the Dockerfile copies before it builds the wheel.
    """
    directory.mkdir()
    for name, arguments in instructions(DOCKER / "Dockerfile"):
        if name != "COPY" or arguments[0].startswith("--from"):
            continue
        *sources, target = arguments
        if target.startswith("/"):
            continue
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, directory / target, symlinks=True)
            else:
                shutil.copy(ROOT / source, directory / target)
    return directory


def run(*command: str, cwd: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def serves(command: tuple[str, ...], python: str, run_dir: Path) -> None:
    """
    Assert that *command* serves a page, and that the health check of the image, run by
    *python*, tells so.
    """
    port = free_port()
    environ = clean_environ(run_dir, JAXMON_EXPORTER_PORT=str(port))

    def healthy() -> bool:
        check = [python, str(HEALTHCHECK)]
        return (
            subprocess.run(check, env=environ, timeout=30, check=False).returncode == 0
        )

    assert not healthy()
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as process:
        try:
            until(healthy, "the health check")
            page = http_get(f"http://127.0.0.1:{port}/metrics")
            assert "jaxmon_build_info" in {family.name for family in parse(page)}
        finally:
            process.terminate()
    assert process.returncode == 0
    assert not healthy()


def test_guarded_sidecar_is_only_connected_to(tmp_path: Path, run_dir: Path) -> None:
    """
    Where a web configuration asks for a password, the health check does not need it.
    """
    config = tmp_path / "web.yml"
    config.write_text(yaml.safe_dump({"http_server_config": {}}))
    environ = clean_environ(run_dir, JAXMON_EXPORTER_WEB_CONFIG=str(config))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ["JAXMON_EXPORTER_PORT"] = str(silent.getsockname()[1])
        done = subprocess.run(
            [sys.executable, str(HEALTHCHECK)], env=environ, timeout=30, check=False
        )
    assert done.returncode == 0
