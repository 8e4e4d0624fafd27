"""Every client of ours ends, in time and in size, whatever its server does."""

import itertools
import os
import runpy
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from itertools import repeat
from pathlib import Path

import grpc
import pytest
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import TracerProvider

from jaxmon.cli.workers import running
from jaxmon.errors import CommandError
from jaxmon.host.http import client
from jaxmon.host.http.fetch import FetchError
from jaxmon.host.http.stream import Bounds, TooLargeError, connected
from jaxmon.otel.environment import GRPC, HTTP
from jaxmon.otel.exporters import exported, exporter
from jaxmon_alerts.gameday import stack
from jaxmon_dashboards.grafana.session import GrafanaError, GrafanaSession
from jaxmon_exporter.collectors.dcgm import fetch_page
from jaxmon_exporter.collectors.tpu.messages import (
    GrpcCall,
    GrpcFailure,
    call_all,
)
from tests.fakes.hostile import ENDLESS, Answer, Hostile, hostile
from tests.fakes.http2 import Http2Server, reply
from tests.helpers.processes import ROOT, some


SECONDS = 0.1
TOKEN = "glsa_thisIsTheTokenOfTheUnitTests"  # noqa: S105 - opens nothing
HEALTHCHECK = ROOT / "exporters/docker/healthcheck.py"

# What is under way between two sockets of this host, beyond what was taken.
UNDER_WAY = 4 << 20

endless = pytest.mark.parametrize("name", ENDLESS)


@contextmanager
def replaced(owner: object, name: str, value: object):
    """Set an attribute for the length of a block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def push(server: Hostile) -> None:
    GrafanaSession(server.url, TOKEN, timeout=SECONDS, sleep=lambda _: None).request(
        "GET", "/api/health"
    )


def page(server: Hostile) -> None:
    fetch_page(f"{server.url}/metrics", timeout=SECONDS, max_bytes=8 << 20)


def get(server: Hostile) -> None:
    place = ("127.0.0.1", server.listener.getsockname()[1])
    client.get(place, "/", seconds=SECONDS, max_bytes=8 << 20)


def prometheus(server: Hostile) -> None:
    with replaced(stack, "_SECONDS", SECONDS):
        stack.alerts_of(server.url)


OVER_TCP: dict[str, tuple[Callable[[Hostile], None], tuple[type[Exception], ...]]] = {
    "grafana": (push, (GrafanaError,)),
    "dcgm": (page, (FetchError,)),
    "one page": (get, (OSError, HTTPException)),
    "demo": (prometheus, (CommandError,)),
}


def export_metrics(url: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Export nothing to *url*; return whether it arrived."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    made = exporter("METRICS", os.environ, HTTP)
    try:
        return exported(made, MetricsData([]))
    finally:
        made.shutdown()


# All receive by `client.receive`: each part once, and each client by two of them.
_ONCE = "one page"
_EACH = ("silence", "a body")


@pytest.mark.parametrize(
    ("who", "name"),
    [
        pytest.param(
            who,
            name,
            marks=[] if who == _ONCE or name in _EACH else pytest.mark.exhaustive,
        )
        for who, name in itertools.product(OVER_TCP, ENDLESS)
    ],
)
def test_an_answer_that_never_ends(who, name):
    """The client gives up any endless part by its own error."""
    act, errors = OVER_TCP[who]
    with hostile(ENDLESS[name]) as server, pytest.raises(errors):
        act(server)


@endless
def test_an_unhealthy_sidecar(name, monkeypatch):
    """The health check of the image says so, and does not wait for ever."""
    main = runpy.run_path(str(HEALTHCHECK))["main"]
    main.__globals__["_SECONDS"] = SECONDS
    monkeypatch.delenv("JAXMON_EXPORTER_WEB_CONFIG", raising=False)
    monkeypatch.setenv("JAXMON_EXPORTER_HOST", "127.0.0.1")
    with hostile(ENDLESS[name]) as server:
        monkeypatch.setenv("JAXMON_EXPORTER_PORT", server.url.rpartition(":")[2])
        # A head with 200 is an answer, whatever follows it.
        assert main() == 1


@pytest.mark.parametrize("port", ["", "nan", "99999", "-1", "9" * 400, "9" * 5000])
def test_a_health_check_of_no_port(port, monkeypatch):
    """An invalid port is rejected; an empty one is the default, without a sidecar."""
    with socket.socket() as default:
        if not port and default.connect_ex(("127.0.0.1", 9467)) == 0:
            pytest.skip("something listens at the default port")
    monkeypatch.setenv("JAXMON_EXPORTER_HOST", "127.0.0.1")
    monkeypatch.setenv("JAXMON_EXPORTER_PORT", port)
    main = runpy.run_path(str(HEALTHCHECK))["main"]
    for config in ("", "web.yaml"):
        monkeypatch.setenv("JAXMON_EXPORTER_WEB_CONFIG", config)
        assert main() == 1


@endless
def test_an_endless_answer_by_tls(name, monkeypatch, tmp_path):
    """Bounds hold for what is encrypted as well."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with hostile(ENDLESS[name], tls=context) as server:
        session = GrafanaSession(
            server.url,
            TOKEN,
            trusted,
            timeout=SECONDS,
            max_bytes=4 << 20,
            sleep=lambda _: None,
        )
        with pytest.raises(GrafanaError):
            session.request("GET", "/")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(trusted))
        sent = server.sent
        export_metrics(server.url, monkeypatch)
        assert server.sent - sent < UNDER_WAY


def test_a_server_that_never_agrees_on_tls():
    """The deadline holds for the handshake, too."""
    with hostile(ENDLESS["silence"]) as server:
        url = server.url.replace("http:", "https:")
        session = GrafanaSession(url, TOKEN, timeout=SECONDS, sleep=lambda _: None)
        with pytest.raises(GrafanaError, match="timed out"):
            session.request("GET", "/")
        with pytest.raises(FetchError) as raised:
            fetch_page(url, timeout=SECONDS, max_bytes=1 << 20)
    assert raised.value.reason == "timeout"


@endless
def test_a_proxy_whose_answer_never_ends(name, monkeypatch):
    """What a proxy says before the server may speak is bounded like all else."""
    monkeypatch.setenv("no_proxy", "")
    with hostile(ENDLESS[name]) as server:
        monkeypatch.setenv("https_proxy", server.url)
        session = GrafanaSession(
            "https://grafana.test", TOKEN, timeout=SECONDS, sleep=lambda _: None
        )
        with pytest.raises(GrafanaError, match="no response from"):
            session.request("GET", "/")
        sent = server.sent
        assert not export_metrics("https://collector.test", monkeypatch)
        assert server.sent - sent < UNDER_WAY


@pytest.mark.parametrize(
    "name", some(["continue", "early hints", "a body", "chunks", "trailers"], 2)
)
def test_the_size_ends_what_the_time_does_not(name, tmp_path):
    """A flood is left after as many bytes as are allowed, with minutes to go."""
    path, most = tmp_path / "a.sock", 2 << 20
    with hostile(ENDLESS[name], path=path) as server:
        with pytest.raises(TooLargeError, match="larger than 2 MiB"):
            client.get(path, "/", seconds=600, max_bytes=most)
        assert server.sent < most + UNDER_WAY


def test_a_server_that_takes_no_request():
    """Sending ends in time as well."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        bounds = Bounds(SECONDS, 1 << 20)
        with (
            connected(("127.0.0.1", port), bounds) as stream,
            pytest.raises(TimeoutError, match="timed out"),
        ):
            stream.sendall(b"x" * (64 << 20))


def test_a_name_that_is_not_found_in_time(monkeypatch):
    """The deadline holds where the resolver has none."""
    over = threading.Event()
    real = socket.getaddrinfo

    def slow(host, *args, **options):
        if not options.get("flags"):
            over.wait(60)
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        with pytest.raises(TimeoutError, match="timed out resolving localhost"):
            client.get(("localhost", 1), "/", seconds=SECONDS, max_bytes=1)
    finally:
        over.set()


@pytest.mark.parametrize("host", ["a..b", "x" * 80, "."])
def test_a_name_that_is_none(host):
    """It is an error of the connection like any other, not one of its encoding."""
    with pytest.raises(OSError, match="is not a valid host name"):
        client.get((host, 443), "/", seconds=30, max_bytes=1 << 20)


def test_interim_responses_are_left_out(tmp_path):
    """A server may send some before the one that counts."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    path = tmp_path / "a.sock"
    with hostile(Answer(interim + final, b""), path=path):
        answer = client.get(path, "/", seconds=30, max_bytes=1 << 20)
    assert (answer.status, answer.body) == (200, b"ok")


def test_an_agent_that_never_ends_is_listed(tmp_path, monkeypatch):
    """`explain` names the program whose agent floods it, and why it has no report."""
    monkeypatch.setattr("jaxmon.cli.workers._MAX_BYTES", 2 << 20)
    with hostile(ENDLESS["a body"], path=tmp_path / "agent-0.sock"):
        (worker,) = running(tmp_path, timeout=60)
    assert "larger than" in worker.trouble


def test_a_grpc_server_that_never_ends():
    """A reply has a largest size."""
    pytest.importorskip("grpc")
    length = (1 << 30).to_bytes(4, "big")
    with Http2Server(lambda stream: reply(stream, b"\0" + length + b"x")) as server:
        replies = call_all([GrpcCall(server.target, "/x", b"")], 600)
    assert replies == [GrpcFailure("RESOURCE_EXHAUSTED")]


SIGNALS = {
    "METRICS": MetricsData([]),
    "TRACES": [TracerProvider().get_tracer("t").start_span("s")],
    "LOGS": [],
}
REDIRECT = Answer(b"HTTP/1.1 307 Go on\r\nLocation: /on\r\n\r\n", b"x" * (1 << 16))
ERROR = Answer(b"HTTP/1.1 400 Bad\r\n\r\n", b"x" * (1 << 16))
# Whose status says that the export arrived, whatever follows.
ARRIVED = ("a body", "a chunk of any", "chunks", "trailers")


@pytest.mark.parametrize("name", [*ENDLESS, "a redirect", "an error"])
def test_a_receiver_of_otlp_that_never_ends(name, monkeypatch):
    """Exporters end in time, and go nowhere else."""
    answer = {**ENDLESS, "a redirect": REDIRECT, "an error": ERROR}[name]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")

    def export(signal: str) -> bool:
        made = exporter(signal, os.environ, HTTP)
        try:
            return exported(made, SIGNALS[signal])
        finally:
            made.shutdown()

    with hostile(answer) as server, ThreadPoolExecutor(3) as pool:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        arrived = list(pool.map(export, SIGNALS))
        # At most six attempts each, and what is under way then.
        assert server.sent < UNDER_WAY
    assert arrived == [name.startswith(ARRIVED)] * 3


def test_a_session_with_credentials_is_the_providers(monkeypatch):
    """The SDK loads it, and says which one it does not find."""
    name = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER"
    monkeypatch.setenv(name, "of_nobody")
    with pytest.raises(RuntimeError, match="of_nobody"):
        exporter("METRICS", os.environ, HTTP)


@pytest.mark.parametrize("size", [1 << 12, 1 << 20])
def test_a_receiver_of_otlp_by_grpc_that_never_ends(size, monkeypatch):
    """Of one that responds to each call without end, little is taken."""
    sent = []

    class Endless(grpc.GenericRpcHandler):  # type: ignore[misc] # no types
        def service(self, _):
            return grpc.stream_stream_rpc_method_handler(self.respond)

        def respond(self, *_):
            for body in repeat(bytes(size)):
                sent.append(size)
                yield body

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with ThreadPoolExecutor(3) as pool:
        server = grpc.server(pool, handlers=[Endless()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        try:
            for signal, data in SIGNALS.items():
                made = exporter(signal, os.environ, GRPC)
                assert not exported(made, data)
                made.shutdown()
        finally:
            server.stop(None).wait()
    # For each attempt, of two at most: a message, or the window, and the next one.
    assert sum(sent) <= 3 * 2 * (max(size, 1 << 19) + size)


def test_a_path_that_is_a_socket_of_nobody(tmp_path: Path):
    """Nothing is listening: that is reported immediately."""
    with pytest.raises(FileNotFoundError):
        client.get(tmp_path / "none.sock", "/", seconds=60, max_bytes=1)
