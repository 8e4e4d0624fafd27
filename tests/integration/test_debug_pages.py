"""Pages for people: on the Unix socket only, and whole even when a part fails."""

from __future__ import annotations

import http.client
import importlib.metadata
import json
import math
import os
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

from jaxmon.agent.events import KINDS, LIMIT
from jaxmon.agent.reports.setup import Setup
from jaxmon.facts.process import read
from jaxmon.facts.record import dumps, encoded
from tests.helpers import inside
from tests.helpers.agents import instrumented
from tests.helpers.processes import ROOT, http_get


if TYPE_CHECKING:
    from jaxmon.agent import Agent

PAGES = (
    "/debug/overview",
    "/debug/functions",
    "/debug/memory",
    "/debug/environment",
    "/debug/events",
    "/debug/rank",
)


class Local(http.client.HTTPConnection):
    """HTTP over a Unix socket, as curl speaks it."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def ask(agent: Agent, target: str, method: str = "GET") -> tuple[int, bytes]:
    """Return status and body of a page."""
    assert agent.socket is not None
    connection = Local(agent.socket)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def page(agent: Agent, target: str) -> Any:
    """Return a page, which must be strict JSON."""
    status, body = ask(agent, target)
    assert status == 200, body

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(body, parse_constant=refuse)


@pytest.fixture
def agent(run_dir: Path) -> Any:
    """Return an agent that serves both ways, of a program that did a little."""
    with instrumented(port=0, socket=True, memory_lines_interval=0) as agent:
        import jax
        import numpy as np

        @jax.jit  # type: ignore[untyped-decorator]
        def double(x: Any) -> Any:
            return x * 2

        for size in (1, 2, 2, 2, 3):
            double(np.ones(size, np.float32))
        with pytest.raises(TypeError):
            double("no")
        yield agent


@pytest.mark.parametrize("target", PAGES)
def test_no_page_is_served_over_tcp(agent, target):
    """What names source lines and arguments does not leave the machine."""
    address = agent.url.removesuffix("/metrics")
    with pytest.raises(HTTPError) as refused:
        http_get(address + target)

    assert refused.value.code == 404
    assert b"/debug" not in refused.value.read()
    assert http_get(agent.url)


@pytest.mark.parametrize("target", PAGES)
def test_only_reading_is_possible(agent, target):
    """GET and HEAD answer; nothing can be changed."""
    assert ask(agent, target, "HEAD") == (200, b"")
    for method in ("POST", "PUT", "DELETE"):
        assert ask(agent, target, method)[0] == 405


def test_the_environment_has_the_installed_packages(agent):
    """Names and versions are those that importlib knows, the imported ones."""
    found = page(agent, "/debug/environment")
    installed = {
        re.sub(r"[-_]+", "-", one.name).lower(): one.version
        for one in reversed(list(importlib.metadata.distributions()))
    }

    assert found["executable"] == sys.executable
    assert found["versions"]["jax"] == installed["jax"]
    for name in ("jax", "jaxlib", "numpy", "pytest", "prometheus-client"):
        assert found["packages"][name] == installed[name]
    assert not {*found} & {"environ", "argv"}


@pytest.mark.ground_truth
def test_functions_show_calls_compiles_and_phases(agent):
    """The figures of a function are those of the metrics page."""
    functions = page(agent, "/debug/functions")["functions"]
    (name,) = (one for one in functions if one.endswith("double"))
    double = functions[name]

    assert (double["calls"], double["hits"], double["misses"]) == (6, 2, 4)
    assert double["compiles"] == {"compiled": 3}
    assert sum(double["recompiles"].values()) == 2
    assert sum(double["errors"].values()) == 1
    assert {*double["phases"]} >= {"trace", "lower", "backend_compile"}
    assert double["phases"]["backend_compile"]["count"] == 3
    assert double["phases"]["backend_compile"]["seconds"] > 0
    assert page(agent, "/debug/overview")["functions"][name]["calls"] == 6


def test_the_overview_says_whose_it_is(agent):
    """Process, versions, hooks, and every part."""
    import os

    import jax

    overview = page(agent, "/debug/overview")

    assert overview["schema"] == 1
    assert overview["process"]["pid"] == os.getpid()
    assert overview["process"]["jax"] == jax.__version__
    assert overview["process"]["program"]
    assert overview["hooks"]["misses"] is True
    assert overview["problems"] == {}
    assert {"memory", "allocations", "cache", "transfers", "errors"} <= {*overview}
    assert {"memory", "allocations", "transfers"} <= {*page(agent, "/debug/memory")}


def test_events_by_kind_and_since(agent):
    """One kind, or what came after a number, and only that."""
    log = inside.events(agent)
    log.add("leak", None, "one", bytes=math.inf)
    log.add("oom", "f", "two")
    found = page(agent, "/debug/events?kind=leak")["events"]

    assert [event["message"] for event in found] == ["one"]
    assert found[0]["details"] == {"bytes": None}
    later = page(agent, f"/debug/events?since={found[0]['number']}")["events"]
    assert [event["message"] for event in later] == ["two"]
    assert page(agent, "/debug/events?since=99999999")["events"] == []


@pytest.mark.parametrize("query", ["kind=nonsense", "since=-1", "since=x", "since=²"])
def test_a_wrong_question_is_answered_with_what_is_allowed(agent, query):
    """400, and a line on what may be asked."""
    status, body = ask(agent, f"/debug/events?{query.replace('²', '%C2%B2')}")

    assert status == 400
    kinds, number = b"kind must be one of compile, ", b"since must be the number"
    assert kinds in body or number in body


def test_events_are_bounded_in_bytes(agent):
    """A page has a few megabytes at most, with the latest events."""
    log = inside.events(agent)
    for number in range(LIMIT):
        for kind in KINDS:
            log.add(kind, "f", "x" * 5000, number=number, text="y" * 5000)
    status, body = ask(agent, "/debug/events")
    found = json.loads(body)

    assert status == 200
    assert len(body) < 5_000_000
    assert found["left_out"] > 0
    assert found["events"][-1]["details"]["number"] == LIMIT - 1


def test_a_process_judges_what_its_page_says(agent) -> None:
    """Its reports, which encode nothing, are made of the same facts."""
    snapshot = inside.runtime(agent).overview.snapshot()
    document = json.loads(dumps(encoded(snapshot)))
    one = next(one for one in snapshot.functions if one.calls)

    assert document["functions"][one.name]["calls"] == one.calls
    assert read(snapshot) == read(document)


@pytest.mark.contained
def test_a_part_that_fails_costs_its_own_figures(agent, monkeypatch):
    """The page comes, says which part failed and why, and the failure is counted."""
    trouble = "\x1b[31mno such thing"

    def fail() -> dict[str, Any]:
        raise OSError(trouble)

    monkeypatch.setattr(inside.cache(agent), "snapshot", fail)
    monkeypatch.setattr(inside.indicators(agent), "explain_requests", fail)
    odd = {1: {"flops": math.nan}}
    monkeypatch.setattr(inside.programs(agent), "snapshot", lambda: odd)
    overview = page(agent, "/debug/overview")

    problem = f"OSError: {trouble}"
    assert overview["problems"] == {"cache": problem, "indicators": problem}
    assert (overview["cache"], overview["requests"]) == (None, None)
    assert overview["functions"]
    assert overview["memory"] is not None
    assert inside.guard(agent).failures()["snapshot_cache"] >= 1
    assert page(agent, "/debug/functions")["problems"].keys() == {"cache"}


@pytest.mark.contained
def test_a_rank_is_described_although_its_setup_fails(agent, monkeypatch):
    """A hang is judged without what the ranks should have in common."""
    assert page(agent, "/debug/rank")["setup"]["jax"]

    def fail(_: object) -> dict[str, str]:
        raise RuntimeError

    monkeypatch.setattr(Setup, "read", fail)
    found = page(agent, "/debug/rank")
    assert "setup" not in found
    assert found["pid"] == os.getpid()
    assert inside.guard(agent).failures()["setup"] == 1


def test_functions_are_bounded(agent):
    """The most expensive are listed, with the number of omitted ones."""
    table = inside.table(agent)
    table._limit = 2000
    for number in range(1500):
        table.named(f"m.f{number}").observe_phase("trace", 1.0 + number)
    found = page(agent, "/debug/functions")

    assert len(found["functions"]) == 500
    assert next(iter(found["functions"])) == "m.f1499"
    assert found["functions_left_out"] > 1000


@pytest.mark.exhaustive
def test_reading_is_quick_while_the_program_works(run_dir, python_script):
    """Threads that compile and call meanwhile neither break a page nor wait for it."""
    source = """
import json, threading
import jax, jaxmon, numpy as np
from pathlib import Path
from jaxmon.host.http.fetch import fetch_all
from tests.helpers import inside

agent = jaxmon.instrument(port=None)
stop = threading.Event()

def work(n):
    size = 0
    while not stop.is_set():
        size += 1
        jax.jit(lambda x: x + size)(np.ones(size % 5 + 1, np.float32))

threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for thread in threads: thread.start()
pages = []
for _ in range(20):
    for page in ("overview", "events", "functions", "memory"):
        answer = fetch_all({"0": Path(agent.socket)}, "/debug/" + page,
                           timeout=60, max_bytes=1 << 25)["0"]
        pages.append(isinstance(answer, str) and bool(json.loads(answer)))
stop.set()
for thread in threads: thread.join()
print(json.dumps([all(pages), len(pages), sorted(inside.guard(agent).failures())]))
"""
    env = {"PYTHONPATH": str(ROOT)}
    assert python_script(source, env=env).json() == [True, 80, []]
