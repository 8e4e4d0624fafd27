"""``jaxmon exporter`` as a process: how signals end it, and which do not."""

import re
import signal
import socket
from collections.abc import Callable

import pytest

from tests.helpers.processes import run_python, until
from tests.helpers.sidecars import Exporter


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_with_code_zero(exporter, number):
    """SIGTERM and SIGINT are the normal end: exit code 0, no traceback."""
    running = exporter()
    running.until_ready()
    assert running.stop(number) == 0
    assert not any("Traceback" in line for line in running.log)


INTERRUPTED = """
import signal, sys

class Interrupt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
sys.argv = ["jaxmon", *{arguments}]
from jaxmon.cli.entry import {entry}
{entry}()
"""


@pytest.mark.parametrize(
    ("name", "code", "own_name"),
    [
        ("jaxmon.cli.main", -signal.SIGINT, False),
        ("jaxmon.cli.main", -signal.SIGINT, True),
        ("click", -signal.SIGINT, True),
        ("jaxmon.cli.exporter", 128 + signal.SIGINT, False),
        ("jaxmon.cli.exporter", 128 + signal.SIGINT, True),
        ("jaxmon_exporter.service", 0, True),
    ],
)
def test_ctrl_c_ends_it_without_a_word_at_any_time(run_dir, name, code, own_name):
    """Also during startup: a shell reports 130 for a signal as for the exit code."""
    source = INTERRUPTED.format(
        name=name,
        arguments=["--port", "0"] if own_name else ["exporter", "--port", "0"],
        entry="exporter" if own_name else "main",
    )
    result = run_python("-c", source, run_dir=run_dir)

    assert (result.code, result.out, result.err) == (code, "", "")


def test_sighup_reads_the_web_configuration_again(exporter, tmp_path):
    """It continues to serve, with the current content of the file, and logs that."""
    path = tmp_path / "web.yml"
    path.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    running = exporter("--web-config", str(path))
    running.until_ready()
    running.process.send_signal(signal.SIGHUP)
    until(lambda: any(f"reloaded: {path}" in one for one in running.log), "the log")
    assert "jaxmon_web_config_success 1\n" in running.get()

    path.write_text("[")
    running.process.send_signal(signal.SIGHUP)
    stays = "keeping the previous configuration"
    until(lambda: any(stays in one for one in running.log), "the refusal")
    assert "jaxmon_web_config_success 0\n" in running.get()
    assert running.stop() == 0


def test_sighup_ends_nothing(exporter: Callable[..., Exporter]) -> None:
    """Without such a file there is nothing to read again; it serves on."""
    running = exporter()
    running.until_ready()
    running.process.send_signal(signal.SIGHUP)
    until(lambda: any("nothing to reload" in one for one in running.log), "the log")
    assert "jaxmon_web_config_success" not in running.get()
    assert running.stop() == 0


def test_response_under_way_is_finished(exporter: Callable[..., Exporter]) -> None:
    """A client that is still reading its page at SIGTERM gets all of it."""
    running = exporter("--demo")
    running.until_ready()
    port = int(running.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = client.recv(1024)
        running.process.send_signal(signal.SIGTERM)
        while chunk := client.recv(65536):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length is not None
    assert len(body) == int(length[1])
    assert running.stop() == 0


def test_hanging_agent_does_not_delay_the_end(exporter, run_dir):
    """A poll in progress does not keep the process from stopping."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run_dir / "agent-0.sock"))
        listener.listen()
        listener.settimeout(60)
        running = exporter()
        client, _ = listener.accept()
        with client:
            assert running.stop() == 0
