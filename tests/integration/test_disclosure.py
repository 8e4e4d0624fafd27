"""No secret of command lines, variables, exceptions is in anything that leaves."""

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon.facts import endings
from jaxmon.host.http.fetch import fetch_all
from tests.helpers.adversaries import ARGUMENTS, SECRETS
from tests.helpers.otlp import receiver
from tests.helpers.processes import ROOT, clean_environ, free_port, http_get, until


PROGRAM = """
import functools, logging, os, sys
import jax, jaxmon
import jax.numpy as jnp
from tests.helpers.adversaries import MESSAGES, STATIC

logging.basicConfig(level=logging.INFO)
token = sys.argv[sys.argv.index("--token") + 1]

@functools.partial(jax.jit, static_argnames="token")
def ask(x, token):
    return x * 2

@functools.partial(jax.jit, static_argnums=1)
def choose(x, model):
    return x * 2

def refuse(message, x):
    raise RuntimeError(message)

@functools.partial(jax.jit, static_argnums=0)
def call(message, x):
    return jax.pure_callback(functools.partial(refuse, message), x, x)

for given in (token, os.environ["SITE_PASSWORD"], "plain"):
    ask(jnp.ones(3), token=given)
for given in ("Llama-3-8B", *STATIC):
    choose(jnp.ones(3), given)
ask(jnp.ones(3), token="xyzzyfish")
for number, message in enumerate(MESSAGES):
    try:
        with jaxmon.request("ask"):
            if number % 8:
                jax.jit(functools.partial(refuse, message))(jnp.ones(2))
            else:
                call(message, jnp.ones(3)).block_until_ready()
    except Exception:
        pass
try:
    jax.jit(lambda: jnp.zeros(10**14))()
except jax.errors.JaxRuntimeError:
    pass
for step in jaxmon.steps(range(3), loop="fit"):
    ask(jnp.ones(3), token="plain")
print("ready", flush=True)
sys.stdin.read()
try:
    refuse(MESSAGES[0], 0)
except RuntimeError as error:
    raise ValueError("rejected " + token) from error
"""
PAGES = (
    *("/metrics", "/debug/overview", "/debug/events", "/debug/functions"),
    *("/debug/memory", "/debug/environment", "/debug/rank", "/debug/stacks"),
    *(
        "/debug/hlo?newest=2",
        "/debug/jaxpr?newest=2",
        "/debug/programs",
        "/",
        "/api/summary",
    ),
)
SIDECAR = ("/", "/metrics", "/api/summary", "/api/summary?worker=0", "/api/history")
COMMANDS = ("explain", "explain --json", "ps", "ps --json", "report --json")
LOGGED = r"(?m)^[A-Z]+:jaxmon.*(?:\n(?![A-Z]+:|Traceback).*)*"
IN_THE_ENVIRONMENT = "in-the-environment-5"
VARIABLES = {
    "SITE_PASSWORD": IN_THE_ENVIRONMENT,
    "DATABASE_URL": f"postgres://me:{IN_THE_ENVIRONMENT}@h/db",
    "XLA_FLAGS": "--xla_cpu_enable_fast_math=false",
}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return all that leaves a program and its sidecar, by where it was found."""
    directory = tmp_path_factory.mktemp("planted")
    (directory / "otlp").mkdir()
    script = directory / "train.py"
    script.write_text(PROGRAM)
    words = [word for given in ARGUMENTS for word in given]
    line = [str(script), "--batch-size", "32", *words, "--lr=3e-4"]
    port = free_port()
    with (
        TemporaryDirectory(prefix="jm-", dir="/tmp") as run_dir,
        receiver(directory / "otlp") as collector,
    ):
        environ = clean_environ(
            Path(run_dir),
            **VARIABLES,
            **collector.environ(),
            PYTHONPATH=str(ROOT),
            JAXMON_REPORT_DIR=str(directory / "reports"),
            JAXMON_SUMMARY_DIR=str(directory / "reports"),
            JAXMON_REPORT="1",
            JAXMON_LOG_EVENTS="1",
            OTEL_LOGS_EXPORTER="otlp",
        )
        common = [sys.executable, "-m", "jaxmon"]
        logs = directory / "sidecar.log", directory / "stderr"
        with (
            logs[0].open("w") as log,
            logs[1].open("w") as stderr,
            running([*common, "exporter", f"--port={port}"], environ, stderr=log),
            running([*common, "run", *line], environ, stderr=stderr) as program,
        ):
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n", logs[1].read_text()
            url = f"http://127.0.0.1:{port}"
            until(lambda: judged(f"{url}/api/summary?worker=0"), "the sidecar")
            found = {f"sidecar {one}": http_get(url + one) for one in SIDECAR}
            (socket,) = Path(run_dir).glob("*.sock")
            found |= {one: asked(socket, one) for one in PAGES}
            packed = directory / "bundle.tar.gz"
            for one in (*COMMANDS, f"bundle --out={packed} --sidecar={url} --hlo=3"):
                found[one] = printed(one, environ)
            found |= unpacked(packed)
            program.communicate("", timeout=120)
            found["words"] = str(endings.slots(Path(run_dir))["0"].latest.as_json())
            found["ended"] = printed("ps --ended --json", environ)
            found |= {f"ended {one}": http_get(url + one) for one in SIDECAR}
        # The program's own traceback, and what JAX logs, are their own affair.
        said = logs[1].read_text()
        found["exit report"] = said[said.rindex("── jaxmon") :]
        found["log"] = "\n".join(re.findall(LOGGED, said))
        for path in (*Path(run_dir).rglob("*"), *directory.rglob("*")):
            if path.is_file() and path not in (script, packed, logs[1]):
                found[str(path)] = path.read_bytes().decode(errors="replace")
    return found


def test_it_is_in_nothing(left: dict[str, str]) -> None:
    """Pages, files, archives, logs, what is pushed, and what commands print."""
    planted = (*SECRETS, IN_THE_ENVIRONMENT)
    leaks = [
        f"{where}: {text[max(text.find(one) - 80, 0) :][:120]!r}"
        for where, text in left.items()
        for one in planted
        if one in text
    ]
    assert not leaks, "\n".join(leaks)
    kinds = ("otlp/got-", "otlp/logs-", "otlp/traces-", ".end", "bundle ", "/run-")
    for kind in kinds:
        assert [one for one in left if kind in one], (kind, sorted(left))


def test_what_is_harmless_is_in_it(left: dict[str, str]) -> None:
    """Script, options, plain values, flags, class and line of the exception."""
    overview = json.loads(left["/debug/overview"])
    summary = json.loads(left["sidecar /api/summary"])
    for program in (overview["process"]["program"], str(summary)):
        assert "train.py --batch-size 32 --token … --token=… --api-key=…" in program
    environment = json.loads(left["/debug/environment"])
    assert VARIABLES["XLA_FLAGS"] in environment["versions"]["XLA_FLAGS"]
    for one in ("'type': 'ValueError'", "'message': 'rejected …'", "train.py:"):
        assert one in left["words"]
    assert "RESOURCE_EXHAUSTED: Out of memory allocating" in left["/debug/events"]
    assert "HTTPSConnectionPool(host='h', port=443)" in left["/debug/events"]
    assert "static argument model: 'Llama-3-8B'" in left["/debug/events"]


@contextmanager
def running(
    words: list[str], environ: dict[str, str], *, stderr: IO[str]
) -> Iterator[subprocess.Popen[str]]:
    """Run a process, and terminate it."""
    with subprocess.Popen(
        words,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def judged(url: str) -> bool:
    """Return whether the sidecar at *url* has read the agent."""
    try:
        return "train.py" in http_get(url)
    except OSError:
        return False


def asked(socket: Path, target: str) -> str:
    """Return what the agent at *socket* responds."""
    found = fetch_all({"0": socket}, target, timeout=60, max_bytes=1 << 26)["0"]
    assert isinstance(found, str), found
    return found


def printed(command: str, environ: dict[str, str]) -> str:
    """Return all that a command prints, in this process."""
    return CliRunner().invoke(main, command.split(), env=environ).output


def unpacked(path: Path) -> dict[str, str]:
    """Return the files of a bundle by name."""
    found = {}
    with tarfile.open(path) as archive:
        for entry in archive.getmembers():
            content = archive.extractfile(entry)
            assert content is not None
            found[f"bundle {entry.name}"] = content.read().decode()
    return found
