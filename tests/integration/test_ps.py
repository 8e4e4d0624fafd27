"""`jaxmon ps` beside real processes: those that run, hang, crashed or finished."""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.agent.end_writer import EndWriter
from jaxmon.cli import workers
from jaxmon.cli.main import main
from jaxmon.facts import endings
from jaxmon.facts.ending import CRASHED, FINISHED, ProcessEnd
from jaxmon.host import bootstrap, rundir
from jaxmon.host.formats import layout
from tests.helpers.preloaded import start_preloaded
from tests.helpers.processes import Result, clean_environ, freeze, until


SERVES = """
import itertools, sys, time
import jaxmon
jaxmon.instrument(port=None)
print("ready", flush=True)
for number in itertools.count():
    try:
        with jaxmon.request("predict"):
            time.sleep(0.01)
            if number % 2:
                raise ValueError
    except ValueError:
        pass
"""
TRAINS = """
import itertools, sys, time
import jaxmon
jaxmon.instrument(port=None)
print("ready", flush=True)
for _ in jaxmon.steps(itertools.count()):
    time.sleep(0.05)
"""


RELEASE = {"serve.py": {"JAXMON_RELEASE": "v41"}}


def started(directory: Path, run_dir: Path, name: str, source: str) -> Any:
    (directory / name).write_text(source)
    environ = {**clean_environ(run_dir), **RELEASE.get(name, {})}
    given: dict[str, Any] = {"cwd": directory, "stdout": subprocess.PIPE}
    process: Any
    if name == "serve.py":  # whose command line the kernel has
        command = [sys.executable, name, "--size", "3"]
        process = subprocess.Popen(command, env=environ, text=True, **given)
    else:
        process = start_preloaded(name, "--size", "3", environ=environ, **given)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def explained(run_dir: Path, worker: str) -> str:
    """Return what ``jaxmon explain`` prints of a process."""
    environ = {"JAXMON_RUN_DIR": str(run_dir), "COLUMNS": "120"}
    return CliRunner().invoke(main, ["explain", worker], env=environ).stdout


def ps(run_dir: Path, *args: str, columns: int = 80) -> Result:
    """Run the command in this process."""
    environ = {"JAXMON_RUN_DIR": str(run_dir), "COLUMNS": str(columns)}
    done = CliRunner().invoke(main, ["ps", *args], env=environ)
    if not isinstance(done.exception, SystemExit | None):
        raise done.exception
    return Result(done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Start a server and a training; two more slots had processes that are over."""
    processes: dict[str, Any] = {}
    scripts = tmp_path_factory.mktemp("host")
    # A short path, as that of the fixture of the same name.
    run_dir = Path(tempfile.mkdtemp(prefix="jm-", dir="/tmp"))
    try:
        for name, source in (("serve.py", SERVES), ("train.py", TRAINS)):
            processes[name] = started(scripts, run_dir, name, source)
        # What their agents would have written.
        crashed, ended = (
            EndWriter(run_dir / f"agent-{slot}.end", 0o600) for slot in (2, 3)
        )
        for one in (crashed, ended):
            one.begin()
        crashed.run("train")
        crashed.end(CRASHED)
        ended.end(FINISHED)
        for one in (crashed, ended):
            one.abandon()
        yield {"run_dir": run_dir, **processes}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
            process.stdout.close()
        shutil.rmtree(run_dir, ignore_errors=True)


def test_a_sidecar_is_asked_for_another_host(host, free_port):
    """With ``--url`` the list is the sidecar's: state, rate, cause and command."""
    command = [sys.executable, "-m", "jaxmon", "exporter", "--port", str(free_port)]
    environ = clean_environ(host["run_dir"])
    url = f"http://127.0.0.1:{free_port}"
    elsewhere = host["run_dir"] / "elsewhere"
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as sidecar:
        try:

            def listed() -> Any:
                out = ps(elsewhere, "--url", url, "--json").out
                found = json.loads(out)["processes"] if out else []
                return found and found[0]["because"] and found

            one, two, crashed = until(listed, "the sidecar")
            text = ps(elsewhere, "--url", url).ok().out
        finally:
            sidecar.kill()
    assert one["pid"] == host["serve.py"].pid
    assert one["command"].endswith(" serve.py --size 3")
    assert (one["users"], one["state"]) == ("failing", "running")
    assert one["requests_per_second"] > 0
    assert "at serve.py:" in one["because"]
    assert two["steps_per_second"] > 0
    assert crashed["state"] == "crashed"
    assert text.startswith("Are users all right? No: ")
    assert "Rates are those of the last minute. If a process younger than" in text
    assert ps(elsewhere, "--url", url).code == 1
    assert ps(elsewhere, "--url", url, "--ended").code == 2


def test_processes_are_listed_with_what_they_do(host: dict[str, Any]) -> None:
    """All stands there at 80 columns, crashed ones included."""

    def measured() -> Any:
        found = json.loads(ps(host["run_dir"], "--json", "--ended").ok().out)
        rates = [one.get("steps_per_second") for one in found["processes"]]
        return found if rates[1] else None

    found = until(measured, "a step in a second")
    narrow, wide = (
        ps(host["run_dir"]).ok().out,
        ps(host["run_dir"], columns=140).ok().out,
    )
    serve, train = host["serve.py"].pid, host["train.py"].pid
    one, two, crashed, ended = found["processes"]

    assert found["schema"] == 1
    assert found["answer"]["state"] == "failing"
    assert "Rates are those of the last 1 s. If a process younger than" in narrow
    assert "RANK" not in narrow + wide
    assert (one["worker"], one["pid"], one["state"]) == ("0", serve, "running")
    assert one["command"].endswith(" serve.py --size 3")
    assert one["requests_per_second"] > 0
    assert one["users"] == "failing"
    assert "requests to predict failed" in one["verdict"]
    assert (two["worker"], two["pid"], two["users"]) == ("1", train, "fine")
    assert two["steps_per_second"] > 0
    assert (one["release"], two["release"]) == ("v41", "")
    assert "RELEASE" in wide
    assert " v41 " in wide
    assert "RELEASE" not in narrow
    assert "release v41" in explained(host["run_dir"], "0")
    assert "release" not in explained(host["run_dir"], "1").splitlines()[1]
    assert (crashed["worker"], crashed["state"]) == ("2", "crashed")
    assert (ended["worker"], ended["state"]) == ("3", "ended")
    for text, width in ((narrow, 80), (wide, 120)):
        lines = text.splitlines()
        assert lines[0].startswith("Are users all right? No: ")
        assert max(map(layout.columns, lines)) <= width
        row = next(line for line in lines if line.startswith("0 "))
        assert row.split()[1] == str(serve)
        assert "running" in row
        assert " req/s" in row
        assert "serve.py --size 3" in row
        assert "\n2 " in text
        assert "crashed" in text
        assert "\n3 " not in text
        assert "\x1b" not in text
    assert " JAX " in wide.splitlines()[2 if wide.splitlines()[1] == "" else 3]


def test_a_stopped_process_is_named_by_the_kernel(host: dict[str, Any]) -> None:
    """One that does not respond has pid, command and state; others are listed."""
    freeze(host["serve.py"].pid)
    try:
        found = json.loads(ps(host["run_dir"], "--json", "--seconds", "0").ok().out)
    finally:
        host["serve.py"].send_signal(signal.SIGCONT)
    one, two, _ = found["processes"]

    assert (one["pid"], one["state"]) == (host["serve.py"].pid, "stopped")
    assert one["command"].endswith(" serve.py --size 3")
    assert (two["pid"], two["state"]) == (host["train.py"].pid, "running")


def test_none_is_an_error_with_advice(run_dir: Path, tmp_path: Path) -> None:
    """A directory that was cleaned, is absent, or is no directory says so."""
    (tmp_path / "file").write_text("")
    for directory, said in (
        (run_dir, "no instrumented process is running: no agent in "),
        (run_dir / "none", "Start one with `jaxmon run PROGRAM`"),
        (tmp_path / "file", "Not a directory"),
    ):
        result = ps(run_dir, "--run-dir", str(directory))
        assert (result.code, result.out) == (1, "")
        assert said in result.err
    empty = ps(run_dir, "--json")
    assert (empty.code, json.loads(empty.out)["processes"]) == (1, [])


RAISES = """
import sys, time
import jaxmon
jaxmon.instrument(port=None)
if sys.argv[1] == "raises":
    raise OSError("the disk is gone")
"""


def jaxmon(run_dir: Path, *words: str) -> Result:
    """Run any command in this process."""
    environ = {"JAXMON_RUN_DIR": str(run_dir), "COLUMNS": "500"}
    done = CliRunner().invoke(main, words, env=environ)
    return Result(done.exit_code, done.stdout, done.stderr)


def test_how_a_program_ended_is_the_first_line(
    run_dir: Path, tmp_path: Path, host: dict[str, Any]
) -> None:
    """
    Of one that marks nothing: pid, command, time, exception and line, on each screen;
    nothing of its healthy twin. Other directories of this user are named.
    """
    script = tmp_path / "quick.py"
    script.write_text(RAISES)
    elsewhere = f"an agent in {host['run_dir']}: add --run-dir {host['run_dir']}"
    for way in ("returns", "raises"):
        with start_preloaded(
            *(str(script), way), environ=clean_environ(run_dir), stderr=subprocess.PIPE
        ) as process:
            process.communicate()
        who = f"pid {process.pid} (python {script} …) raised OSError: the disk is gone"
        listed = jaxmon(run_dir, "ps")
        explained = jaxmon(run_dir, "explain")
        examined = jaxmon(run_dir, "job", "post-mortem")
        packed = jaxmon(run_dir, "bundle", f"--out={tmp_path}/{way}.tar.gz")
        for found in (listed, explained):
            assert (found.code, found.out) == (1, "")
            assert elsewhere in found.err
            assert f"in {run_dir}: add" not in found.err
        if way == "returns":
            assert examined.code == 3
            assert listed.err.startswith("Error: no instrumented process is running")
            assert "pid" not in packed.err
            continue
        how = re.compile(
            rf"(Error: )?{re.escape(who)}, at {script}:6 in <module>, .* UTC"
        )
        for text in (listed.err, explained.err, examined.out, packed.err):
            assert how.match(" ".join(text.split()))
        assert examined.code == 1


def test_the_only_other_directory_with_agents_is_read(
    tmp_path: Path, host: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Said once, and in JSON. Not among several, not one that others can open, not in
    place of a directory that was given, in which a process has failed, has just ended
    or, for what asks about the past, has left a record.
    """
    own, other = tmp_path / "jaxmon", host["run_dir"]
    environ = {"JAXMON_RUN_DIR": "", "XDG_RUNTIME_DIR": str(tmp_path)}
    found = {other: 2}
    monkeypatch.setattr(rundir, "listening", lambda _: found)

    def run(words: str, **more: str) -> Result:
        done = CliRunner().invoke(main, words.split(), env=environ | more)
        return Result(done.exit_code, done.stdout, done.stderr)

    said = f"reading {other}, your only other directory with agents."
    every = ("ps", "ps --json", "explain 0", "explain 0 --json", "job why --json")
    for words in (*every, "job post-mortem", f"bundle --out {tmp_path}/b.tgz"):
        done = run(words)
        assert done.err.count(said) == 1, words
        assert str(own) in done.err
        if words.endswith("--json"):
            assert json.loads(done.out)["run_dir"] == str(other)
    given = [run("ps", JAXMON_RUN_DIR=str(own)), run(f"ps --run-dir {own}")]
    other.chmod(0o750)
    given.append(run("ps"))
    other.chmod(0o700)
    found[tmp_path] = 1
    given.append(run("ps"))
    del found[tmp_path]
    own.mkdir()
    assert said in run("ps").err
    for slot, (how, words) in enumerate(
        [(FINISHED, "job post-mortem"), (FINISHED, "explain"), (CRASHED, "ps")]
    ):
        end = EndWriter(own / f"agent-{slot}.end", 0o600)
        end.begin()
        end.run("train")
        end.end(how)
        end.abandon()
        given.append(run(words))
    assert [said in done.err for done in given] == [False] * 7
    assert " finished, just now" in given[5].err


def test_a_program_that_is_starting_is_waited_for(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some seconds, while it has no agent and lives; others' are not."""
    monkeypatch.setattr(workers, "_PATIENCE", 0.3)
    monkeypatch.setattr(workers, "_OFTEN", 0.02)
    environ = bootstrap.environment(clean_environ(run_dir), {})
    other = bootstrap.environment(clean_environ(run_dir / "other"), {})
    command = [sys.executable, "-c", "print(flush=True); input()"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen(command, env=environ, **pipes) as starting,
        subprocess.Popen(command, env=other, **pipes) as unrelated,
    ):
        for process in (starting, unrelated):
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
        found = ps(run_dir)
        assert found.err.startswith(f"Waiting for pid {starting.pid} to import JAX")
        assert f"  pid {starting.pid} (" in found.err
        assert " has no agent here: `jaxmon run` started it " in found.err
        assert str(unrelated.pid) not in found.err
        # It has raised, say, and a thread of it keeps the process.
        with monkeypatch.context() as patch:
            now = endings.now()["boottime"]
            end = ProcessEnd(1, 0, CRASHED, pid=starting.pid, boottime=now)
            patch.setattr(endings, "ends", lambda _: {"0": end})
            found = ps(run_dir)
            assert "Waiting" not in found.err
            assert "the agent has ended, and the process has not." in " ".join(
                found.err.split()
            )
            assert "an agent begins" not in found.err
        starting.kill()
        starting.wait()
        assert "Waiting" not in ps(run_dir).err
        unrelated.kill()


FORKS = """
import os, sys
if sys.argv[1] == "late":
    import jax
if os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
input()
"""


@pytest.mark.parametrize("when", ["late", "early"])
def test_a_child_that_was_forked_after_jax_was_imported_is_not_waited_for(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """No agent begins there; one that was forked early gets its own."""
    waits = when == "early"
    monkeypatch.setattr(workers, "_PATIENCE", 0.3)
    environ = bootstrap.environment(clean_environ(run_dir), {"port": None})
    command = [sys.executable, "-c", FORKS, when]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environ, **pipes) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.wait()
        found = " ".join(ps(run_dir).err.split())
    assert (f"Waiting for pid {pid} to import JAX" in found) == waits
    how = "`jaxmon run` started it" if waits else "it was forked"
    assert f"pid {pid} (" in found
    assert f" has no agent here: {how} " in found
    assert ("an agent begins once JAX is imported" in found) == waits


def test_other_users_directories_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with sockets are named, links and empty ones not."""
    monkeypatch.setattr(rundir, "_temporary", lambda: tmp_path)
    mine = tmp_path.stat().st_uid
    for name in ("jaxmon-1", "jaxmon-2", "jaxmon-x"):
        (tmp_path / name).mkdir()
    (tmp_path / "jaxmon-1/agent-0.sock").touch()
    (tmp_path / "jaxmon-3").symlink_to(tmp_path / "jaxmon-1")

    assert rundir.of_others(mine) == {}
    assert rundir.of_others(mine + 1) == {tmp_path / "jaxmon-1": 1}

    def refuse(_: object) -> Any:
        raise PermissionError

    monkeypatch.setattr(rundir, "sockets", refuse)
    assert rundir.of_others(mine + 1) == {
        tmp_path / "jaxmon-1": None,
        tmp_path / "jaxmon-2": None,
    }
