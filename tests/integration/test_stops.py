"""A program that a person or an orchestrator stops has not crashed, on any screen."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.catalog import AGENT_CRASHES, AGENT_DIED, AGENT_FINISHED_SECONDS
from jaxmon.cli.main import main
from jaxmon.facts import endings
from jaxmon_exporter.collectors.agents import Agents
from tests.fakes.agents import page_of
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import clean_environ, exits_are_reported, http_get, until


WAITS = """
import os, signal, sys, time
class Reload(Exception): pass
def leave(code):
    sys.exit(code)
def nested(number, frame):
    leave(143)
def fails(number, frame):
    raise Reload("cannot save")
def fails_inside(number, frame):
    try:
        fails(number, frame)
    except Reload:
        sys.exit(1)
def again(number, frame):
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
HANDLERS = {
    "exits 0": lambda *_: sys.exit(0), "nested": nested, "fails": fails,
    "fails inside": fails_inside, "again": again, "kills": None, "default": None,
    "interrupts": signal.default_int_handler, "late": None,
}
if (handler := HANDLERS[sys.argv[1]]) is not None:
    signal.signal(signal.SIGTERM, handler)
if "bare" not in sys.argv:
    import jaxmon
    jaxmon.instrument(port=None, time_interval=0, memory_interval=0)
kept = signal.getsignal(signal.SIGTERM) == (handler or signal.SIG_DFL)
try:
    print("ready", kept, flush=True)
    for _ in range(600):  # a signal just before a sleep does not end it
        time.sleep(0.1)
except KeyboardInterrupt:
    if sys.argv[1] != "late":
        raise
    sys.exit(130)
"""
# What the record says, and whether it is a crash.
STOPS = {
    ("exits 0", signal.SIGTERM): "was stopped by SIGTERM",
    ("nested", signal.SIGTERM): "was stopped by SIGTERM",
    ("again", signal.SIGTERM): "was stopped by SIGTERM",
    ("interrupts", signal.SIGTERM): "was stopped by SIGINT",
    ("default", signal.SIGINT): "was stopped by SIGINT",
    ("late", signal.SIGINT): "finished",
}
CRASHES = {
    ("fails", signal.SIGTERM): "raised __main__.Reload: cannot save",
    ("fails inside", signal.SIGTERM): "exited with code 1 (after __main__.Reload: "
    "cannot save)",
}


def ended(
    run_dir: Path, script: Path, way: str, number: int, *options: str
) -> tuple[int, str]:
    """Run the program until the signal; return its code and standard error."""
    with start_preloaded(
        *(str(script), way, *options),
        environ=clean_environ(run_dir),
        stdout=PIPE,
        stderr=PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready True\n"
        process.send_signal(number)
        return process.wait(60), process.stderr.read()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return the program, which has no handler but its own."""
    path = tmp_path / "service.py"
    path.write_text(WAITS)
    return path


@pytest.mark.parametrize(("way", "number"), [*STOPS, *CRASHES])
def test_a_handler_of_the_program_decides(
    run_dir: Path, script: Path, way: str, number: int
) -> None:
    """What it does ends the program as without us, and the record says which it was."""
    code, _ = ended(run_dir, script, way, number)
    bare, _ = ended(run_dir, script, way, number, "bare")
    slot = endings.slots(run_dir)["0"]
    page = page_of(Agents(run_dir))
    crashes = page[f'{AGENT_CRASHES.name}{{worker="0"}}']

    assert code == bare
    said = {**STOPS, **CRASHES}[way, signal.Signals(number)]
    assert str(slot.latest) == said
    assert crashes == ((way, number) in CRASHES) == bool(slot.died)
    assert page[f'{AGENT_DIED.name}{{worker="0",loop=""}}'] == crashes
    assert (f'{AGENT_FINISHED_SECONDS.name}{{worker="0"}}' in page) == (not crashes)
    assert not (run_dir / "agent-0.sock").exists()
    for process in listed(run_dir):  # what crashed alone is an error
        assert process["state"] == "ended"
        assert said in process["verdict"]
    for command in (["ps", "--ended"], ["explain"], ["job", "post-mortem"]):
        assert said in printed(run_dir, *command) or said == "finished"
    # Only what did not finish is the error; else, it is that nothing runs.
    nothing_runs = printed(run_dir, "explain").startswith("Error: no instrumented")
    assert nothing_runs == (not crashes)


@exits_are_reported
def test_the_kernel_says_that_a_program_was_stopped(
    run_dir: Path, script: Path
) -> None:
    """SIGTERM that nothing handles is a stop; SIGKILL is a crash, at the first look."""
    agents = Agents(run_dir)
    for number, crash in ((signal.SIGTERM, 0), (signal.SIGKILL, 1)):
        with started(run_dir, script) as process:
            page_of(agents)
            process.send_signal(number)
            process.wait(60)
            page = page_of(agents)
        assert page[f'{AGENT_CRASHES.name}{{worker="0"}}'] == crash
        assert page[f'{AGENT_DIED.name}{{worker="0",loop=""}}'] == crash
        assert ('jaxmon_agent_up{worker="0"}' in page) == bool(crash)
        way = "stopped by SIGTERM" if not crash else "ended by SIGKILL"
        assert way in str(endings.slots(run_dir)["0"].latest)


def test_an_end_without_a_record_counts_if_it_repeats(
    run_dir: Path, script: Path
) -> None:
    """A single one may be a stop, and is not called a crash."""
    agents = Agents(run_dir)
    for number in range(3):
        with started(run_dir, script) as process:
            process.terminate()
            process.wait(60)
        page = page_of(agents)
        assert page[f'{AGENT_CRASHES.name}{{worker="0"}}'] == number
        [found] = listed(run_dir)
        assert found["state"] == "ended"
        assert (
            "ended without a record: killed, or stopped by a signal"
            in (found["verdict"])
        )
        assert "crash" not in printed(run_dir, "ps")


def started(run_dir: Path, script: Path) -> Program:
    """Start the program without a handler, until it has an agent."""
    process = start_preloaded(
        *(str(script), "default"), environ=clean_environ(run_dir), stdout=PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready True\n"
    return process


SERVICE = """
import os
import jax
import jax.numpy as jnp
double = jax.jit(lambda x: x * 2)
async def app(scope, receive, send):
    assert scope["type"] == "http"
    double(jnp.ones(3))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % os.getpid()})
"""


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)],
)
def test_workers_of_uvicorn_are_stopped(
    run_dir: Path, tmp_path: Path, free_port: int, number: int
) -> None:
    """Each handles the signal, serves what it has, and sends it to itself again."""
    (tmp_path / "service.py").write_text(SERVICE)
    command = ["-m", "jaxmon", "run", "--children", "-m", "uvicorn", "service:app"]
    options = ["--workers=2", "--lifespan=off", f"--port={free_port}"]
    with subprocess.Popen(
        [sys.executable, *command, *options],
        cwd=tmp_path,
        env=clean_environ(run_dir),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            until(lambda: len(listening(run_dir)) >= 2, "both workers", seconds=90)
            observed = {process["pid"] for process in listed(run_dir)}
            assert int(http_get(f"http://127.0.0.1:{free_port}")) in observed
            assert server.pid not in observed
            time.sleep(0.5)
            if number == signal.SIGINT:  # as a terminal does
                os.killpg(server.pid, number)
            else:
                server.send_signal(number)
            server.wait(60)
        finally:
            server.kill()
    found = endings.slots(run_dir)
    page = page_of(Agents(run_dir))

    assert [slot.latest.ended for slot in found.values()] == ["stopped"] * len(found)
    assert {slot.died for slot in found.values()} == {False}
    for worker in found:
        assert not page[f'{AGENT_CRASHES.name}{{worker="{worker}"}}']
    shown = listed(run_dir)
    assert {process["state"] for process in shown} == {"ended"}
    assert all("was stopped by SIG" in process["verdict"] for process in shown)


def listening(run_dir: Path) -> list[Path]:
    """Return the sockets of agents that accept connections."""
    found = []
    for path in run_dir.glob("agent-*.sock"):
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(str(path)) == 0:
                found.append(path)
    return found


def printed(run_dir: Path, *command: str) -> str:
    """Return what a command prints on both streams."""
    environ = {"JAXMON_RUN_DIR": str(run_dir), "COLUMNS": "1000"}
    return " ".join(CliRunner().invoke(main, command, env=environ).output.split())


def listed(run_dir: Path) -> list[dict[str, Any]]:
    """Return the processes of ``jaxmon ps``, those that have ended included."""
    shown = printed(run_dir, "ps", "--json", "--ended")
    document, _ = json.JSONDecoder().raw_decode(shown[shown.index("{") :])
    found: list[dict[str, Any]] = document["processes"]
    return found
