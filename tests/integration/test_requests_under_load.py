"""FastAPI, Flask and gRPC under load, against the ledger of the client."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from jaxmon.host.http import client
from tests.helpers.otlp import Span, TraceReceiver, page_samples, receiver
from tests.helpers.processes import ROOT, clean_environ, http_get, until


Kind = tuple[str, str, str]


class Entry(NamedTuple):
    """What the client knows of a request."""

    name: str
    route: str
    outcome: str
    start: str
    attributes: dict[str, Any]

    @property
    def kind(self) -> Kind:
        """What its series is."""
        return self.route, self.outcome, self.start


class Ledger:
    """The requests that a client has made, by the id of their trace. Thread-safe."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    def next(self) -> tuple[str, str]:
        """Return the id of a new trace, and its header."""
        with self._lock:
            number = next(self._numbers)
        return f"{number:032x}", f"00-{number:032x}-{number:016x}-01"

    def http(
        self,
        port: int,
        path: str,
        route: str,
        status: int,
        *,
        start: str = "warm",
        body: str | None = None,
    ) -> None:
        """Make a request, and note it if it got *status*."""
        trace, header = self.next()
        method = "GET" if body is None else "POST"
        connection = HTTPConnection("127.0.0.1", port, timeout=240)
        headers = {"traceparent": header, "Content-Type": "application/json"}
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        assert response.status == status
        outcome = {2: "success", 4: "client_error", 5: "error"}[status // 100]
        self._note_http(trace, method, status, (route, outcome, start))

    def leave(self, port: int, path: str) -> None:
        """Request what never ends, and leave after its first bytes."""
        trace, header = self.next()
        with socket.create_connection(("127.0.0.1", port), timeout=240) as one:
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\ntraceparent: {header}\r\n\r\n"
            one.sendall(head.encode())
            assert one.recv(1000).startswith(b"HTTP/1.")
        self._note_http(trace, "GET", 200, (path, "client_error", "warm"))

    def _note_http(
        self, trace: str, method: str, status: int, kind: tuple[str, str, str]
    ) -> None:
        route, outcome, start = kind
        known = {} if route == "unmatched" else {"http.route": route}
        attributes = {
            "http.request.method": method,
            "http.response.status_code": status,
            **known,
        }
        name = method if route == "unmatched" else f"{method} {route}"
        self.entries[trace] = Entry(name, route, outcome, start, attributes)

    def rpc(
        self,
        channel: grpc.Channel,
        request: bytes,
        code: grpc.StatusCode = grpc.StatusCode.OK,
        *,
        method: str = "Run",
        start: str = "warm",
        seconds: float = 240,
        cancel: bool = False,
    ) -> None:
        """Make an RPC, and note it if it ended with *code*."""
        trace, header = self.next()
        route, metadata = f"/models.Predict/{method}", (("traceparent", header),)
        got = grpc.StatusCode.OK
        try:
            if method == "Stream":
                list(channel.unary_stream(route)(request, seconds, metadata))
            else:
                call = channel.unary_unary(route).future(request, seconds, metadata)
                if cancel:
                    # Only what has arrived is a request of the server's.
                    with suppress(grpc.FutureTimeoutError):
                        call.result(timeout=0.5)
                    call.cancel()
                got = call.code()
        except grpc.RpcError as error:
            got = error.code()
        assert got is code
        codes = {"OK": "success", "INVALID_ARGUMENT": "client_error"}
        outcome = "client_error" if cancel else codes.get(code.name, "error")
        attributes = {
            "rpc.system.name": "grpc",
            "rpc.method": f"models.Predict/{method}",
            "rpc.response.status_code": code.name,
        }
        self.entries[trace] = Entry(
            route.removeprefix("/"), route, outcome, start, attributes
        )


SERVER = 2
PHASES = ["jax.trace", "jax.lower", "jax.backend_compile"]
PROGRAM = "tests/programs/loaded.py"
# A busy machine may delay a worker's response to uvicorn.
PATIENCE = ("--timeout-worker-healthcheck", "240", "--no-access-log")
WORKERS = ("tests.programs.loaded:app", "--workers", "4", *PATIENCE)
REQUESTS, SECONDS = "jaxmon_requests_total", "jaxmon_request_seconds_count"
IN_PROGRESS = "jaxmon_requests_in_progress"
ROUNDS = 8


class Exemplar(NamedTuple):
    """An exemplar that was pushed: of which series, and of which span."""

    metric: str
    labels: dict[str, str]
    trace: str
    span: str
    seconds: float


class Observed(NamedTuple):
    """What the client noted, and what was exported."""

    ledger: Ledger
    pages: list[str]
    pushed: Counter[Kind]
    exemplars: list[Exemplar]
    spans: list[Span]


def load(*work: Callable[[], None]) -> None:
    """Do all the *work* several times, four at once, in varying order."""
    with ThreadPoolExecutor(4) as pool:
        started = [
            pool.submit(one) for number in range(ROUNDS) for one in work[number % 2 :]
        ]
        for one in started:
            one.result()


def fastapi_load(ledger: Ledger, port: int) -> list[Callable[[], None]]:
    """Return requests of every kind."""
    http = ledger.http
    return [
        lambda: http(port, "/predict/3", "/predict/{length}", 200),
        lambda: http(port, "/score", "/score", 200, body='{"length": 3}'),
        lambda: http(port, "/score", "/score", 422, body="{garbage"),
        lambda: http(port, "/predict/x", "/predict/{length}", 422),
        lambda: http(port, "/stream/3", "/stream/{number}", 200),
        lambda: http(port, "/fail", "/fail", 500),
        lambda: http(port, "/nothing/%00", "unmatched", 404),
        lambda: ledger.leave(port, "/endless"),
    ]


def flask_load(ledger: Ledger, port: int) -> list[Callable[[], None]]:
    """Return requests of every kind."""
    http = ledger.http
    route = "/f/predict/<int:length>"
    return [
        lambda: http(port, "/f/predict/3", route, 200),
        lambda: http(port, "/f/score", "/f/score", 200, body='{"length": 3}'),
        lambda: http(port, "/f/score", "/f/score", 400, body="{garbage"),
        lambda: http(port, "/f/predict/x", "unmatched", 404),
        lambda: http(port, "/f/fail", "/f/fail", 500),
        lambda: ledger.leave(port, "/f/endless"),
    ]


def grpc_load(ledger: Ledger, channel: grpc.Channel) -> list[Callable[[], None]]:
    """Return RPCs of every kind."""
    code, rpc = grpc.StatusCode, ledger.rpc
    return [
        lambda: rpc(channel, b"3"),
        lambda: rpc(channel, b"\xff", code.INVALID_ARGUMENT),
        lambda: rpc(channel, b"-1", code.UNKNOWN),
        lambda: rpc(channel, b"3", method="Stream"),
        lambda: rpc(channel, b"0", code.CANCELLED, cancel=True),
        lambda: rpc(channel, b"0", code.DEADLINE_EXCEEDED, seconds=0.5),
    ]


def environ(
    traces: str, metrics: str, protocol: str, run_dir: Path | None = None
) -> dict[str, str]:
    """Return what a server needs to push everything, when it ends at the latest."""
    return clean_environ(
        run_dir,
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=traces,
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=metrics,
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_TRACES_SAMPLER="always_on",
        PYTHONPATH=str(ROOT),
    )


def kinds(text: str, name: str = REQUESTS) -> Counter[Kind]:
    """Return the series of *name* on a page that are not 0."""
    found: Counter[Kind] = Counter()
    for (series, labels), value in page_samples(text).items():
        if series == name and value:
            by_name = dict(labels)
            kind = by_name["route"], by_name["outcome"], by_name["start"]
            found[kind] += int(value)
    return found


def settled(ledger: Ledger, pages: Callable[[], list[str]]) -> list[str]:
    """Return the pages once the server has noticed all that the client did."""

    def look() -> list[str]:
        texts = pages()
        # A page may be made between the two, of a request that is being counted.
        ended, timed = (
            sum(sum(kinds(text, name).values()) for text in texts)
            for name in (REQUESTS, SECONDS)
        )
        running = sum(
            value
            for text in texts
            for (name, _), value in page_samples(text).items()
            if name == IN_PROGRESS
        )
        done = ended == timed == len(ledger.entries)
        return texts if done and not running else []

    return until(look, "all requests")


def pushed(requests: list[Any]) -> Counter[Kind]:
    """Return the last value of each series that was pushed, of all processes."""
    latest: dict[Any, float] = {}
    for one in requests:
        process = one.resource()["service.instance.id"]
        for (name, labels), value in one.samples().items():
            if name == REQUESTS and value:
                latest[process, labels] = value
    found: Counter[Kind] = Counter()
    for (_, labels), value in latest.items():
        by_name = dict(labels)
        kind = by_name["route"], by_name["outcome"], by_name["start"]
        found[kind] += int(value)
    return found


def exemplars(requests: list[Any]) -> list[Exemplar]:
    """Return all exemplars that were pushed."""
    return [
        Exemplar(
            name,
            {pair.key: pair.value.string_value for pair in point.attributes},
            one.trace_id.hex(),
            one.span_id.hex(),
            one.as_double,
        )
        for request in requests
        for name, metric in request.metrics().items()
        for point in metric.histogram.data_points
        for one in point.exemplars
    ]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Observed]:
    """Return what three servers in a process made of their load, sent by HTTP."""
    ledger = Ledger()
    with TraceReceiver() as traces, receiver(tmp_path) as metrics:
        found = environ(
            f"http://127.0.0.1:{traces.http}/v1/traces",
            f"{metrics.http}/v1/metrics",
            "http/protobuf",
        )
        server = subprocess.Popen(
            [sys.executable, PROGRAM],
            cwd=ROOT,
            env=found,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert server.stdout is not None
            ports = json.loads(server.stdout.readline())
            fastapi, flask = ports["fastapi"], ports["flask"]
            with grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}") as channel:
                path, cold = "/predict/{length}", "cold"
                ledger.http(fastapi, "/predict/10", path, 200, start=cold)
                path = "/f/predict/<int:length>"
                ledger.http(flask, "/f/predict/11", path, 200, start=cold)
                ledger.rpc(channel, b"12", start=cold)
                load(
                    *fastapi_load(ledger, fastapi),
                    *flask_load(ledger, flask),
                    *grpc_load(ledger, channel),
                )
            pages = settled(ledger, lambda: [http_get(ports["agent"])])
            server.communicate("\n", timeout=240)
            assert server.returncode == 0
            yield finished(ledger, pages, metrics.requests(), traces)
        finally:
            server.kill()
            server.wait()


def agents(run_dir: Path) -> list[str]:
    """Return the pages of the agents in *run_dir*."""
    return [
        client.get(one, "/metrics", seconds=60, max_bytes=1 << 24).body.decode()
        for one in sorted(run_dir.glob("*.sock"))
    ]


def finished(
    ledger: Ledger, pages: list[str], requests: list[Any], traces: TraceReceiver
) -> Observed:
    """Return what was observed once all spans have arrived."""

    def arrived() -> bool:
        seen = {one["trace"] for one in traces.spans if one["kind"] == SERVER}
        return ledger.entries.keys() <= seen

    until(arrived, "all spans")
    numbers, found = pushed(requests), exemplars(requests)
    return Observed(ledger, pages, numbers, found, list(traces.spans))


@pytest.fixture
def four(run_dir: Path, tmp_path: Path, free_port: int) -> Iterator[Observed]:
    """Return what four workers of uvicorn made of their load, sent by gRPC."""
    ledger = Ledger()
    with TraceReceiver() as traces, receiver(tmp_path) as metrics:
        found = environ(
            f"http://127.0.0.1:{traces.grpc}", metrics.grpc, "grpc", run_dir
        )
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *WORKERS, "--port", str(free_port)],
            cwd=ROOT,
            env=found,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until(lambda: len([*run_dir.glob("*.sock")]) == 4, "workers", seconds=240)
            until(lambda: listens(free_port), "the server", seconds=240)
            for length in range(10, 18):
                path, route = f"/predict/{length}", "/predict/{length}"
                ledger.http(free_port, path, route, 200, start="cold")
            load(*fastapi_load(ledger, free_port))
            pages = settled(ledger, lambda: agents(run_dir))
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=240)
            total = len(ledger.entries)
            until(lambda: pushed(metrics.requests()).total() == total, "all metrics")
            yield finished(ledger, pages, metrics.requests(), traces)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def listens(port: int) -> bool:
    """Return whether something listens on *port*."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60):
        return True
    return False


@pytest.mark.parametrize(
    "servers", ["three", pytest.param("four", marks=pytest.mark.exhaustive)]
)
def test_all_agree_with_the_ledger(
    servers: str, request: pytest.FixtureRequest
) -> None:
    """Requests, spans and compiles are as the client counted."""
    seen: Observed = request.getfixturevalue(servers)
    entries = seen.ledger.entries
    expected = Counter(one.kind for one in entries.values())
    assert len(expected) >= 8
    assert sum((kinds(text) for text in seen.pages), Counter()) == expected
    assert sum((kinds(text, SECONDS) for text in seen.pages), Counter()) == expected
    assert seen.pushed == expected
    server_spans = [one for one in seen.spans if one["kind"] == SERVER]
    assert Counter(one["trace"] for one in server_spans) == Counter(entries.keys())
    by_parent: dict[str, list[Span]] = {}
    for span in seen.spans:
        by_parent.setdefault(span["parent"], []).append(span)
    for span in server_spans:
        entry = entries[span["trace"]]
        assert (span["name"], span["parent"]) == (entry.name, span["trace"][16:])
        attributes = {
            "jaxmon.route": entry.route,
            "jaxmon.outcome": entry.outcome,
            "jaxmon.start": entry.start,
            **entry.attributes,
        }
        extra = span["attributes"].keys() - attributes.keys()
        assert extra <= {"error.type"}
        assert attributes.items() <= span["attributes"].items()
        compiles = [
            one
            for one in by_parent.get(span["id"], [])
            if one["name"].startswith("jax.compile")
        ]
        assert len(compiles) == (entry.start == "cold")
        for compile_ in compiles:
            assert compile_["name"].endswith(".model")
            phases = sorted(by_parent[compile_["id"]], key=lambda one: one["began"])
            assert [one["name"] for one in phases] == PHASES
    exemplars_name_spans(seen)
    if servers == "four":
        assert sum(1 for text in seen.pages if kinds(text)) > 1


def exemplars_name_spans(seen: Observed) -> None:
    """Check that exemplars of requests and compiles are their spans."""
    spans = {(one["trace"], one["id"]): one for one in seen.spans}
    metrics = set()
    for one in seen.exemplars:
        span, labels = spans[one.trace, one.span], one.labels
        metrics.add((one.metric, labels.get("phase")))
        if one.metric == "jaxmon_request_seconds":
            kind = labels["route"], labels["outcome"], labels["start"]
            assert seen.ledger.entries[one.trace].kind == kind
            assert span["kind"] == SERVER
            assert abs((span["ended"] - span["began"]) / 1e9 - one.seconds) < 1e-6
        elif labels.get("phase") == "backend_compile":
            assert span["name"] == f"jax.compile {labels['function']}"
        else:
            assert seen.ledger.entries[one.trace].start == "cold"
            assert span["kind"] == SERVER
    compiles = {
        ("jaxmon_compile_seconds", phase)
        for phase in ("trace", "lower", "backend_compile")
    }
    assert metrics == {("jaxmon_request_seconds", None), *compiles}
