"""How compiles end, on every supported JAX."""

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import jaxmon
from jaxmon import catalog
from jaxmon.agent import Agent
from jaxmon.agent.compiles import misses
from jaxmon.agent.jaxlink import patches
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.jaxlink.listeners import Listeners
from jaxmon.agent.tracing.part import TraceMistakes
from jaxmon.cli.main import main
from jaxmon.exposition.families import Family
from jaxmon.host.sources import display_path
from tests.helpers import inside
from tests.helpers.agents import instrumented, value


pytestmark = pytest.mark.ground_truth

COMPILES = "jaxmon_compiles_total"


def bare(x: Any) -> Any:
    return x * 2 + 1


def fail(lowered: Any) -> None:
    """Have XLA refuse to compile."""
    with pytest.raises(Exception, match="no_such_option"):
        lowered.compile(compiler_options={"no_such_option": "1"})


def test_a_compile_that_failed_is_on_the_next_page(agent: Agent) -> None:
    """It is there although JAX (to 0.5) does not report it and no compile follows."""
    lowered = jax.jit(lambda x: x + 1).lower(np.ones(2, np.float32))
    fail(lowered)

    assert value(agent, COMPILES, outcome="failed") == 1
    assert value(agent, "jaxmon_compiles_in_progress") == 0
    lowered.compile()
    assert value(agent, COMPILES, outcome="failed") == 1
    assert value(agent, COMPILES, outcome="compiled") == 1


def test_a_thread_may_end_with_a_failed_compile(agent: Agent) -> None:
    """Its compile counts, although its stack is gone."""
    lowered = jax.jit(lambda x: x + 1).lower(np.ones(2, np.float32))
    thread = threading.Thread(target=fail, args=(lowered,))
    thread.start()
    thread.join()

    assert value(agent, COMPILES, outcome="failed") == 1


def test_a_compile_in_progress_says_what_it_is_of(
    monkeypatch: pytest.MonkeyPatch, run_dir: Path
) -> None:
    """
    While XLA has it: how many equations, and which line most of them are from, and what
    is of constants only; also by `jaxmon compiles`, which has no program to show yet.
    """
    monkeypatch.setattr(misses, "_LONG_SECONDS", 0.0)
    begun, go_on = threading.Event(), threading.Event()

    def unrolled(x: Any) -> Any:
        for _ in range(50):
            x = jnp.sin(x) * 3  # most
        jnp.cos(x)  # which JAX does not lower
        return x + jax.lax.cumsum(jnp.asarray(table))

    table = np.ones(2000, np.float32)
    equations = jax.make_jaxpr(unrolled)(1.0).jaxpr.eqns
    thread = threading.Thread(target=jax.jit(unrolled), args=(1.0,))
    with instrumented(socket=True) as agent, monkeypatch.context() as patched:
        for place in patches.builds(jax):
            patched.setattr(*place, after(getattr(*place), begun, go_on))
        thread.start()
        try:
            assert begun.wait(60)
            found = inside.overview(agent)["compiling"]
            shown = CliRunner().invoke(main, ["compiles", "--run-dir", str(run_dir)])
        finally:
            go_on.set()
            thread.join()
        assert inside.overview(agent)["compiling"]["count"] == 0
    line = unrolled.__code__.co_firstlineno + 2
    assert found["count"] == 1
    assert found["function"].endswith("unrolled")
    assert (found["equations"], found["most"]) == (len(equations) - 1, 100)
    assert found["where"] == f"{display_path(__file__)}:{line}"
    assert found["folded"]["operation"] == "cumsum"
    assert shown.exit_code == 0, shown.output
    most = f"{len(equations) - 1} equations, 100 of them from {found['where']}."
    assert most in " ".join(shown.output.split())


def after(
    original: Callable[..., Any], begun: threading.Event, go_on: threading.Event
) -> Callable[..., Any]:
    """Return *original*, which sets *begun* and waits for *go_on* before it runs."""

    def held(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        go_on.wait(60)
        return original(*args, **kwargs)

    return held


def test_pages_while_compiling_call_nothing_failed(agent: Agent) -> None:
    """What is on its way is neither failed nor counted twice."""
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            agent.collect()

    thread = threading.Thread(target=scrape)
    thread.start()
    f = jax.jit(lambda x: x + 1)
    try:
        for size in range(1, 21):
            f(np.ones(size, np.float32))
    finally:
        done.set()
        thread.join()

    assert value(agent, COMPILES, outcome="failed") == 0
    assert value(agent, COMPILES, outcome="compiled") == 20


def test_a_function_does_not_outlive_a_compile_that_failed(agent: Agent) -> None:
    """A failed compile that was never queried keeps no object of the user."""

    def run() -> weakref.ref[Any]:
        def f(x: Any) -> Any:
            return x + 1

        fail(jax.jit(f).lower(np.ones(2, np.float32)))
        return weakref.ref(f)

    reference = run()
    inside.part(agent, TraceMistakes).finish(30)  # it holds the function that it reads
    jax.clear_caches()
    gc.collect()

    assert reference() is None


def fresh() -> Any:
    return jax.jit(lambda x: jnp.sin(x) + 1)


def outcomes(agent: Agent) -> dict[str, float]:
    """Return the compiles by outcome, those that there are."""
    found = {one: value(agent, COMPILES, outcome=one) for one in catalog.OUTCOMES}
    return {outcome: number for outcome, number in found.items() if number}


def hears(agent: Agent) -> bool:
    """Return whether the hook into jax.monitoring is reported as active."""
    return value(agent, "jaxmon_hook_active", hook="monitoring") == 1


def test_a_scrape_while_listeners_attach_says_nothing_of_them(monkeypatch):
    """What is not attached yet is not inactive, which alerts and boards would show."""
    listen, register = Hooks.listen, Listeners.register
    attaching: list[Hooks] = []
    pages: list[list[Family]] = []

    def listens(hooks: Hooks, **how: Any) -> None:
        attaching.append(hooks)
        listen(hooks, **how)

    def registers(listeners: Listeners) -> None:
        pages.append(attaching[-1].collect())
        register(listeners)

    monkeypatch.setattr(Hooks, "listen", listens)
    monkeypatch.setattr(Listeners, "register", registers)
    with instrumented() as agent:
        assert hears(agent)

    [[active]] = pages
    assert active.metric is catalog.HOOK_ACTIVE
    assert not [name for name, _ in active.samples if "monitoring" in name]


def test_cleared_listeners_change_no_outcome(agent: Agent) -> None:
    """Outcomes stay right; phases are missing until a whole compile is heard."""
    x = np.ones(2, np.float32)
    lowered = fresh().lower(x)
    assert hears(agent)
    jax.monitoring.clear_event_listeners()
    fresh()(x)

    assert outcomes(agent) == {"compiled": 1}
    assert not hears(agent)
    jax.monitoring.clear_event_listeners()
    fail(lowered)
    assert outcomes(agent) == {"compiled": 1, "failed": 1}
    assert not hears(agent)
    jax.monitoring.clear_event_listeners()
    fresh().lower(x).compile()
    jax.vmap(fresh())(np.ones((2, 2), np.float32))
    assert outcomes(agent) == {"compiled": 3, "failed": 1}
    assert hears(agent)
    assert value(agent, "jaxmon_compile_seconds_count", phase="backend_compile") == 4


def test_a_listener_of_the_program_may_take_ours_off(agent: Agent) -> None:
    """The outcome is right whether it does so before, within or after a compile."""
    x = np.ones(2, np.float32)

    def listen(event: str, *_: object, **__: object) -> None:
        heard.add(event)
        jax.monitoring.clear_event_listeners()
        register()

    def register() -> None:
        jax.monitoring.register_event_listener(listen)
        jax.monitoring.register_event_duration_secs_listener(listen)

    heard: set[str] = set()
    try:
        for _ in range(3):
            # Before ours, so that it is called first.
            jax.monitoring.clear_event_listeners()
            register()
            fresh()(x)
        fail(fresh().lower(x))
    finally:
        jaxmon.uninstrument()
        jax.monitoring.clear_event_listeners()

    assert any("backend_compile" in event for event in heard)
    inside.compiles(agent).settle()
    tallies = [function.compiles for function in inside.table(agent)]
    assert sum(one["failed"].value for one in tallies) == 1
    assert sum(one["compiled"].value for one in tallies) == 3


def hide_a_report() -> list[str]:
    """
    Hide JAX's next report of a compile from listeners that are registered from now on:
    JAX skips the next listener where one takes itself off. What is returned is the
    event, once it is hidden.
    """
    monitoring: Any = jax._src.monitoring
    unregister: Any = getattr(
        monitoring,
        "unregister_event_duration_listener",
        getattr(monitoring, "_unregister_event_duration_listener_by_callback", None),
    )
    hidden = []

    def once(event: str, *_: object, **__: object) -> None:
        if "backend_compile" in event:
            hidden.append(event)
            unregister(once)

    jax.monitoring.register_event_duration_secs_listener(once)
    return hidden


def test_a_listener_that_takes_itself_off_hides_an_event_from_ours() -> None:
    """A lost report of a good compile is on the page until the next."""
    hidden = hide_a_report()
    with instrumented() as agent:
        fresh()(np.ones(2, np.float32))

        assert len(hidden) == 1
        assert outcomes(agent) == {"compiled": 1}
        assert not hears(agent)
        fresh()(np.ones(2, np.float32))
        assert outcomes(agent) == {"compiled": 2}
        assert hears(agent)


def test_a_compile_that_is_settled_late_says_nothing_of_later_ones() -> None:
    """Another event may arrive before a lost one is looked up."""
    hidden = hide_a_report()
    with instrumented() as agent:
        thread = threading.Thread(target=fresh(), args=(np.ones(2, np.float32),))
        thread.start()
        thread.join()
        fresh()(np.ones(2, np.float32))

        assert len(hidden) == 1
        assert outcomes(agent) == {"compiled": 2}
        assert hears(agent)


@pytest.mark.parametrize("without", ["hook", "guard"])
def test_without_the_hook_into_monitoring_outcomes_are_right(agent, without):
    """A hook that hears nothing, or has switched itself off, proves no failure."""
    if without == "guard":
        inside.guard(agent).off.add("monitoring")
    else:
        inside.listeners(agent).unregister()
    fresh()(np.ones(2, np.float32))
    fail(fresh().lower(np.ones(2, np.float32)))

    assert outcomes(agent) == {"compiled": 1, "failed": 1}
    assert not hears(agent)


def test_a_program_from_the_persistent_cache_is_one_unheard(agent, tmp_path):
    """A hit stays a hit, and a miss a miss, whenever the listeners are cleared."""

    def compile_unheard(x: Any) -> None:
        jax.clear_caches()
        lowered = jax.jit(bare).lower(x)
        clearing = [True]

        def clear(*_: object, **__: object) -> None:
            if clearing.pop():
                jax.monitoring.clear_event_listeners()

        # Once JAX has begun to look the program up.
        jax.monitoring.clear_event_listeners()
        jax.monitoring.register_event_listener(clear)
        lowered.compile()
        assert not clearing

    settings: dict[str, Any] = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    reset: Any = jax._src.compilation_cache.reset_cache
    try:
        for name, setting in settings.items():
            jax.config.update(name, setting)
        reset()
        compile_unheard(np.ones(2, np.float32))
        compile_unheard(np.ones(2, np.float32))
        compile_unheard(np.ones(3, np.float32))
    finally:
        for name, setting in before.items():
            jax.config.update(name, setting)
        reset()

    assert outcomes(agent) == {"compiled": 2, "cache_hit": 1}


def test_threads_that_compile_register_the_listeners_once(agent: Agent) -> None:
    """However many find them gone: twice would count every phase twice."""
    start = threading.Barrier(8)
    listeners = inside.hooks(agent).listeners
    assert listeners is not None

    def run() -> None:
        start.wait()
        listeners.restore()

    for _ in range(20):
        jax.monitoring.clear_event_listeners()
        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        monitoring: Any = jax._src.monitoring
        assert len(monitoring.get_event_listeners()) == 1
        assert len(monitoring.get_event_duration_listeners()) == 1
