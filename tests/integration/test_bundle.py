"""``jaxmon bundle`` beside real processes, a sidecar and a Prometheus."""

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from click.testing import CliRunner, Result

from jaxmon.cli import archive
from jaxmon.cli.archive import Archive
from jaxmon.cli.main import main
from jaxmon.cli.markdown import escaped
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import clean_environ, free_port, freeze, http_get, until
from tests.helpers.prometheus import Prometheus


SECRET = "correct-horse-battery"  # noqa: S105 - of no one

PROGRAM = """
import sys
import jax, jaxmon
import jax.numpy as jnp

jaxmon.instrument(port=None)

@jax.jit
def forward(x):
    return x * 2

for size in (1, 2, 3):
    forward(jnp.ones(size))
for _ in range(7):
    forward(jnp.ones(3))
try:
    jax.jit(lambda: jnp.zeros(10**14))()
except jax.errors.JaxRuntimeError:
    pass
print("ready", flush=True)
sys.stdin.read()
"""


class Host:
    """A run directory with programs, and the bundles that are taken there."""

    def __init__(self, run_dir: Path, reports: Path) -> None:
        self.run_dir = run_dir
        self._reports = reports
        self.processes: list[Program] = []

    def start(self) -> None:
        """Start a program, and wait until it has worked."""
        process = start_preloaded(
            *("-c", PROGRAM, f"--token={SECRET}"),
            environ=clean_environ(
                self.run_dir,
                JAXMON_REPORT_DIR=str(self._reports),
                SITE_PASSWORD="in-the-environment",  # noqa: S106 - of no one
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        for process in self.processes:
            stop(process)

    def bundle(self, *words: str) -> Result:
        """Run ``jaxmon bundle``; there is no sidecar unless *words* name one."""
        nothing = f"--sidecar=http://127.0.0.1:{free_port()}"
        common = ["bundle", f"--run-dir={self.run_dir}", nothing]
        return CliRunner().invoke(main, [*common, *words])


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Return a host with one program, which ran out of memory once."""
    with TemporaryDirectory(prefix="jm-", dir="/tmp") as run_dir, ExitStack() as stack:
        made = Host(Path(run_dir), tmp_path_factory.mktemp("reports"))
        stack.callback(made.stop)
        made.start()
        yield made


def stop(process: Program) -> None:
    """Kill a program, also a stopped one."""
    process.kill()
    process.communicate()


def files(path: Path) -> dict[str, str]:
    with tarfile.open(path) as packed:
        found = {}
        for entry in packed.getmembers():
            assert entry.isreg()
            assert entry.mode == 0o600
            content = packed.extractfile(entry)
            assert content is not None
            found[entry.name.partition("/")[2]] = content.read().decode()
        return found


@pytest.fixture(scope="module")
def contents(host: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the files of a bundle of the host."""
    path = tmp_path_factory.mktemp("bundles") / "bundle.tar.gz"
    done = host.bundle(f"--out={path}")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return files(path)


def test_it_has_what_each_process_knows(contents):
    """Report, data, events, stacks, versions, metrics and out-of-memory reports."""
    found = {name for name in contents if name.startswith("worker-0/")}
    reports = {name for name in found if "oom-" in name}
    overview = json.loads(contents["worker-0/overview.json"])
    (name,) = [one for one in overview["functions"] if one.endswith("forward")]
    kinds = {e["kind"] for e in json.loads(contents["worker-0/events.json"])["events"]}

    assert found - reports == {
        f"worker-0/{one}"
        for one in (
            "environment.json",
            "events.json",
            "explain.txt",
            "metrics.txt",
            "overview.json",
            "packages.txt",
            "report.html",
            "summary.json",
            "stacks.json",
            "stacks.txt",
        )
    }
    assert {name.rpartition(".")[2] for name in reports} == {"json", "txt"}
    assert overview["functions"][name]["calls"] == 10
    assert {"recompile", "oom"} <= kinds
    assert "FINDINGS" in contents["worker-0/explain.txt"]
    assert "\njax==" in contents["worker-0/packages.txt"]
    assert "# TYPE jaxmon_jit_calls_total counter" in contents["worker-0/metrics.txt"]


def test_the_code_of_programs_is_in_it_on_request(host, contents, tmp_path):
    """The newest of each function first; otherwise there is nothing of it."""
    assert not [name for name in contents if "hlo" in name]
    path = tmp_path / "bundle.tar.gz"
    done = host.bundle(f"--out={path}", "--hlo=2")
    assert done.exit_code == 0, done.output

    found = files(path)
    listed = json.loads(found["worker-0/hlo/programs.json"])
    assert len(listed) == 2
    (forward,) = [one for one in listed if one["function"] == "__main__.forward"][:1]
    assert forward["file"].endswith("-__main__.forward.txt")
    text = found[forward["file"]]
    assert text.startswith("HloModule jit_forward")
    assert "f32[3]" in text.partition("\n")[0]


def test_it_has_no_secrets_and_no_environment(contents):
    """Neither a token on the command line nor a variable is in any file."""
    for name, text in contents.items():
        assert SECRET not in text, name
        assert "in-the-environment" not in text, name
        assert "SITE_PASSWORD" not in text, name
    program = json.loads(contents["worker-0/overview.json"])["process"]["program"]
    assert program == "python -c … --token=…"


def test_the_post_mortem_is_filled_in(contents):
    """Timeline, hit rates, programs and versions are facts; the rest is marked."""
    text = contents["post-mortem.md"]
    overview = json.loads(contents["worker-0/overview.json"])
    (name,) = [one for one in overview["functions"] if one.endswith("forward")]
    fingerprint = overview["functions"][name]["program"]["fingerprint"]

    assert "| worker 0 | recompile" in text
    assert "| worker 0 | oom" in text
    assert "| worker 0 | jit, all functions |" in text
    assert f"jit, {escaped(name)} | 70.0% | 10 |" in text
    assert fingerprint in text
    assert f"| jax | {overview['process']['jax']} |" in text
    assert "Worker 0, most urgent first:\n\n- " in text
    for heading in ("Summary", "Impact", "Root cause"):
        assert f"## {heading}\n\nTO FILL IN: " in text
    for line in text.splitlines():
        assert line.count("|") in (0, 3, 4, 5, 7), line


def test_what_is_missing_is_named(contents, host, tmp_path):
    """A sidecar that is not there is in the manifest, the report and on stderr."""
    manifest = json.loads(contents["manifest.json"])
    done = host.bundle(f"--out={tmp_path / 'one.tar.gz'}")

    assert set(manifest["missing"]) == {"sidecar"}
    assert manifest["processes"] == ["0"]
    assert set(manifest["files"]) | {"manifest.json"} == {*contents}
    assert "## Not collected\n\n- sidecar: no response" in contents["post-mortem.md"]
    assert done.stderr.startswith("without sidecar: no response from sidecar at ")


def test_a_process_that_hangs_does_not_stop_the_rest(host, tmp_path):
    """It is named, with what the kernel knows of it; the other one is complete."""
    host.start()
    hung = host.processes[-1]
    freeze(hung.pid)
    try:
        path = tmp_path / "bundle.tar.gz"
        done = host.bundle(f"--out={path}")
        one = host.bundle("0", f"--out={tmp_path / 'one.tar.gz'}")
        none = host.bundle("nothing.py", f"--out={tmp_path / 'none.tar.gz'}")
    finally:
        stop(hung)
        host.processes.remove(hung)
    found, chosen = files(path), files(tmp_path / "one.tar.gz")
    missing = json.loads(found["manifest.json"])["missing"]

    assert done.exit_code == 0, done.output
    assert "does not respond" in missing["worker 1"]
    assert f"pid {hung.pid} " in found["worker-1/kernel.txt"]
    assert "stopped by a signal" in found["worker-1/kernel.txt"]
    assert "worker-0/explain.txt" in found
    # One that is chosen does not wait for others.
    assert one.exit_code == 0, one.output
    assert json.loads(chosen["manifest.json"])["processes"] == ["0"]
    assert "agents" not in json.loads(chosen["manifest.json"])["missing"]
    assert none.exit_code == 2
    assert "no process has the number, pid or name 'nothing.py'" in none.output
    assert not (tmp_path / "none.tar.gz").exists()


def test_without_processes_there_is_still_a_bundle(tmp_path):
    """After a crash, host and sidecar are all that is left."""
    path = tmp_path / "bundle.tar.gz"
    words = ["bundle", f"--run-dir={tmp_path}", f"--out={path}"]
    words += [f"--sidecar=http://127.0.0.1:{free_port()}"]
    done = CliRunner().invoke(main, words)
    found = files(path)

    assert done.exit_code == 0, done.output
    assert (
        "no instrumented process"
        in json.loads(found["manifest.json"])["missing"]["agents"]
    )
    assert json.loads(found["host.json"])["cores"] == os.cpu_count()


def test_an_existing_file_is_kept(host, tmp_path):
    """Evidence is not overwritten."""
    path = tmp_path / "bundle.tar.gz"
    path.write_text("the first")
    done = host.bundle(f"--out={path}")

    assert done.exit_code == 1
    assert f"{path} exists; give another file with --out" in done.stderr
    assert path.read_text() == "the first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_missing_is_an_error(host, tmp_path):
    """The file cannot be written: nothing is left behind."""
    done = host.bundle(f"--out={tmp_path / 'no' / 'bundle.tar.gz'}")

    assert done.exit_code == 1
    assert "No such file or directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_standard_output_gets_the_archive(host, tmp_path):
    """So that it can be copied out of a container."""
    done = host.bundle("--out=-")
    with tarfile.open(fileobj=io.BytesIO(done.stdout_bytes)) as packed:
        names = packed.getnames()

    assert any(name.endswith("/post-mortem.md") for name in names)
    assert list(tmp_path.iterdir()) == []


def test_the_sidecar_and_the_alerts_are_in_it(host, tmp_path):
    """A real sidecar's page, and the alerts that Prometheus has."""
    address = f"127.0.0.1:{free_port()}"
    rule = {"alert": "Always", "expr": "vector(1)", "labels": {"severity": "page"}}
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]})
    )
    port = address.partition(":")[2]
    sidecar = subprocess.Popen(
        [sys.executable, "-m", "jaxmon", "exporter", f"--port={port}"],
        env=clean_environ(host.run_dir),
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: answers(f"http://{address}/-/ready"), "the sidecar to be ready")
        config = {"rule_files": ["rules.yml"]}
        with Prometheus(tmp_path, {}, config=config) as prometheus:
            prometheus.until_query('ALERTS{alertstate="firing"}')
            path = tmp_path / "bundle.tar.gz"
            words = (f"--sidecar=http://{address}", f"--prometheus={prometheus.url}")
            done = host.bundle(*words, f"--out={path}")
    finally:
        sidecar.terminate()
        sidecar.wait(90)
    found = files(path)
    (alert,) = json.loads(found["alerts.json"])

    assert done.exit_code == 0, done.output
    assert alert["labels"]["alertname"] == "Always"
    assert alert["since"] > 1e9
    assert "| Prometheus | alert Always (page)" in found["post-mortem.md"]
    assert "jaxmon_collector_success" in found["sidecar/metrics.txt"]
    assert json.loads(found["sidecar/summary.json"])
    assert SECRET not in "".join(found.values())
    assert json.loads(found["manifest.json"])["missing"] == {}


def test_the_size_is_limited(monkeypatch):
    """What does not fit is named, and what follows is still added."""
    monkeypatch.setattr(archive, "MOST_BYTES", 10)
    made = Archive("bundle", 0.0)
    made.add("small", "12345")
    made.add("large", "1234567")
    made.add("last", "12345")

    assert made.names() == ["last", "small"]
    assert made.missing == {"large": "too large for the bundle: 7 bytes"}


def test_files_that_an_agent_names_are_its_own(host, tmp_path):
    """An agent cannot have other files packed: neither by name nor by a link."""
    from jaxmon.cli.archive import _report

    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "oom-1.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "oom-2.txt").mkdir()
    socket = next(host.run_dir.glob("*.sock"))
    for name in ("secret.txt", "oom-1.txt", "oom-2.txt", "oom-3.txt"):
        with pytest.raises((OSError, ValueError)):
            _report(tmp_path / name, socket)


def answers(url: str) -> bool:
    """Return whether *url* returns success."""
    try:
        return bool(http_get(url))
    except OSError:
        return False
