"""Agents that hang, flood, or serve what is no page: what each costs the others."""

import logging
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from jaxmon.host.http.server import Request, Response
from jaxmon_exporter.collectors.agents import Agents
from jaxmon_exporter.polling import Poller
from tests.fakes.agents import GOOD, Raw, Serve, failures, page_of, up
from tests.helpers.processes import until


HISTOGRAM = b"""\
# TYPE jaxmon_a histogram
jaxmon_a_bucket{le="0.1"} 2
jaxmon_a_bucket{le="0.5"} 3
jaxmon_a_bucket{le="+Inf"} 4
jaxmon_a_sum 1.5
jaxmon_a_count 4
"""
NAMELESS = b"""\
# TYPE jaxmon_accelerator_info gauge
jaxmon_accelerator_info{uuid="GPU-1",vendor="nvidia"} 1
"""


def test_hanging_agent_costs_only_itself(run_dir: Path, serve: Serve, raw: Raw) -> None:
    """Agents that never answer are down, the others are served in the same round."""
    done = threading.Event()
    for slot in (0, 2):
        raw(slot, lambda _: done.wait(90))
    serve(1, GOOD)
    try:
        # The others, too, may be slow, on a machine that has other work to do.
        for timeout in (0.5, 2.0, 15.0):
            page = page_of(Agents(run_dir, timeout=timeout))
            if up(page)["1"]:
                break
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
    watchdog = threading.Timer(90.0, stop.set)
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
    """However many agents there are, memory is bounded: large pages are left out."""
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
def test_broken_answer_costs_only_its_agent(run_dir, serve, raw, answer, reason):
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
        b"# HELP jaxmon_new " + b"x" * 2000 + b"\n",
        b"jaxmon_" + b"x" * 2000 + b" 1\n",
        b"# TYPE jaxmon_accelerator_power_watts gauge\n"
        b'jaxmon_accelerator_power_watts{uuid="' + b"x" * 2000 + b'"} 1\n',
        b'# TYPE jaxmon_a gauge\njaxmon_a{b="1",c="2"} 1\njaxmon_a{c="2",b="1"} 2\n',
        b'# TYPE jaxmon_a gauge\njaxmon_a{b="1",c=""} 1\njaxmon_a{b="1"} 2\n',
        b'# TYPE jaxmon_a gauge\njaxmon_a{b="' + b"x" * 10_000 + b'"} 1\n',
        b"jaxmon_a 1\n# TYPE jaxmon_a_total counter\njaxmon_a_total 1\n",
        b"# TYPE jaxmon_jit_calls gauge\njaxmon_jit_calls 1\n",
        b"# TYPE jaxmon_scrape_seconds_sum gauge\njaxmon_scrape_seconds_sum 1\n",
        HISTOGRAM.replace(b"+Inf", b"NaN"),
        HISTOGRAM.replace(b"+Inf", b"0.7"),
        HISTOGRAM.replace(b"0.1", b"0.9"),
        HISTOGRAM.replace(b'0.5"} 3', b'0.5"} 1'),
        HISTOGRAM.replace(b"_count 4", b"_count 5"),
        HISTOGRAM.replace(b"_sum 1.5", b"_sum NaN"),
        HISTOGRAM.replace(b"jaxmon_a_sum 1.5\n", b""),
        HISTOGRAM
        + b'jaxmon_a_bucket{loop="x",le="+Inf"} 1\njaxmon_a_bucket{le="9"} 1\n',
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
        "a long story",
        "a long name",
        "a long device",
        "labels in another order",
        "an empty label",
        "a long label",
        "x beside x_total",
        "x beside our x_total",
        "part of our histogram",
        "a bound that is no number",
        "no last bucket",
        "bounds out of order",
        "counts that fall",
        "another count",
        "a sum that is no number",
        "no sum",
        "a histogram in pieces",
    ],
)
def test_page_that_would_spoil_the_others_is_refused(
    run_dir: Path, serve: Serve, lines: bytes
) -> None:
    """An agent cannot speak for others, change a type, or repeat a series."""
    serve(0, lines)
    serve(1, GOOD)
    page = page_of(Agents(run_dir))
    assert up(page) == {"0": 0, "1": 1}
    assert failures(page) == {"agent_page": 1}
    assert page['jaxmon_jit_calls_total{worker="1",function="f"}'] == 7


def test_histogram_that_is_whole_is_served(run_dir: Path, serve: Serve) -> None:
    """What is refused above is refused for what was changed in it."""
    serve(0, HISTOGRAM)
    page = page_of(Agents(run_dir))
    assert (up(page), failures(page)) == ({"0": 1}, {})
    assert page['jaxmon_a_bucket{worker="0",le="0.5"}'] == 3


def test_metric_of_two_kinds_is_that_of_the_first(
    run_dir: Path, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two kinds the first is served; the other is counted and logged once."""
    serve(0, b"# TYPE jaxmon_a_total counter\njaxmon_a_total 1\n")
    serve(1, b"# TYPE jaxmon_a gauge\njaxmon_a 2\n" + GOOD)
    serve(2, b"# TYPE jaxmon_a_total gauge\njaxmon_a_total 2\n" + GOOD)
    agents = Agents(run_dir)
    with caplog.at_level(logging.WARNING, "jaxmon.exporter"):
        first, second = page_of(agents), page_of(agents)

    assert up(first) == {"0": 1, "1": 1, "2": 1}
    assert [name for name in first if name.startswith("jaxmon_a{")] == []
    assert first['jaxmon_a_total{worker="0"}'] == 1
    assert 'jaxmon_a_total{worker="2"}' not in first
    assert first['jaxmon_jit_calls_total{worker="1",function="f"}'] == 7
    assert failures(second) == {"agent_conflict": 4}
    (record,) = caplog.records
    assert "gauge jaxmon_a and counter jaxmon_a_total conflict" in record.getMessage()


def test_counts_that_cannot_be_cost_themselves(run_dir: Path, serve: Serve) -> None:
    """A count below nothing is left out and counted; the agent's others are served."""
    serve(0, GOOD + b'jaxmon_jit_calls_total{function="g"} -1\n')
    poller = Poller(Agents(run_dir))
    poller.poll()
    page = {name: value for one in poller.families() for name, value in one.samples}
    assert up(page) == {"0": 1}
    assert page['jaxmon_jit_calls_total{worker="0",function="f"}'] == 7
    assert 'jaxmon_jit_calls_total{worker="0",function="g"}' not in page
    assert poller.dropped == 1


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


def test_trouble_is_logged_when_it_begins(run_dir, serve, caplog):
    """An agent in trouble is one line in the log, however often it is polled."""
    serve(0, b"<html>")
    agents = Agents(run_dir)
    with caplog.at_level(logging.WARNING, "jaxmon.exporter"):
        for _ in range(3):
            page_of(agents)
    (record,) = caplog.records
    assert record.getMessage().startswith("agent 0: page: line 1: malformed sample")


def test_nothing_stays_open(run_dir: Path, serve: Serve, raw: Raw) -> None:
    """Every round closes its sockets, answered or not."""
    done = threading.Event()
    raw(0, lambda _: done.wait(90))
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
