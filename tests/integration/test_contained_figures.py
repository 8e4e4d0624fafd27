"""Failures injected into sources of metrics: the others are exported."""

import logging
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.guard import LIMIT
from jaxmon.agent.worker import Worker
from tests.helpers import inside
from tests.helpers.adversaries import ERRORS, Bomb
from tests.helpers.agents import instrumented, samples, value
from tests.helpers.processes import until


pytestmark = pytest.mark.contained


SOURCES: dict[str, tuple[str, Callable[[Agent, Any], None]]] = {
    "compiles": (
        "compiles",
        lambda agent, bomb: setattr(inside.compiles(agent), "settle", bomb),
    ),
    "memory": (
        "memory",
        lambda agent, bomb: setattr(inside.memory(agent), "collect", bomb),
    ),
    "identity": (
        "identity",
        lambda agent, bomb: setattr(inside.identity(agent), "collect", bomb),
    ),
    "hooks": (
        "hooks",
        lambda agent, bomb: setattr(inside.hooks(agent), "collect", bomb),
    ),
    "process": (
        "process",
        lambda agent, bomb: setattr(inside.process(agent), "collect", bomb),
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_failing_source_costs_its_own_series_only(agent, caplog, name):
    """The other families are served, each failure is counted, the log says it once."""
    jitted = jax.jit(lambda x: x + 1)
    jitted(1.0)
    complete = {series.partition("{")[0] for series in samples(agent)}
    bomb = Bomb()
    SOURCES[name][1](agent, bomb)

    with caplog.at_level(logging.DEBUG, "jaxmon"):
        for _ in range(3):
            remaining = {series.partition("{")[0] for series in samples(agent)}

    lost = complete - remaining
    assert value(agent, ERRORS, site=f"collect_{name}") == bomb.calls == 4
    assert len(lost) < len(remaining)
    assert "jaxmon_jit_calls_total" in remaining
    assert len(caplog.records) == 1
    assert f"jaxmon failed in collect_{name}" in caplog.text


def test_a_source_that_fails_for_long_comes_back(agent, caplog):
    """A source is asked at every scrape, and nothing claims that it is off."""
    healthy = inside.identity(agent).collect
    inside.identity(agent).collect = Bomb()  # type: ignore[method-assign]
    with caplog.at_level(logging.DEBUG, "jaxmon"):
        for _ in range(LIMIT + 2):
            agent.collect()
    inside.identity(agent).collect = healthy  # type: ignore[method-assign]

    assert value(agent, "jaxmon_build_info") == 1
    assert "has disabled it" not in caplog.text


def test_looks_at_memory_that_fail_for_long_come_back(caplog, monkeypatch):
    """Until the device responds, nothing is reported, and the program continues."""
    arrays = "jaxmon_live_arrays"
    with instrumented(memory_interval=0.1) as agent:
        kept = jnp.ones(1).block_until_ready()
        until(lambda: value(agent, arrays) > 0, "a look")
        bomb = Bomb()
        with (
            caplog.at_level(logging.DEBUG, "jaxmon"),
            monkeypatch.context() as patched,
        ):
            patched.setattr(Worker, "_pause", lambda _: 0.001)
            patched.setattr(inside.memory(agent), "_live", bomb)
            until(lambda: bomb.calls > LIMIT, "more failures than a hook may have")
            assert not any(series.startswith(arrays) for series in samples(agent))
        assert jax.jit(lambda x: x + 1)(1.0) == 2
        until(lambda: value(agent, arrays) > 0, "another look")
        del kept

        assert value(agent, ERRORS, site="memory") == bomb.calls
        assert [record.getMessage()[:23] for record in caplog.records] == [
            "jaxmon failed in memory"
        ]


def test_a_failing_page_is_an_answer_and_is_counted(caplog, monkeypatch):
    """The client gets 500, the next page is served, and the failure counts."""
    with instrumented(port=0) as agent:
        url = str(agent.url)
        with monkeypatch.context() as patched:
            patched.setattr(type(inside.runtime(agent)._about), "collect", Bomb())
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(url, timeout=60)
            caught.value.close()

        with urllib.request.urlopen(url, timeout=60) as page:
            text = page.read().decode()

    assert caught.value.code == 500
    assert re.search(rf'^{ERRORS}{{site="server[^"]*"}} 1$', text, re.MULTILINE)
    assert len([r for r in caplog.records if "jaxmon failed" in r.getMessage()]) == 1
