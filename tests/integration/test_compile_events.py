"""Compiles as events: which are recorded, and what they say."""

from __future__ import annotations

from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import jax
import numpy as np
import pytest

import jaxmon
from jaxmon.agent.compiles import misses as compiling
from jaxmon.agent.events import LoggedEvent
from tests.helpers import inside
from tests.helpers.preloaded import run_preloaded


if TYPE_CHECKING:
    from jaxmon.agent import Agent

pytestmark = pytest.mark.ground_truth


def compiles(agent: Agent, name: str) -> list[LoggedEvent]:
    """Return the events about compiles of the test's function *name*."""
    found = inside.events(agent).since(kind="compile")
    return [one for one in found if (one.function or "").endswith(name)]


def test_a_compile_that_a_request_waited_for(agent: Agent) -> None:
    """It is recorded with its duration; a warm request and a recompile are not."""

    @jax.jit
    def waited_for(x):
        return x + 1

    began = perf_counter()
    with jaxmon.request("predict"):
        waited_for(np.ones(3, np.float32))
    longest = perf_counter() - began
    for size in (3, 4):  # a hit, a recompile
        with jaxmon.request("predict"):
            waited_for(np.ones(size, np.float32))

    (event,) = compiles(agent, "waited_for")
    assert 0 < event.details["seconds"] <= longest
    assert event.details["requests"] == 1
    assert event.details["cache"] == "off"
    assert event.message.startswith("compiled in ")
    assert event.message.endswith(" s while a request waited")
    (recompile,) = inside.events(agent).since(kind="recompile")
    assert recompile.function == event.function


def test_all_requests_of_a_batch_waited(agent: Agent) -> None:
    """Their number is in the event."""

    @jax.jit
    def batched(x):
        return x + 1

    with ExitStack() as stack:
        open_ = [
            copy_context().run(stack.enter_context, jaxmon.request("predict"))
            for _ in range(2)
        ]
        with jaxmon.batch("predict", size=2, capacity=2, requests=open_):
            batched(1.0)
    (event,) = compiles(agent, "batched")
    assert event.details["requests"] == 2
    assert event.message.endswith("while 2 requests waited")


def test_without_a_request_it_must_be_slow(agent, monkeypatch):
    """At a start many small programs are compiled; only slow ones are recorded."""

    @jax.jit
    def quick(x):
        return x + 1

    @jax.jit
    def slow(x):
        return x + 2

    monkeypatch.setattr(compiling, "SLOW_SECONDS", 1e6)
    quick(1.0)
    monkeypatch.setattr(compiling, "SLOW_SECONDS", 0.0)
    slow(1.0)
    assert compiles(agent, "quick") == []
    (event,) = compiles(agent, "slow")
    assert event.details["requests"] == 0
    assert "waited" not in event.message


CACHED = """
import json, sys
import jaxmon
agent = jaxmon.instrument(port=None, socket=False, memory_interval=0)
import jax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
def first():
    @jax.jit
    def model(x):
        return x * 3
    return model
def second():
    @jax.jit
    def model(x):
        return x * 3
    return model
for one in (first(), second()):
    with jaxmon.request("predict"):
        one(1.0)
from jaxmon.agent.agent import runtime_of
found = runtime_of(agent).context.events.since(kind="compile")
print(json.dumps([[one.function, one.details["cache"], one.message] for one in found]))
"""


def test_it_says_what_the_persistent_cache_did(tmp_path: Path) -> None:
    """A function whose program another has stored is loaded, not compiled."""
    found = run_preloaded("-c", CACHED, str(tmp_path)).ok().json()
    models = [one for one in found if one[0].endswith("model")]
    assert [(name, cache) for name, cache, _ in models] == [
        ("__main__.first.<locals>.model", "miss"),
        ("__main__.second.<locals>.model", "hit"),
    ]
    assert [message.partition(" in ")[0] for _, _, message in models] == [
        "compiled",
        "loaded from the persistent cache",
    ]
