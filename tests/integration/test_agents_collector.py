"""The agents collector over real Unix sockets: whose figures are whose."""

import logging
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jaxmon.catalog import JIT_CALLS, SCRAPE_SECONDS
from jaxmon.exposition.families import Histogram, gauge
from jaxmon.host.http.server import metrics_handler
from jaxmon.host.resources.process import ProcessFamilies
from jaxmon_exporter.collectors.agents import Agents
from jaxmon_exporter.polling import CollectorUnavailable, Poller
from tests.fakes.agents import GOOD, Raw, Serve, failures, page_of, up


def test_pages_of_all_agents_are_told_apart_by_worker(run_dir, serve):
    """Each agent's series carry its slot as the first label."""
    serve(0, GOOD)
    serve(3, GOOD.replace(b" 7", b" 8"))
    page = page_of(Agents(run_dir))
    assert page['jaxmon_jit_calls_total{worker="0",function="f"}'] == 7
    assert page['jaxmon_jit_calls_total{worker="3",function="f"}'] == 8
    assert up(page) == {"0": 1, "3": 1}
    assert failures(page) == {}


def test_page_of_a_real_agent_survives_the_way(run_dir: Path, serve: Serve) -> None:
    """What the exposition server writes arrives with every series and value."""
    seconds = Histogram(SCRAPE_SECONDS)
    own = ProcessFamilies()
    fixed = [gauge(JIT_CALLS, 3, 'odd "name"\\\n'), *own.collect()]
    serve(0, metrics_handler(lambda: fixed, seconds))
    page = page_of(Agents(run_dir))
    for family in fixed:
        for series, value in family.samples:
            name, _, labels = series.partition("{")
            text = f'worker="0",{labels}' if labels else 'worker="0"}'
            assert page[f"{name}{{{text}"] == value


def test_missing_run_directory_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory that no agent made is normal; one that was removed is a failure."""
    run_dir = tmp_path / "run"
    poller = Poller(Agents(run_dir))

    def poll() -> tuple[str, bool]:
        poller.poll()
        status = poller.status()
        return status.reason, status.absent

    with caplog.at_level(logging.WARNING, "jaxmon.exporter"):
        for _ in range(5):
            assert poll() == ("no_run_dir", True)
        assert not caplog.records
        assert poller.delay() <= 2.0
        run_dir.mkdir()
        assert poll() == ("", False)
        run_dir.rmdir()
        assert poll() == ("no_run_dir", False)

    assert f"run directory {run_dir} does not exist" in caplog.text
    assert poller.delay() <= 2.0
    assert poller.status().errors["no_run_dir"] == 6


def test_run_directory_that_is_a_file_is_a_reason(tmp_path: Path) -> None:
    """A run directory that cannot be read is reported, with what to do."""
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(CollectorUnavailable, match="--run-dir") as caught:
        page_of(Agents(path))
    assert caught.value.reason == "run_dir"


def test_killed_process_is_down_without_series(run_dir: Path, serve: Serve) -> None:
    """After kill -9 the socket file stays: up is 0, no series, and no failure."""
    source = (
        "import socket, sys, time\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
        "print('listening', flush=True); time.sleep(600)\n"
    )
    path = run_dir / "agent-1.sock"
    with subprocess.Popen(
        [sys.executable, "-c", source, str(path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert path.exists()
    serve(0, GOOD)
    page = page_of(Agents(run_dir))
    assert up(page) == {"0": 1, "1": 0}
    assert not any(
        'worker="1"' in series for series in page if "agent_up" not in series
    )
    assert failures(page) == {}


def test_agent_that_ends_while_it_is_asked_is_gone(
    run_dir: Path, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that removed its socket is no failure: no series, no log line."""
    said = (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + GOOD[:20])
    for slot, some in enumerate(said):

        def end(client: socket.socket, slot: int = slot, some: bytes = some) -> None:
            client.recv(4096)
            client.sendall(some)
            (run_dir / f"agent-{slot}.sock").unlink()

        raw(slot, end)
    with caplog.at_level(logging.WARNING, "jaxmon.exporter"):
        page = page_of(Agents(run_dir))

    assert (up(page), failures(page), caplog.records) == ({}, {}, [])


def test_agent_that_is_killed_while_it_is_asked_is_gone(run_dir: Path) -> None:
    """Nothing is listening on its socket any more: up is 0, and nothing is broken."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(run_dir / "agent-0.sock"))
    listener.listen()

    def die() -> None:
        client, _ = listener.accept()
        client.recv(4096)
        listener.close()
        client.close()

    thread = threading.Thread(target=die)
    thread.start()
    page = page_of(Agents(run_dir))
    thread.join()

    assert (up(page), failures(page)) == ({"0": 0}, {})


def test_agent_that_left_is_forgotten(run_dir: Path, serve: Serve) -> None:
    """An agent that removed its socket has not even up 0 any more."""
    serve(0, GOOD)
    serve(1, GOOD)
    agents = Agents(run_dir)
    assert up(page_of(agents)) == {"0": 1, "1": 1}
    (run_dir / "agent-1.sock").unlink()
    assert up(page_of(agents)) == {"0": 1}


def test_many_agents_are_read_at_once(run_dir: Path, raw: Raw) -> None:
    """Forty agents that answer together are read in one round, not one by one."""
    count = 40
    together = threading.Barrier(count)

    def behave(client: socket.socket) -> None:
        together.wait(90)
        client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + GOOD)

    for slot in range(count):
        raw(slot, behave)
    page = page_of(Agents(run_dir, timeout=60))
    assert up(page) == {str(slot): 1.0 for slot in range(count)}
