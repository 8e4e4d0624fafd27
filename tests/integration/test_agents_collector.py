"""
The agents collector over real Unix sockets: healthy, killed, hanging and hostile.
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jaxmon.catalog import JIT_CALLS, PROCESS_OPEN_FDS, SCRAPE_SECONDS
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, gauge
from jaxmon.exposition.histogram import Histogram
from jaxmon.exposition.process import ProcessFamilies
from jaxmon.exposition.server import Handler, Request, Response, Server, metrics_handler
from jaxmon_exporter.collectors.agents import Agents
from jaxmon_exporter.polling import CollectorUnavailable
from tests.support import until


GOOD = b"""\
# HELP jaxmon_jit_calls_total Calls.
# TYPE jaxmon_jit_calls_total counter
jaxmon_jit_calls_total{function="f"} 7
"""

NAMELESS = b"""\
# TYPE jaxmon_accelerator_info gauge
jaxmon_accelerator_info{uuid="GPU-1",vendor="nvidia"} 1
"""

Serve = Callable[[int, bytes | Handler], Server]
Raw = Callable[[int, Callable[[socket.socket], object]], None]


@pytest.fixture
def serve(run_dir: Path) -> Iterator[Serve]:
    """
    Return a function that serves a page in a slot, with the agent's own server.
    """
    with ExitStack() as stack:

        def start(slot: int, page: bytes | Handler) -> Server:
            handler = (lambda _: Response(page)) if isinstance(page, bytes) else page
            server = Server({"/metrics": handler}, name=f"agent-{slot}")
            server.listen_unix(run_dir / f"agent-{slot}.sock")
            server.start()
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def raw(run_dir: Path) -> Iterator[Raw]:
    """
    Return a function that lets *behave* answer each connection to a slot.
    """
    with ExitStack() as stack:

        def start(slot: int, behave: Callable[[socket.socket], object]) -> None:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(run_dir / f"agent-{slot}.sock"))
            listener.listen()

            def accept() -> None:
                while True:
                    try:
                        client, _ = listener.accept()
                    except OSError:
                        return
                    with client:
                        try:
                            behave(client)
                        except OSError:
                            continue

            thread = threading.Thread(target=accept, daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(listener.close)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)

        yield start


def page_of(agents: Agents) -> dict[str, float]:
    return {
        name: value for family in agents.collect() for name, value in family.samples
    }


def up(page: dict[str, float]) -> dict[str, float]:
    return {
        name.partition('worker="')[2].rstrip('"}'): value
        for name, value in page.items()
        if name.startswith("jaxmon_agent_up")
    }


def failures(page: dict[str, float]) -> dict[str, float]:
    return {
        name.partition('reason="')[2].rstrip('"}'): value
        for name, value in page.items()
        if name.startswith("jaxmon_collector_errors_total") and value
    }


def test_pages_of_all_agents_are_told_apart_by_worker(
    run_dir: Path, serve: Serve
) -> None:
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


def test_own_and_relayed_series_form_one_block(run_dir: Path, serve: Serve) -> None:
    """The sidecar's own process figures and the agents' share one TYPE line."""
    serve(0, b"# TYPE process_open_fds gauge\nprocess_open_fds 5\n")
    serve(1, b"# TYPE process_open_fds gauge\nprocess_open_fds 6\n")
    own = Family(PROCESS_OPEN_FDS, [("process_open_fds", 4)])
    text = encode([*Agents(run_dir).collect(), own]).decode()
    block = text[text.index("# HELP process_open_fds") :].splitlines()[:5]
    assert text.count("# TYPE process_open_fds") == 1
    assert block[2:] == [
        'process_open_fds{worker="0"} 5',
        'process_open_fds{worker="1"} 6',
        "process_open_fds 4",
    ]


def test_missing_run_directory_means_no_agents(tmp_path: Path) -> None:
    """Before the first agent made the directory the collector works, and is empty."""
    page = page_of(Agents(tmp_path / "none"))
    assert up(page) == {}


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


def test_agent_that_left_is_forgotten(run_dir: Path, serve: Serve) -> None:
    """An agent that removed its socket has not even up 0 any more."""
    serve(0, GOOD)
    serve(1, GOOD)
    agents = Agents(run_dir)
    assert up(page_of(agents)) == {"0": 1, "1": 1}
    (run_dir / "agent-1.sock").unlink()
    assert up(page_of(agents)) == {"0": 1}


def test_hanging_agent_costs_only_itself(run_dir: Path, serve: Serve, raw: Raw) -> None:
    """Agents that never answer are down, the others are served in the same round."""
    done = threading.Event()
    for slot in (0, 2):
        raw(slot, lambda _: done.wait(30))
    serve(1, GOOD)
    try:
        page = page_of(Agents(run_dir, timeout=0.5))
    finally:
        done.set()
    assert up(page) == {"0": 0, "1": 1, "2": 0}
    assert failures(page) == {"agent_timeout": 2}


def test_dripping_agent_does_not_outlast_the_deadline(run_dir: Path, raw: Raw) -> None:
    """One byte at a time does not extend the time that an agent gets."""
    stop = threading.Event()

    def drip(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not stop.wait(0.05):
            client.sendall(b"#")

    raw(0, drip)
    watchdog = threading.Timer(20.0, stop.set)
    watchdog.start()
    try:
        page = page_of(Agents(run_dir, timeout=0.4))
        assert not stop.is_set()
    finally:
        stop.set()
        watchdog.cancel()
        watchdog.join()
    assert failures(page) == {"agent_timeout": 1}


def test_connection_queue_that_is_full_is_a_timeout(run_dir: Path) -> None:
    """A process that no longer accepts connections does not block the collector."""
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as stack:
        listener.bind(str(run_dir / "agent-0.sock"))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(0)
            try:
                client.connect(str(run_dir / "agent-0.sock"))
            except BlockingIOError:
                break
        page = page_of(Agents(run_dir, timeout=0.5))
    assert failures(page) == {"agent_timeout": 1}


def test_flooding_agent_is_cut_off(run_dir: Path, serve: Serve, raw: Raw) -> None:
    """A page above the limit is refused while it arrives, not after."""
    sent = 0

    def flood(client: socket.socket) -> None:
        nonlocal sent
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent < 64 << 20:
            sent += client.send(b"x" * 65536)

    raw(0, flood)
    serve(1, GOOD)
    page = page_of(Agents(run_dir, max_bytes=1 << 20))
    assert up(page) == {"0": 0, "1": 1}
    assert failures(page) == {"agent_too_large": 1}
    assert sent < 8 << 20


def test_pages_that_are_too_large_together(run_dir: Path, serve: Serve) -> None:
    """
    However many agents there are, memory is bounded; the largest pages are left out,
    whenever they come.
    """
    for slot in range(8):
        size = 400_000 if slot in (2, 5) else 10_000
        serve(slot, b"# " + b"x" * size + b"\n" + GOOD)
    found = page_of(Agents(run_dir, max_total=300_000))
    assert up(found) == {str(slot): float(slot not in (2, 5)) for slot in range(8)}
    assert failures(found) == {"agent_too_large": 2}
    assert sum(up(page_of(Agents(run_dir))).values()) == 8


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "broken"),
        (b"not http at all\r\n\r\n", "broken"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "broken"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort", "broken"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "broken"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "broken"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe", "broken"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "page"),
        (b"HTTP/1.1 200 OK\r\n\r\nx{a=1} 2\n", "page"),
    ],
)
def test_broken_answer_costs_only_its_agent(
    run_dir: Path, serve: Serve, raw: Raw, answer: bytes, reason: str
) -> None:
    """Whatever an agent answers, the others are served and the reason is counted."""

    def behave(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(answer)

    raw(0, behave)
    serve(1, GOOD)
    page = page_of(Agents(run_dir))
    assert up(page) == {"0": 0, "1": 1}
    assert failures(page) == {f"agent_{reason}": 1}


@pytest.mark.parametrize(
    "lines",
    [
        b'# TYPE jaxmon_gpu_info gauge\njaxmon_gpu_info{uuid="u"} 1\n',
        b"# TYPE jaxmon_agent_up gauge\njaxmon_agent_up 1\n",
        GOOD.replace(b"counter", b"gauge"),
        b'jaxmon_jit_calls_total{function="f"} 1\n',
        b'# TYPE jaxmon_a gauge\njaxmon_a{b="1"} 1\njaxmon_a{b="1"} 2\n',
        b"# TYPE up gauge\nup 0\n",
        b"# TYPE DCGM_FI_DEV_GPU_TEMP counter\nDCGM_FI_DEV_GPU_TEMP 1\n",
        NAMELESS,
        NAMELESS.replace(b"uuid", b"name"),
    ],
    ids=[
        "sidecar metric",
        "up itself",
        "other kind",
        "untyped",
        "twice",
        "a word of Prometheus",
        "another exporter's",
        "half a device",
        "no device",
    ],
)
def test_page_that_would_spoil_the_others_is_refused(
    run_dir: Path, serve: Serve, lines: bytes
) -> None:
    """
    An agent cannot speak for the sidecar or for others, change a type, or repeat a
    series.
    """
    serve(0, lines)
    serve(1, GOOD)
    page = page_of(Agents(run_dir))
    assert up(page) == {"0": 0, "1": 1}
    assert failures(page) == {"agent_page": 1}
    assert page['jaxmon_jit_calls_total{worker="1",function="f"}'] == 7


def test_forged_worker_label_is_kept_apart(run_dir: Path, serve: Serve) -> None:
    """An agent that claims to be another worker does not mix with it."""
    serve(0, b'# TYPE jaxmon_new gauge\njaxmon_new{worker="1"} 5\n')
    page = page_of(Agents(run_dir))
    assert page['jaxmon_new{worker="0",exported_worker="1"}'] == 5


def test_agent_that_recovers_is_served_again(run_dir: Path, serve: Serve) -> None:
    """A failure leaves nothing behind once the agent answers properly."""
    answers = [b"<html>", GOOD]

    def handler(_request: Request) -> Response:
        return Response(answers.pop(0))

    serve(0, handler)
    agents = Agents(run_dir)
    assert up(page_of(agents)) == {"0": 0}
    page = page_of(agents)
    assert up(page) == {"0": 1}
    assert failures(page) == {"agent_page": 1}


def test_trouble_is_logged_when_it_begins(
    run_dir: Path, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent in trouble is one line in the log, however often it is polled."""
    serve(0, b"<html>")
    agents = Agents(run_dir)
    with caplog.at_level(logging.WARNING, "jaxmon.exporter"):
        for _ in range(3):
            page_of(agents)
    (record,) = caplog.records
    assert record.getMessage().startswith("agent 0: page: line 1: malformed sample")


def test_many_agents_are_read_at_once(run_dir: Path, raw: Raw) -> None:
    """Forty agents that answer together are read in one round, not one by one."""
    count = 40
    together = threading.Barrier(count)

    def behave(client: socket.socket) -> None:
        together.wait(20)
        client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + GOOD)

    for slot in range(count):
        raw(slot, behave)
    page = page_of(Agents(run_dir, timeout=20.0))
    assert up(page) == {str(slot): 1.0 for slot in range(count)}


def test_nothing_stays_open(run_dir: Path, serve: Serve, raw: Raw) -> None:
    """Every round closes its sockets, answered or not."""
    done = threading.Event()
    raw(0, lambda _: done.wait(30))
    serve(1, GOOD)
    try:
        agents = Agents(run_dir, timeout=0.2)
        before = _sockets()
        for _ in range(3):
            page_of(agents)
        until(lambda: _sockets() <= before + 2, "the sockets to be closed")
    finally:
        done.set()


def _sockets() -> int:
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += str(entry.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return count
