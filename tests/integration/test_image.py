"""What the images do, as far as that shows without containers."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from jaxmon.exposition.parse import parse
from tests.helpers.processes import ROOT, clean_environ, free_port, http_get, until


DOCKER = ROOT / "exporters/docker"
CONSTRAINTS = ROOT / "constraints.txt"
HEALTHCHECK = DOCKER / "healthcheck.py"
EXTRAS = ("nvidia", "otel", "tpu", "web")
SCRIPTS = Path(sysconfig.get_path("scripts"))


def test_every_path_that_the_dockerfile_copies_is_there() -> None:
    """What is copied from the checkout exists, and its ignore file lets it through."""
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
    """The image runs as a numeric user, and checks its health by a file that it has."""
    found = instructions(DOCKER / "Dockerfile")
    last = dict(found)
    copied = [one for name, one in found if name == "COPY"]

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"][0])
    assert json.loads(" ".join(last["ENTRYPOINT"])) == ["jaxmon-exporter"]
    assert last["EXPOSE"] == ["9467"]
    check = json.loads(" ".join(last["HEALTHCHECK"]).partition(" CMD ")[2])
    assert check[0] == "python"
    assert [HEALTHCHECK.relative_to(ROOT).as_posix(), check[1]] in copied


@pytest.mark.parametrize("name", ["Dockerfile", "workload.Dockerfile"])
def test_images_begin_a_volume_that_their_users_share(name: str) -> None:
    """Both images hold the shared directory with an agent's rights: volumes copy it."""
    found = instructions(DOCKER / name)
    commands = " ".join(" ".join(words) for key, words in found if key == "RUN")
    made = re.search(r"install -d -m 2770 -o (\d+) -g (\d+) /run/jaxmon\b", commands)

    assert made is not None
    assert dict(found)["USER"] == [f"{made[1]}:{made[2]}"]
    environ = [one for key, words in found if key == "ENV" for one in words]
    assert "JAXMON_RUN_DIR=/run/jaxmon" in environ


def test_requirements_are_everything_that_the_sidecar_needs() -> None:
    """The requirements are complete, pinned, and hold nothing that is not needed."""
    listed = {
        canonicalize_name(line)
        for line in (DOCKER / "requirements.in").read_text().splitlines()
        if line and not line.startswith("#")
    }
    assert listed == needed()
    assert pins(DOCKER / "requirements.txt").items() <= pins(CONSTRAINTS).items()
    assert set(pins(DOCKER / "requirements.txt")) == listed


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_each_requirement_has_digests_that_pip_requires(name: str) -> None:
    """Of each file of its one version, so that no other one is installed."""
    text = (DOCKER / name).read_text().replace("\\\n", " ")
    entries = [one for one in text.splitlines() if not one.startswith("#")]
    assert entries
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==\S+(?: +--hash=sha256:[0-9a-f]{64})+", entry)
    commands = [
        " ".join(words)
        for key, words in instructions(DOCKER / "Dockerfile")
        if key == "RUN"
    ]
    installs = re.findall(r"pip install [^&]+", " && ".join(commands))
    assert {one.strip() for one in installs} == {
        "pip install --no-deps --require-hashes -r requirements.txt",
        "pip install --no-deps --require-hashes -r build-requirements.txt",
        "pip install --no-deps dist/*.whl",
    }


@pytest.mark.parametrize("name", ["Dockerfile", "workload.Dockerfile"])
def test_images_begin_with_a_digest_that_must_be_given(name: str) -> None:
    """No image is built on what a tag happens to mean today."""
    found = instructions(DOCKER / name)
    assert found[0] == ("ARG", ["DIGEST"])
    bases = [words[0] for key, words in found if key == "FROM"]
    assert set(bases) == {"python:3.11-slim@${DIGEST}"}


def pins(path: Path) -> dict[str, str]:
    """Return the versions in *path* by name."""
    found = re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", path.read_text())
    return {canonicalize_name(name): version for name, version in found}


@pytest.mark.exhaustive
def test_image_can_be_put_together_and_serves(tmp_path: Path) -> None:
    """
    The commands of the Dockerfile, run on what it copies, with the image's paths moved:
    the listed packages and the wheel, each without dependencies, make a jaxmon-exporter
    that serves its page, and whose health check says so.
    """
    source, target = copied_sources(tmp_path / "src"), tmp_path / "opt"
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # Of what is installed little is imported here.
        "PIP_NO_COMPILE": "1",
    }
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
    """The health check ends with 0 while the sidecar answers, and with 1 otherwise."""
    serves((str(SCRIPTS / "jaxmon-exporter"),), sys.executable, run_dir)


def test_guarded_sidecar_is_only_connected_to(tmp_path: Path, run_dir: Path) -> None:
    """Where a web configuration asks for a password, the health check needs none."""
    config = tmp_path / "web.yml"
    config.write_text(yaml.safe_dump({"http_server_config": {}}))
    environ = clean_environ(run_dir, JAXMON_EXPORTER_WEB_CONFIG=str(config))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ["JAXMON_EXPORTER_PORT"] = str(silent.getsockname()[1])
        done = subprocess.run(
            [sys.executable, str(HEALTHCHECK)], env=environ, timeout=60, check=False
        )
    assert done.returncode == 0


def instructions(dockerfile: Path) -> list[tuple[str, list[str]]]:
    """Return name and arguments of each instruction, continued lines joined."""
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
    """Return what jaxmon with the image's extras asks for, directly or not."""
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
    """Make *directory* hold what the Dockerfile copies before it builds the wheel."""
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
    """Assert that *command* serves a page and the health check by *python* passes."""
    port = free_port()
    environ = clean_environ(run_dir, JAXMON_EXPORTER_PORT=str(port))

    def healthy() -> bool:
        check = [python, str(HEALTHCHECK)]
        return (
            subprocess.run(check, env=environ, timeout=60, check=False).returncode == 0
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
