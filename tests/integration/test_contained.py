"""
Failures injected into every hook and source: the program does not notice.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.agent.guard import LIMIT
from jaxmon.agent.worker import Worker
from jaxmon.catalog import JIT_CACHE_HITS, JIT_CALLS
from tests.instrumented import SILENT, instrumented, samples, value
from tests.support import until


pytestmark = pytest.mark.contained

ERRORS = "jaxmon_internal_errors_total"
ACTIVE = "jaxmon_hook_active"


class InjectedError(Exception):
    """
    What jaxmon's own code raises here.
    """


class Bomb:
    """
    A callable that counts its calls and raises.
    """

    def __init__(self, error: type[BaseException] = InjectedError) -> None:
        self.calls = 0
        self._error = error

    def __call__(self, *_: object, **__: object) -> Any:
        self.calls += 1
        raise self._error


@pytest.fixture
def agent() -> Iterator[Agent]:
    """
    Return an agent that serves nothing.
    """
    with instrumented() as running:
        yield running


class UserError(Exception):
    """
    What the user's function raises.
    """


def refuse(_: Any) -> Any:
    raise UserError


def program() -> None:
    """
    Compile, hit, fail, and hand an error to the excepthooks.
    """
    jitted = jax.jit(lambda x: x + 1)
    assert jitted(np.float32(1)) == 2
    assert jitted(np.float32(2)) == 3
    assert jitted.lower(1.0).compile()(1.0) == 2
    assert jax.vmap(jitted)(np.ones(2)).tolist() == [2, 2]
    with pytest.raises(UserError):
        jax.jit(refuse)(1.0)
    with pytest.raises(TypeError):
        jitted()
    sys.excepthook(RuntimeError, runtime_error(), None)


def runtime_error() -> Exception:
    from jaxlib import xla_client

    kind: type[Exception] = getattr(jax.errors, "JaxRuntimeError", None) or (
        xla_client.XlaRuntimeError
    )
    return kind("INTERNAL: from a test")


def into_observer(name: str, owner: str) -> Callable[[Agent, Bomb], None]:
    """
    Return what lets the observer called *name* of the agent's part *owner* fail.
    """

    def inject(agent: Agent, bomb: Bomb) -> None:
        hooks = agent._hooks
        for probe in hooks._probes:
            if getattr(probe._observe, "__name__", "") == name:
                probe._observe = bomb
        if owner == "listeners":
            setattr(hooks._listeners, f"_{name}", bomb)
        elif owner == "errors":
            setattr(hooks._errors, name, bomb)

    return inject


def into_call_layer(agent: Agent, bomb: Bomb) -> None:
    agent._hooks._calls._table = Holder(of=bomb)  # type: ignore[assignment]


class Holder:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


# hook: how to break it
HOOKS: dict[str, tuple[str, Callable[[Agent, Bomb], None]]] = {
    "call layer": ("calls", into_call_layer),
    "on_miss": ("misses", into_observer("on_miss", "probes")),
    "on_compile": ("compiles", into_observer("on_compile", "probes")),
    "on_error": ("errors", into_observer("on_error", "probes")),
    "on_event": ("monitoring", into_observer("on_event", "listeners")),
    "on_duration": ("monitoring", into_observer("on_duration", "listeners")),
    "on_uncaught": ("uncaught", into_observer("uncaught", "errors")),
}


@pytest.fixture(autouse=True)
def silent_excepthooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Keep Python from printing the errors that tests hand to the excepthooks.
    """
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)


@pytest.mark.parametrize("name", HOOKS)
def test_a_failing_hook_is_contained(
    silent_excepthooks: None, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """
    Results and errors are the user's; the failure is counted, and logged once; a hook
    that keeps failing says so, is reported inactive, and is not called again.
    """
    hook, inject = HOOKS[name]
    with instrumented() as agent:
        bomb = Bomb()
        inject(agent, bomb)

        with caplog.at_level(logging.DEBUG, "jaxmon"):
            program()
            assert bomb.calls > 0
            assert value(agent, ERRORS, site=hook) == bomb.calls
            while bomb.calls < LIMIT:
                assert value(agent, ACTIVE, hook=hook) == 1
                program()
            assert value(agent, ACTIVE, hook=hook) == 0
            calls = bomb.calls
            program()

        assert bomb.calls == calls == LIMIT
        assert value(agent, ERRORS) == value(agent, ERRORS, site=hook) == LIMIT
        others = sum(name.startswith(ACTIVE) for name in samples(agent)) - 1
        assert value(agent, ACTIVE) == others
        first, second = caplog.records
        assert f"jaxmon failed in {hook}" in first.getMessage()
        assert first.exc_info is not None
        assert first.exc_info[0] is InjectedError
        assert second.getMessage() == f"jaxmon keeps failing in {hook}: switched off"


@pytest.mark.parametrize("name", [n for n in HOOKS if n != "on_uncaught"])
def test_an_interrupt_passes_through_a_hook(name: str) -> None:
    """
    Ctrl-C that happens to arrive inside a hook reaches the program, uncounted.
    """
    _, inject = HOOKS[name]
    with instrumented() as agent:
        inject(agent, Bomb(KeyboardInterrupt))

        with pytest.raises(KeyboardInterrupt):
            program()

        assert value(agent, ERRORS) == 0


def test_the_end_of_a_compile_is_contained(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    A failure as the compile returns is counted as well, and prints nothing.
    """
    agent._hooks.compiles._unsettled = None  # type: ignore[assignment]

    assert jax.jit(lambda x: x * 2)(2.0) == 4

    assert value(agent, ERRORS, site="compiles") >= 1
    assert "Traceback" not in capsys.readouterr().err


SOURCES: dict[str, tuple[str, Callable[[Agent, Any], None]]] = {
    "compiles": (
        "compiles",
        lambda agent, bomb: setattr(agent._hooks.compiles, "settle", bomb),
    ),
    "memory": (
        "memory",
        lambda agent, bomb: setattr(agent._parts.memory, "collect", bomb),
    ),
    "identity": (
        "identity",
        lambda agent, bomb: setattr(agent._parts.identity, "collect", bomb),
    ),
    "hooks": ("hooks", lambda agent, bomb: setattr(agent._hooks, "collect", bomb)),
    "process": (
        "process",
        lambda agent, bomb: setattr(agent._process, "collect", bomb),
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_failing_source_costs_its_own_series_only(
    agent: Agent, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """
    The other families are served, each failure is counted, the log says it once.
    """
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


def test_a_source_that_fails_for_long_comes_back(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A source is asked at every scrape, and nothing claims that it was switched off.
    """
    healthy = agent._parts.identity.collect
    agent._parts.identity.collect = Bomb()  # type: ignore[method-assign]
    with caplog.at_level(logging.DEBUG, "jaxmon"):
        for _ in range(LIMIT + 2):
            agent.collect()
    agent._parts.identity.collect = healthy  # type: ignore[method-assign]

    assert value(agent, "jaxmon_build_info") == 1
    assert "switched off" not in caplog.text


def test_looks_at_memory_that_fail_for_long_come_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A device may answer again. Until then nothing is told, and the program goes on.
    """
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
            patched.setattr(agent._parts.memory, "_live", bomb)
            until(lambda: bomb.calls > LIMIT, "more failures than a hook may have")
            assert not any(series.startswith(arrays) for series in samples(agent))
        program()
        until(lambda: value(agent, arrays) > 0, "another look")
        del kept

        assert value(agent, ERRORS, site="memory") == bomb.calls
        assert [record.getMessage()[:23] for record in caplog.records] == [
            "jaxmon failed in memory"
        ]


def test_a_failing_page_is_an_answer_and_is_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The client gets 500, the next page is served, and the failure counts.
    """
    with instrumented(port=0) as agent:
        url = str(agent.url)
        with monkeypatch.context() as patched:
            patched.setattr(agent, "_own", Bomb())
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(url, timeout=10)
            caught.value.close()

        with urllib.request.urlopen(url, timeout=10) as page:
            text = page.read().decode()

    assert caught.value.code == 500
    assert re.search(rf'^{ERRORS}{{site="server[^"]*"}} 1$', text, re.MULTILINE)
    assert len([r for r in caplog.records if "jaxmon failed" in r.getMessage()]) == 1


def test_a_log_handler_that_raises_does_not_reach_the_program() -> None:
    """
    Telling of a failure may fail, too; the user's call still returns.
    """

    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise InjectedError

    handler = Broken()
    logging.getLogger("jaxmon").addHandler(handler)
    try:
        with instrumented() as agent:
            for hook, inject in HOOKS.values():
                if hook != "calls":
                    inject(agent, Bomb())
            program()

            assert value(agent, ERRORS) > 0
    finally:
        logging.getLogger("jaxmon").removeHandler(handler)


# --- a JAX without what we look for ----------------------------------------------


UNREGISTER = (
    "unregister_event_duration_listener"
    if hasattr(sys.modules["jax._src.monitoring"], "unregister_event_duration_listener")
    else "_unregister_event_duration_listener_by_callback"
)


# Hooks whose observers ask whether JAX is tracing.
TRACED = {"misses", "compiles", "errors", "transfers", "sampling", "persistent_cache"}


def place(path: str) -> tuple[ModuleType, str]:
    module, _, name = path.rpartition(".")
    return sys.modules[module], name


@pytest.mark.parametrize(
    ("path", "lost"),
    [
        ("jax._src.pjit._infer_params", {"misses"}),
        ("jax._src.compiler.compile_or_get_cached", {"compiles"}),
        ("jax._src.traceback_util._filtering_mode", {"errors"}),
        ("jax._src.monitoring.register_event_listener", {"monitoring"}),
        ("jax._src.monitoring.get_event_listeners", {"monitoring"}),
        ("jax._src.monitoring.get_event_duration_listeners", {"monitoring"}),
        (f"jax._src.monitoring.{UNREGISTER}", {"monitoring"}),
        ("jax._src.core.trace_state_clean", TRACED),
        ("jax.errors.JaxRuntimeError", {"out_of_memory"}),
        ("jax.pmap", set()),
    ],
)
def test_a_missing_symbol_costs_its_hook_only(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    lost: set[str],
) -> None:
    """
    Where JAX lacks a function, its hook says so once; everything else works.
    """
    module, name = place(path)
    monkeypatch.delattr(module, name)

    with caplog.at_level(logging.WARNING, "jaxmon"):
        agent = jaxmon.instrument(**SILENT)
    try:
        inactive = {
            series.split('"')[1]
            for series, active in samples(agent).items()
            if series.startswith(ACTIVE) and not active
        }
        counted = jax.jit(lambda x: x + 1)
    finally:
        jaxmon.uninstrument()

    assert inactive == lost
    assert type(counted).__module__ == "jaxmon.agent.calling.counted"
    assert len(caplog.records) == len(lost)
    for record in caplog.records:
        assert "cannot attach to JAX" in record.getMessage()
    assert value(agent, ERRORS) == 0


def test_hits_are_not_claimed_where_misses_are_not_seen() -> None:
    """
    With the hook for misses gone, every call would look like a hit: none is exported.
    """
    with instrumented() as agent:
        jitted = jax.jit(lambda x: x + 1)
        jitted(1.0)
        jitted(1.0)
        assert value(agent, JIT_CACHE_HITS.name) == 1
        agent._hooks._attached["misses"] = False

        assert value(agent, JIT_CACHE_HITS.name) == 0
        assert value(agent, JIT_CALLS.name) == 2
