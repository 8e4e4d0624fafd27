"""`jaxmon profile --for-requests`: profiles of the next slow requests."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from subprocess import PIPE
from threading import Event
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.host.http import client
from tests.helpers import inside
from tests.helpers.agents import instrumented, value
from tests.helpers.otlp import TraceReceiver
from tests.helpers.preloaded import start_preloaded
from tests.helpers.processes import ROOT, clean_environ, run_python, until


class Served(NamedTuple):
    """What the command found, what the server said, and its spans."""

    found: list[dict[str, Any]]
    seconds: list[float]
    receiver: TraceReceiver


def ask(port: int, path: str) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    assert connection.getresponse().read() is not None
    connection.close()


@pytest.fixture
def served(run_dir: Path, tmp_path: Path) -> Iterator[Served]:
    """Run the command while a client makes fast requests, and slow ones in turns."""
    with TraceReceiver() as receiver, ThreadPoolExecutor(2) as pool:
        environ = {**receiver.environ, "OTEL_TRACES_SAMPLER": "always_off"}
        server = start_preloaded(
            "tests/programs/slow_requests.py",
            cwd=ROOT,
            environ=clean_environ(run_dir, JAXMON_OTLP="0", **environ),
            stdin=PIPE,
            stdout=PIPE,
        )
        assert server.stdout is not None
        over = Event()
        try:
            port = int(server.stdout.readline())

            def load(*paths: str) -> None:
                while not over.wait(0.01):
                    for path in paths:
                        ask(port, path)

            pool.submit(load, "/fast")
            slow = pool.submit(load, "/fast", "/slow")
            options = ("--for-requests", "2", "--slower-than", "300ms", "--json")
            command = ("-m", "jaxmon", "profile", *options)
            done = run_python(*command, run_dir=run_dir, cwd=tmp_path).ok()
            over.set()
            slow.result()
            out, _ = server.communicate("\n", timeout=120)
            yield Served(documents(done.out), [*map(float, out.split())], receiver)
        finally:
            over.set()
            server.kill()
            server.wait()


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents in *text*."""
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def test_the_profile_of_a_slow_request_has_its_function(served: Served) -> None:
    """Only slow requests have profiles and names on spans."""
    assert len(served.found) == 2
    # On a busy machine a fast request may be slow.
    assert "/slow" in [one["request"]["route"] for one in served.found]
    for document in served.found:
        request = document["request"]
        took, recorded = float(request["took"]), float(request["recorded"])
        assert took >= 0.3
        assert took / 2 <= recorded <= took
        if request["route"] != "/slow":
            continue
        assert took >= min(served.seconds)
        heaviest = document["operations"][0]
        assert heaviest["program"] == "jit_heavy"
        assert document["without_programs"] is None
        assert heaviest["own"]
        busy = sum(
            one["seconds"]
            for one in document["operations"]
            if one["program"] == "jit_heavy"
        )
        assert 0 < busy <= recorded * (os.cpu_count() or 1)
        name = Path(document["files"]["xprof"]).parent.name.removesuffix("_worker_0")
        spans = served.receiver.of(request["trace"])
        (span,) = [one for one in spans if one["name"] == "GET /slow"]
        (profile,) = [one for one in spans if one["name"] == "profile"]
        assert span["attributes"]["jaxmon.profile"] == name
        assert profile["parent"] == span["id"]
        assert profile["attributes"] == {"jaxmon.profile": name}
    assert len({one["request"]["trace"] for one in served.found}) == 2


@pytest.fixture
def agent(run_dir: Path) -> Iterator[Agent]:
    jnp.ones(3).block_until_ready()
    with instrumented(socket=True) as running:
        yield running


def get(agent: Agent, query: str) -> tuple[int, bytes]:
    assert agent.socket is not None
    path = f"/debug/profile?{query}"
    answer = client.get(Path(agent.socket), path, seconds=60, max_bytes=1 << 30)
    return answer.status, answer.body


def test_nothing_is_recorded_without_a_request(agent: Agent) -> None:
    """Armed, the profiler does not run; the response says that there was none."""
    assert get(agent, "slower_than=1&seconds=0.1") == (204, b"")
    with jaxmon.request("predict"):
        assert get(agent, "slower_than=30&seconds=0.1") == (204, b"")
    assert inside.profiler(agent)._running is None
    assert value(agent, "jaxmon_internal_errors_total") == 0


@pytest.mark.parametrize("threshold", ["0", "x", "31", "nan"])
def test_thresholds_out_of_range(agent: Agent, threshold: str) -> None:
    """They are rejected."""
    status, body = get(agent, f"slower_than={threshold}&seconds=1")
    assert status == 400
    assert b"slower_than" in body


def test_the_programs_own_profile_has_precedence(agent: Agent, tmp_path: Path) -> None:
    """Ours ends, and says why; the program's is complete."""
    profiler = inside.profiler(agent)
    with ThreadPoolExecutor(1) as pool, jaxmon.request("predict"):
        answer = pool.submit(get, agent, "slower_than=30&seconds=60")
        until(lambda: getattr(profiler._running, "_recording", None), "a session")
        with jax.profiler.trace(str(tmp_path)):
            jnp.ones(3).block_until_ready()
        status, body = answer.result(timeout=90)
    assert status == 409
    assert b"the program started its own profile" in body
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_one_at_a_time(agent: Agent) -> None:
    """A second command is refused, and an agent that stops ends the first."""
    profiler = inside.profiler(agent)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, agent, "slower_than=30&seconds=60")
        until(lambda: profiler._running is not None, "an armed profiler")
        status, body = get(agent, "seconds=1")
        assert (status, b"in progress" in body) == (409, True)
        profiler.stop()
        assert answer.result(timeout=90)[0] == 409


@pytest.mark.parametrize(
    "options",
    [
        ("--for-requests", "2"),
        ("--slower-than", "1s"),
        ("--for-requests", "2", "--slower-than", "1ms"),
        ("--for-requests", "2", "--slower-than", "fast"),
        ("--for-requests", "0", "--slower-than", "1s"),
    ],
)
def test_options_that_make_no_sense(options: tuple[str, ...], run_dir: Path) -> None:
    """They are rejected before anything is looked for."""
    result = run_python("-m", "jaxmon", "profile", *options, run_dir=run_dir)
    assert result.code == 2
    assert "--" in result.err
