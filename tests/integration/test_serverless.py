"""Serverless functions: frozen between invocations, and counted at a real receiver."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

import jaxmon
from jaxmon import catalog
from jaxmon.indicators import recorder
from tests.helpers.agents import instrumented
from tests.helpers.otlp import Receiver, Series, TraceReceiver, receiver
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import ROOT, clean_environ, freeze, until


# They wait for something to do; the scheduler also for what a compile has left to do.
WAITING = {f"jaxmon-{name}" for name in ("otlp", "scheduler", "traces", "worker")}
TRACE = "0af7651916cd43dd8448eb211c80319c"
SERVER = 2


class Platform:
    """Runs a function, and freezes it whenever it has responded."""

    def __init__(self, process: Program) -> None:
        self.process = process
        self.freeze()

    def freeze(self) -> None:
        freeze(self.process.pid)

    def invoke(self, **event: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(event) + "\n")
        self.process.stdin.flush()
        self.process.send_signal(signal.SIGCONT)
        line = self.process.stdout.readline()
        self.freeze()
        return json.loads(line)


@contextmanager
def platform(kind: str, run_dir: Path, **environ: str) -> Iterator[Platform]:
    """Run the function; it is killed in the end, as platforms do."""
    environ["JAXMON_SERVERLESS"] = "true"
    with start_preloaded(
        *("-m", "tests.programs.serverless", kind),
        environ=clean_environ(run_dir, **environ),
        cwd=ROOT,
        stdin=PIPE,
        stdout=PIPE,
    ) as process:
        try:
            yield Platform(process)
        finally:
            process.kill()


def of(samples: dict[Series, float], name: str, **labels: str) -> float:
    """Return the sum of the series *name* with these labels."""
    return sum(
        value
        for (series, found), value in samples.items()
        if series == name and labels.items() <= dict(found).items()
    )


def total(running: Receiver, temporality: str) -> dict[Series, float]:
    """Return what arrived in all: the last of each process, or the sum of deltas."""
    found: dict[Series, float] = {}
    for request in running.requests():
        for series, value in request.samples().items():
            before = found.get(series, 0) if temporality == "delta" else 0
            found[series] = before + value
    return found


def served(spans: TraceReceiver) -> list[str]:
    """Return the parents of the invocations' spans, in order of arrival."""
    return [one["parent"] for one in spans.of(TRACE) if one["kind"] == SERVER]


@pytest.mark.parametrize(("kind", "temporality"), [("sync", "delta"), ("async", "")])
def test_each_invocation_is_counted_once(run_dir, tmp_path, kind, temporality):
    """
    What the receiver has after each response is what the platform invoked, by outcome,
    cold compile and cold start of the instance, and so are the spans, below those of
    the clients; though the process is frozen at once and killed in the end.
    """
    book = tmp_path / "otlp"
    book.mkdir()
    events: list[dict[str, Any]] = [
        {"size": 3},
        {"size": 3},
        {"size": 5},
        {"fail": True},
        {"size": 3, "response": {"statusCode": 503}},
    ]
    parents = [f"{number:016x}" for number in range(1, len(events) + 1)]
    for event, parent in zip(events, parents, strict=True):
        event["headers"] = {"Traceparent": f"00-{TRACE}-{parent}-01"}
    with receiver(book) as running, TraceReceiver() as spans:
        environ = running.environ(
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"http://127.0.0.1:{spans.http}/v1/traces",
            OTEL_TRACES_SAMPLER="always_on",
        )
        if temporality:
            name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
            environ[name] = temporality
        started = time.monotonic()
        with platform(kind, run_dir, **environ) as function:
            for number, event in enumerate(events, start=1):
                response = function.invoke(**event)
                entered = time.monotonic() - started
                # None of ours runs by itself: one waits until it is asked.
                ours = [one for one in response.get("threads", ()) if "jaxmon" in one]
                assert set(ours) <= WAITING, ours
                found = total(running, temporality)
                assert len(running.requests()) == number
                assert of(found, "jaxmon_requests_total") == number
                # A frozen process sends no more: this waits for our own reader.
                until(lambda: parents[:number] == served(spans), "the span")  # noqa: B023 - called here
                if number == 1:
                    seconds = of(found, "jaxmon_instance_start_seconds_sum")
                    assert 0 < seconds <= entered
        found = total(running, temporality)
        assert len(running.requests()) == len(events)
    requests, outcome = catalog.REQUESTS.name, "success"
    assert of(found, requests, outcome=outcome, start="cold") == 2
    assert of(found, requests, outcome=outcome, start="warm") == 1
    assert of(found, requests, outcome="error") == 2
    compiles = [
        one for one in spans.spans if one["name"] == "jax.compile __main__.double"
    ]
    below = {one["id"]: one["parent"] for one in spans.spans if one["kind"] == SERVER}
    assert [below[one["parent"]] for one in compiles] == [parents[0], parents[2]]
    invocations = catalog.INVOCATIONS.name
    assert of(found, invocations, route="predict", instance_start="cold") == 1
    assert of(found, invocations, route="predict", instance_start="warm") == 4
    assert of(found, f"{catalog.INSTANCE_START_SECONDS.name}_count") == 1
    assert of(found, catalog.COMPILES.name, function="__main__.double") == 2
    assert list(run_dir.iterdir()) == []


def test_a_receiver_in_trouble_costs_what_is_left(
    run_dir: Path, tmp_path: Path
) -> None:
    """Result and exception stay the handler's; what was counted arrives later."""
    book = tmp_path / "otlp"
    book.mkdir()
    with receiver(book) as running:
        environ = running.environ(
            JAXMON_TRACES="false", OTEL_EXPORTER_OTLP_TIMEOUT="0.2"
        )
        with platform("sync", run_dir, **environ) as function:
            running.trouble("hang")
            assert function.invoke(size=3, left=300)["sum"] == 6
            assert "error" in function.invoke(fail=True, left=50)
            assert function.invoke(size=3, left=-7)["sum"] == 6
            running.trouble("")

            def arrived() -> bool:
                assert function.invoke(size=3)["sum"] == 6
                return bool(running.requests())

            until(arrived, "a push that arrives")
        found = running.requests()[-1].samples()
    assert of(found, catalog.REQUESTS.name, outcome="error") == 1
    assert of(found, catalog.REQUESTS.name, outcome="success") >= 3


def test_without_an_agent_only_the_handler_is_called() -> None:
    """It is called with what it was called with, and flushing does nothing."""

    @jaxmon.serverless
    def handler(event: object, context: object, *, more: int = 0) -> object:
        """Return all."""
        return event, context, more

    assert handler(1, 2, more=3) == (1, 2, 3)
    assert handler.__name__ == "handler"
    assert handler.__doc__ == "Return all."
    assert jaxmon.flush() is True


@pytest.mark.contained
def test_failures_of_ours_are_not_the_handlers() -> None:
    """Whatever goes wrong in counting or pushing, the handler's result is returned."""
    with instrumented() as agent:
        indicators: Any = recorder.recorder()

        def fail(*_: object) -> bool:
            raise RuntimeError

        indicators.flush = fail
        indicators.invocations.begin = fail
        wrapped = jaxmon.serverless(lambda event, _: event + 1)
        assert wrapped(1, object()) == 2
        failures = [
            value
            for one in agent.collect()
            if one.metric is catalog.INTERNAL_ERRORS
            for _, value in one.samples
        ]
    assert sum(failures) >= 1


def test_settings_of_frozen_processes() -> None:
    """Nothing listens and nothing is periodic, unless it is asked for by name."""
    from jaxmon.settings import load

    found = load({"serverless": True}, {})
    assert (found.port, found.socket, found.time_interval) == (None, False, 0)
    asked = load({"serverless": True}, {"JAXMON_PORT": "9466", "JAXMON_SOCKET": "1"})
    assert (asked.port, asked.socket, asked.memory_interval) == (9466, True, 0)
    assert load({}, {"JAXMON_SERVERLESS": "1"}).socket is False


def test_middlewares_push_before_the_last_byte(run_dir: Path, tmp_path: Path) -> None:
    """When a client has its response, the receiver has the request, exactly once."""
    book = tmp_path / "otlp"
    book.mkdir()
    program = """
import asyncio, json, sys, threading
import jaxmon, jaxmon.asgi, jaxmon.wsgi
from tests.helpers.otlp import Receiver
jaxmon.instrument()

def pushed():
    return len(list(__import__("pathlib").Path(sys.argv[1]).glob("got-*")))

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    await send({"type": "http.response.body", "body": b"b"})

seen, listed = [], set()
async def send(message):
    seen.append((message.get("body", b"").decode(), pushed()))
    listed.update(one.name for one in threading.enumerate())

async def receive():
    return {"type": "http.request"}

scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
asyncio.run(jaxmon.asgi.Middleware(app)(scope, receive, send))

def plain(environ, start_response):
    start_response("200 OK", [])
    return iter([b"c", b"d"])

body = jaxmon.wsgi.WsgiMiddleware(plain)({"REQUEST_METHOD": "GET"}, lambda *_: None)
for one in body:
    seen.append((one.decode(), pushed()))
body.close()
seen.append(("", pushed()))
print(json.dumps([seen, sorted(listed)]))
"""
    with receiver(book) as running:
        environ = running.environ(
            JAXMON_SERVERLESS="1", JAXMON_TRACES="false", PYTHONPATH=str(ROOT)
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(book)],
            env=clean_environ(run_dir, **environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seen, listed = json.loads(done.stdout)
        found = running.requests()[-1].samples()
    assert [name for name in listed if name.startswith(("asyncio", "jaxmon"))] == []
    assert seen == [["", 0], ["a", 0], ["b", 1], ["c", 1], ["d", 1], ["", 2]]
    assert of(found, catalog.REQUESTS.name, outcome="success") == 2
    assert of(found, catalog.INVOCATIONS.name) == 2
