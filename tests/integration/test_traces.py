"""Spans of requests and compiles, against what clients and programs noted."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from subprocess import PIPE
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.helpers.otlp import Span, TraceReceiver
from tests.helpers.preloaded import start_preloaded
from tests.helpers.processes import ROOT, clean_environ, http_get, until
from tests.helpers.prometheus import Prometheus


SERVER, INTERNAL = 2, 1
PHASES = {"jax.trace", "jax.lower", "jax.backend_compile"}
ROUTE = "/predict/{length}"


class Run:
    """
    A run of the model server.

    Attributes:
        traces: the id of the trace and of the span of each request of the client.
        answers: status and body, by trace.
        said: what the program printed at its end.
    """

    def __init__(self) -> None:
        self.traces: list[tuple[str, str]] = []
        self.answers: list[tuple[int, Any]] = []
        self.said: dict[str, Any] = {}
        self.metrics = ""

    def ask(self, port: int, path: str) -> None:
        """Make a request that carries a trace."""
        number = len(self.traces) + 1
        trace, span = f"{number:032x}", f"{number:016x}"
        client = HTTPConnection("127.0.0.1", port, timeout=120)
        headers = {"traceparent": f"00-{trace}-{span}-01", "baggage": "a=b"}
        client.request("GET", path, headers=headers)
        response = client.getresponse()
        body = response.read()
        client.close()
        self.traces.append((trace, span))
        good = response.status == 200
        self.answers.append((response.status, json.loads(body) if good else None))


@contextmanager
def running(
    mode: str, environ: dict[str, str], during: Callable[[str], object] = str
) -> Iterator[Run]:
    """Run the model server for five requests, then call *during* with its address."""
    # Its receiver takes traces only.
    settings = {"OTEL_SERVICE_NAME": "models", "JAXMON_OTLP": "0", **environ}
    process = start_preloaded(
        *(str(ROOT / "tests" / "programs" / "traced.py"), mode),
        environ=clean_environ(None, **settings),
        stdin=PIPE,
        stdout=PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    run = Run()
    try:
        port, url = process.stdout.readline().split()
        for path in ("/predict/3", "/predict/3", "/predict/4", "/fail", "/nothing"):
            run.ask(int(port), path)
        client = HTTPConnection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        client.request("GET", "/metrics", headers=accept)
        run.metrics = client.getresponse().read().decode()
        client.close()
        during(url.split("/")[2])
        out, _ = process.communicate("\n", timeout=120)
        run.said = json.loads(out)
        assert process.returncode == 0
        yield run
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def stored() -> list[dict[str, Any]]:
    """Return the exemplars that a real Prometheus has stored of `own`."""
    return []


@pytest.fixture(scope="module")
def own(
    stored: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TraceReceiver, Run]]:
    """Return what a program without a provider sent over HTTP, keeping everything."""

    def scrape(address: str) -> None:
        directory = tmp_path_factory.mktemp("prometheus")
        options = ("--enable-feature=exemplar-storage",)
        with Prometheus(directory, {"models": [address]}, options=options) as server:
            server.until_query("jaxmon_requests_total")
            for name in ("request", "compile"):
                query = f"jaxmon_{name}_seconds_bucket"
                stored.extend(until(partial(exemplars, server, query), query))

    with TraceReceiver() as receiver:
        sampler = {"OTEL_TRACES_SAMPLER": "always_on"}
        environ = {**receiver.environ, **sampler}
        with running("own", environ, scrape) as run:
            receiver.wait_for(13)
            yield receiver, run


@pytest.fixture(scope="module")
def theirs() -> Iterator[tuple[TraceReceiver, Run]]:
    """Return what a program with OpenTelemetry's own instrumentation sent by gRPC."""
    with TraceReceiver() as receiver:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.grpc}"}
        with running("application", endpoint) as run:
            yield receiver, run


def exemplars(server: Prometheus, query: str) -> list[dict[str, Any]]:
    """Return the exemplars that *server* has of the series that *query* selects."""
    now = time.time()
    between = urlencode({"query": query, "start": now - 600, "end": now + 600})
    answer = http_get(f"{server.url}/api/v1/query_exemplars?{between}")
    found: list[dict[str, Any]] = json.loads(answer)["data"]
    return found


def server_span(receiver: TraceReceiver, trace: str) -> Span:
    """Return the server span of *trace*, of which there is one."""
    (found,) = [one for one in receiver.of(trace) if one["kind"] == SERVER]
    return found


def compiles(spans: list[Span]) -> list[Span]:
    """Return the spans of the model's compiles."""
    return [one for one in spans if one["name"].startswith("jax.compile")]


def test_a_request_has_one_span_below_the_clients(own):
    """Name, parent, status and attributes are those of the request."""
    receiver, run = own
    expected = [
        (f"GET {ROUTE}", ROUTE, 200, "success", "cold"),
        (f"GET {ROUTE}", ROUTE, 200, "success", "warm"),
        (f"GET {ROUTE}", ROUTE, 200, "success", "cold"),
        ("GET /fail", "/fail", 500, "error", "warm"),
        ("GET", "unmatched", 404, "client_error", "warm"),
    ]
    for (trace, parent), (name, route, status, outcome, start) in zip(
        run.traces, expected, strict=True
    ):
        span = server_span(receiver, trace)
        assert (span["name"], span["parent"]) == (name, parent)
        assert span["attributes"] == {
            "jaxmon.route": route,
            "jaxmon.outcome": outcome,
            "jaxmon.start": start,
            "http.request.method": "GET",
            "http.response.status_code": status,
            **({} if route == "unmatched" else {"http.route": route}),
            **({"error.type": "LookupError"} if status == 500 else {}),
        }
        assert span["failed"] == (outcome == "error")
        assert (span["scope"], span["service"]) == ("jaxmon", "models")


def test_the_context_reaches_outgoing_requests(own: tuple[TraceReceiver, Run]) -> None:
    """What the handler sees as the current span is the request's."""
    receiver, run = own
    for (trace, _), (status, body) in zip(run.traces, run.answers, strict=True):
        if status == 200:
            assert body["span"] == server_span(receiver, trace)["id"]


@pytest.mark.parametrize("provider", ["own", "theirs"])
def test_compiles_are_below_the_request_that_paid(provider, own, theirs):
    """Cold requests have the compile, warm ones none."""
    receiver, run = own if provider == "own" else theirs
    facts = [("compiled", True, None), None, ("compiled", False, "shape"), None, None]
    for (trace, _), fact in zip(run.traces, facts, strict=True):
        spans = receiver.of(trace)
        if fact is None:
            assert compiles(spans) == []
            continue
        (compile_,) = compiles(spans)
        outcome, first, cause = fact
        assert compile_["name"] == "jax.compile __main__.model"
        assert compile_["parent"] == server_span(receiver, trace)["id"]
        assert compile_["attributes"] == {
            "jaxmon.function": "__main__.model",
            "jaxmon.outcome": outcome,
            "jaxmon.first_call": first,
            "jaxmon.cache": "off",
            **({} if cause is None else {"jaxmon.cause": cause}),
        }
        phases = [one for one in spans if one["parent"] == compile_["id"]]
        assert {one["name"] for one in phases} == PHASES
        began, ended = run.said["called"][trace]
        around = [(began, ended), (compile_["began"], compile_["ended"])]
        for low, high in around:
            assert all(low <= one["began"] <= one["ended"] <= high for one in phases)
        assert began <= compile_["began"] <= compile_["ended"] <= ended
        in_order = [one["name"] for one in sorted(phases, key=lambda x: x["began"])]
        assert in_order == ["jax.trace", "jax.lower", "jax.backend_compile"]


def test_no_request_has_two_spans(theirs: tuple[TraceReceiver, Run]) -> None:
    """Beside FastAPI's instrumentation we make none."""
    receiver, run = theirs
    starts = ["cold", "warm", "cold", "warm", "warm"]
    for (trace, parent), start in zip(run.traces, starts, strict=True):
        span = server_span(receiver, trace)
        assert span["parent"] == parent
        assert span["scope"] != "jaxmon"
        assert span["attributes"]["jaxmon.start"] == start
        ours = {one["name"] for one in receiver.of(trace) if one["scope"] == "jaxmon"}
        # On a busy machine, transfers and syncs may be long enough to have spans.
        ours = {name for name in ours if not name.startswith(("transfer", "sync"))}
        compile_ = {"jax.compile __main__.model", *PHASES}
        assert ours == (compile_ if start == "cold" else set())
    assert run.said["provider"] == "TracerProvider"


def test_nothing_is_left(own: tuple[TraceReceiver, Run]) -> None:
    """No thread survives `uninstrument`, and no provider was set."""
    _, run = own
    assert run.said["threads"] == []
    assert run.said["provider"] == "ProxyTracerProvider"
    assert len(run.traces) == len({t for t, _ in run.traces})


SOURCE = """
import sys
import jaxmon
from jaxmon import threads
jaxmon.instrument(port=None, socket=False)
import jax
with jaxmon.request("predict"):
    jax.jit(lambda x: x + 1)(1.0)
jaxmon.uninstrument()
names = [one.name for one in threads.running()]
print(names, any(name.startswith("opentelemetry") for name in sys.modules))
"""


@pytest.mark.parametrize(
    ("environ", "loaded"),
    [
        ({}, False),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "JAXMON_TRACES": "0"},
            False,
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"},
            False,
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"},
            False,
            marks=pytest.mark.exhaustive,
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/x"}, True),
    ],
    ids=["no variable", "setting", "disabled", "no exporter", "receiver is down"],
)
def test_what_turns_traces_on(preloaded_script, environ, loaded):
    """Only then is OpenTelemetry loaded."""
    without_metrics = {**environ, "JAXMON_OTLP": "false"}
    assert preloaded_script(SOURCE, env=without_metrics).ok().out == f"[] {loaded}\n"


def test_prometheus_stores_exemplars(own, stored):
    """They are traces of requests that the series counts."""
    _, run = own
    cold = {run.traces[0][0], run.traces[2][0]}
    healthy = {run.traces[1][0]}
    of = {("success", "cold"): cold, ("success", "warm"): healthy}
    seen = set()
    for one in stored:
        labels = one["seriesLabels"]
        for exemplar in one["exemplars"]:
            trace = exemplar["labels"]["trace_id"]
            assert float(exemplar["value"]) <= float(labels["le"])
            if labels["__name__"].startswith("jaxmon_compile"):
                assert trace in cold
                seen.add(labels["phase"])
            elif labels["route"] == ROUTE:
                assert trace in of[labels["outcome"], labels["start"]]
                seen.add(labels["start"])
    assert seen == {"cold", "warm", "trace", "lower", "backend_compile"}


def test_exemplars_name_the_traces(own: tuple[TraceReceiver, Run]) -> None:
    """The OpenMetrics page names the cold and the failed request's traces."""
    _, run = own
    lines = [line for line in run.metrics.splitlines() if " # {" in line]
    named = {line.split('trace_id="')[1].split('"')[0] for line in lines}
    assert named <= {trace for trace, _ in run.traces}
    compiled = [one for one in lines if one.startswith("jaxmon_compile_seconds_bucket")]
    cold = {run.traces[0][0], run.traces[2][0]}
    assert {line.split('trace_id="')[1].split('"')[0] for line in compiled} <= cold
    assert compiled
