"""What `jaxmon doctor` finds in a run directory and on a port."""

import socket
from contextlib import closing
from pathlib import Path

from jaxmon.host import rundir
from jaxmon.preflight.doctor import machine
from tests.fakes.agents import behaving
from tests.helpers.findings import by_status


def test_a_usable_run_directory_leaves_nothing_behind(run_dir: Path) -> None:
    """Socket and lock of the trial are gone afterwards."""
    findings = list(machine.sockets(run_dir, None))
    assert by_status(findings) == {"ok": [f"run directory {run_dir}"]}
    assert list(run_dir.iterdir()) == []


def test_a_run_directory_that_did_not_exist_does_not_exist_after(run_dir: Path) -> None:
    """Looking makes no directory."""
    assert next(iter(machine.sockets(run_dir / "new", None))).status == "ok"
    assert not (run_dir / "new").exists()


def test_a_run_directory_whose_path_is_too_long(tmp_path: Path) -> None:
    """A Unix socket's path has 106 bytes; the finding names the variable to set."""
    (found,) = machine.sockets(tmp_path / ("x" * 120), None)
    assert found.status == "failure"
    assert "JAXMON_RUN_DIR" in found.text


def test_agents_that_run_died_and_hang(run_dir: Path) -> None:
    """Sockets are distinguished by whether something is listening, and responds."""
    with closing(socket.socket(socket.AF_UNIX)) as hung:
        hung.bind(str(run_dir / "agent-3.sock"))
        hung.listen()
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(str(run_dir / "agent-5.sock"))
        dead.close()
        found = by_status(list(machine.sockets(run_dir, None)))

    assert found["warning"][0].startswith("agent 3 does not respond: ")
    assert found["note"] == [
        "worker 5: killed, and the socket is left; the next agent there replaces it"
    ]


def test_what_answers_nonsense_is_no_agent(run_dir: Path) -> None:
    """Nothing is said of a process that is stopped, or busy."""
    path = run_dir / "agent-0.sock"

    def greet(client: socket.socket) -> None:
        client.recv(1 << 16)
        client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    with behaving(run_dir) as serve:
        serve(0, greet)
        (found,) = list(machine.sockets(run_dir, None))[1:]

    assert found.status == "warning"
    assert found.text.startswith(f"{path} is not an agent: its response")
    assert "lsof" in found.advice


def test_a_port_in_use_is_a_note(run_dir: Path, free_port: int) -> None:
    """A busy port is no failure: the agent moves on to the next."""
    assert list(machine.sockets(run_dir, free_port))[-1].status == "ok"
    with closing(socket.create_server(("127.0.0.1", free_port))):
        found = list(machine.sockets(run_dir, free_port))[-1]
    assert (found.status, f"port {free_port} is in use" in found.text) == ("note", True)


def test_a_slot_in_use_is_left_alone(run_dir: Path) -> None:
    """The trial takes a slot of its own while an agent holds the first."""
    slot = rundir.acquire(run_dir)
    try:
        assert next(iter(machine.sockets(run_dir, None))).status == "ok"
        assert (run_dir / "agent-0.lock").exists()
    finally:
        slot.release()
