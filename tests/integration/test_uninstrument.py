"""What remains after `jaxmon.uninstrument`, and what it leaves alone."""

import functools
import gc
import inspect
import sys
import threading
import urllib.request
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.agent.counted import CountedFunction
from tests.helpers import inside, session
from tests.helpers.agents import SILENT, instrumented, value
from tests.helpers.processes import files


CALLS = "jaxmon_jit_calls_total"
HITS = "jaxmon_jit_cache_hits_total"
MISSES = "jaxmon_jit_cache_misses_total"

# Bound before any agent: JAX's own.
PLAIN_JIT = jax.jit


# --- as found -----------------------------------------------------------------


def test_everything_is_as_found(run_dir: Path) -> None:
    """Attributes, listeners, threads, descriptors, files are restored."""
    jax.jit(lambda x: x + 1)(1.0)  # backends and their threads are up
    before = session.snapshot()

    agent = jaxmon.instrument(port=0, memory_interval=0.1)
    with urllib.request.urlopen(str(agent.url), timeout=60) as page:
        page.read()
    during = session.snapshot()
    held = files(run_dir)
    jaxmon.uninstrument()
    after = session.snapshot()

    changed = {
        place
        for place, found in during.attributes.items()
        if found is not before.attributes.get(place)
    }
    # No public name; the page on hooks says of which functions that stays so.
    assert not changed & {"jax.jit", "jax._src.api.jit", "jax.pmap"}
    assert changed >= {
        "jax._src.pjit._cpp_pjit",
        "jax._src.compiler.compile_or_get_cached",
        "jax._src.pjit._infer_params",
        "jax._src.traceback_util._filtering_mode",
        "sys.excepthook",
        "threading.excepthook",
    }
    assert during.threads > before.threads
    started = sorted(thread.name for thread in during.threads - before.threads)
    assert started == list(session.THREADS)
    assert during.listeners != before.listeners
    assert held == ["agent-0.lock", "agent-0.sock"]
    assert after.listeners == before.listeners
    assert after.threads == before.threads
    assert after.descriptors == before.descriptors
    for place, found in before.attributes.items():
        assert after.attributes[place] is found, place
    assert files(run_dir) == []
    assert agent.url is None
    assert agent.socket is None


def test_eval_shape_sees_what_is_counted_after_the_agent(agent: Agent) -> None:
    """Counted functions outlive an agent; of pmaps, it sees what it saw without us."""
    scaled = jax.jit(lambda n, x: x * n, static_argnums=0)
    mapped = jax.pmap(lambda x: x + 1)
    row = np.ones((1, 2), np.float32)
    for _ in range(2):
        if jax.__version_info__ >= (0, 7, 2):  # before, static arguments are not
            assert jax.eval_shape(scaled, 3, row).shape == row.shape
        assert jax.eval_shape(mapped, row).shape == row.shape
        jaxmon.uninstrument()


class Library:
    """What cffi has among the modules: it says that it is one, and is none."""

    __slots__ = ()
    __class__ = property(lambda _: ModuleType)


def test_what_modules_have_imported_from_us_is_as_found(agent, monkeypatch):
    """Of the program, and of JAX, which loads some of its modules late."""
    monkeypatch.setitem(sys.modules, "library", Library())
    modules = [ModuleType(f"of_the_program_{n}") for n in range(2)]
    imports = """
from sys import exit, excepthook
from jax._src.pjit import _infer_params as infer
from jax._src.compiler import compile_or_get_cached, warnings
"""
    exec(imports, vars(modules[0]))  # noqa: S102 - ours
    sys.modules.update({one.__name__: one for one in modules})
    try:
        jaxmon.uninstrument()
        exec(imports, vars(modules[1]))  # noqa: S102 - ours
        first, second = [
            {name: value for name, value in vars(one).items() if name[0] != "_"}
            for one in modules
        ]
    finally:
        for one in modules:
            del sys.modules[one.__name__]

    assert len(first) == 5
    assert all(first[name] is second[name] for name in second)


def test_uninstrument_without_an_agent_does_nothing() -> None:
    """Before, after and twice after an agent, it is harmless."""
    jaxmon.uninstrument()
    with instrumented() as agent:
        jaxmon.uninstrument()
        jaxmon.uninstrument()
        inside.runtime(agent).stop()

    assert jax.jit is PLAIN_JIT


@pytest.mark.exhaustive
def test_twenty_rounds_leave_nothing(run_dir: Path) -> None:
    """Descriptors, threads, listeners and the agents themselves do not pile up."""

    def one_round() -> weakref.ref[Any]:
        agent = jaxmon.instrument(port=0, memory_interval=0.1)
        jax.jit(lambda x: x * 2)(np.ones(2))
        jaxmon.uninstrument()
        return weakref.ref(agent)

    one_round()
    gc.collect()
    before = session.snapshot()
    agents = [one_round() for _ in range(20)]
    gc.collect()
    after = session.snapshot()

    assert [agent for agent in agents if agent() is not None] == []
    assert after.descriptors == before.descriptors
    assert after.threads == before.threads
    assert after.listeners == before.listeners
    assert files(run_dir) == []


def test_an_agent_runs_again_after_uninstrument() -> None:
    """A second agent counts from zero, and early-bound functions reach it by misses."""
    with instrumented():
        counted = jax.jit(lambda x: x + 1)
        counted(1.0)
    with instrumented() as second:
        counted(1.0)
        counted(np.ones(3))

        assert value(second, CALLS) == 0
        assert value(second, MISSES, function=f"{__name__}.{LAMBDA_OF_AGAIN}") == 1


LAMBDA_OF_AGAIN = "test_an_agent_runs_again_after_uninstrument.<locals>.<lambda>"


# --- somebody else patched, too -----------------------------------------------


def test_a_later_wrapper_of_the_factory_stays_and_ours_is_inert(monkeypatch):
    """A wrapper around what makes jitted functions works on, uncounted."""
    pjit: Any = sys.modules["jax._src.pjit"]
    monkeypatch.setattr(pjit, "_cpp_pjit", pjit._cpp_pjit)  # restores it at the end
    seen: list[object] = []
    agent = jaxmon.instrument(**SILENT)
    ours = pjit._cpp_pjit

    @functools.wraps(ours)
    def theirs(*args: Any) -> Any:
        seen.append(args)
        return ours(*args)

    pjit._cpp_pjit = theirs
    jaxmon.uninstrument()

    assert pjit._cpp_pjit is theirs
    jitted = jax.jit(lambda x: x + 1)
    decorated = jax.jit(static_argnums=0)(lambda n, x: x * n) if DECORATES else jitted
    assert not isinstance(jitted, CountedFunction)
    assert type(decorated) is type(jitted)
    assert len(seen) == 1 + DECORATES
    assert jitted(1.0) == 2.0
    assert value(agent, CALLS) == value(agent, MISSES) == 0


def test_functions_made_by_an_earlier_bound_jit_are_counted(agent: Agent) -> None:
    """What ``from jax import jit`` bound before us makes counted functions as well."""
    early = PLAIN_JIT(lambda x: x + 1)
    early(1.0)
    early(1.0)

    assert value(agent, CALLS) == 2
    assert value(agent, HITS) == 1


DECORATES = inspect.signature(PLAIN_JIT).parameters["fun"].default is not inspect._empty


def test_a_later_wrapper_of_the_miss_path_stays_and_ours_is_inert(monkeypatch):
    """Functions compile through their ``_infer_params``, and nothing is counted."""
    pjit: Any = sys.modules["jax._src.pjit"]
    monkeypatch.setattr(pjit, "_infer_params", pjit._infer_params)
    seen: list[object] = []
    agent = jaxmon.instrument(**SILENT)
    ours = pjit._infer_params

    @functools.wraps(ours)
    def theirs(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return ours(*args, **kwargs)

    pjit._infer_params = theirs
    during = jax.jit(lambda x: x + 1)
    during(np.ones(3))
    counted = value(agent, MISSES)
    jaxmon.uninstrument()
    during(np.ones(4))
    jax.jit(lambda x: x - 1)(np.ones(3))

    assert pjit._infer_params is theirs
    assert len(seen) >= 3
    assert value(agent, MISSES) == counted


def test_a_later_excepthook_stays_and_ours_is_inert(monkeypatch):
    """Both excepthooks of a third party keep working, and errors are not counted."""
    told: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: told.append(args[1]))
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args[1]))
    agent = jaxmon.instrument(**SILENT)
    ours, ours_of_threads = sys.excepthook, threading.excepthook

    def theirs(*args: Any) -> None:
        told.append("theirs")
        ours(*args)

    def theirs_of_threads(args: Any) -> None:
        told.append("theirs")
        ours_of_threads(args)

    sys.excepthook, threading.excepthook = theirs, theirs_of_threads
    jaxmon.uninstrument()
    error = runtime_error()
    sys.excepthook(type(error), error, None)
    other = runtime_error()
    thread = threading.Thread(target=raises(other))
    thread.start()
    thread.join()

    assert sys.excepthook is theirs
    assert threading.excepthook is theirs_of_threads
    assert told == ["theirs", error, "theirs", other]
    assert value(agent, "jaxmon_errors_total") == 0


def runtime_error() -> Exception:
    """Return what a deleted array raises: an error of the XLA runtime."""
    array = jnp.ones(3)
    array.delete()
    from jaxlib import xla_client

    kind: type[Exception] = getattr(jax.errors, "JaxRuntimeError", None) or (
        xla_client.XlaRuntimeError
    )
    return kind("INTERNAL: from a test")


def raises(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def test_cleared_listeners_come_back_and_go(agent: Agent) -> None:
    """After `clear_event_listeners` a scrape listens again; stopping works."""
    before = session.snapshot()
    jax.monitoring.clear_event_listeners()
    assert session.snapshot().listeners != before.listeners

    value(agent, CALLS)

    assert session.snapshot().listeners == before.listeners
    jax.monitoring.clear_event_listeners()
    jaxmon.uninstrument()
    monitoring = sys.modules["jax._src.monitoring"]
    assert monitoring.get_event_listeners() == []
    assert monitoring.get_event_duration_listeners() == []


def test_listeners_of_others_stay(agent: Agent) -> None:
    """A listener that was registered after ours hears on after uninstrument()."""
    heard: list[str] = []

    def listen(event: str, *_: object, **__: object) -> None:
        heard.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jaxmon.uninstrument()
        jax.jit(lambda x: x + 3)(np.ones(7))
    finally:
        jax.monitoring.clear_event_listeners()

    assert "/jax/core/compile/backend_compile_duration" in heard
