"""A JAX without what the hooks look for: each costs its own figures only."""

import logging
import sys
from pkgutil import resolve_name
from typing import Any

import jax
import pytest

import jaxmon
from jaxmon.catalog import JIT_CACHE_HITS, JIT_CALLS
from tests.helpers import inside
from tests.helpers.adversaries import ACTIVE, ERRORS
from tests.helpers.agents import SILENT, instrumented, samples, value


UNREGISTER = (
    "unregister_event_duration_listener"
    if hasattr(sys.modules["jax._src.monitoring"], "unregister_event_duration_listener")
    else "_unregister_event_duration_listener_by_callback"
)


# Hooks whose observers ask whether JAX is tracing.
TRACED = {"misses", "compiles", "errors", "transfers", "sampling", "persistent_cache"}


def place(path: str) -> tuple[Any, str]:
    module, _, name = path.rpartition(".")
    return resolve_name(module), name


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
        ("jax.errors.JaxRuntimeError", {"runtime_errors"}),
        ("jax._src.array.ArrayImpl._check_if_deleted", {"deleted_arrays"}),
        ("jax._src.core.ShapedArray.str_short", {"deleted_arrays"}),
        ("jax.pmap", set()),
    ],
)
def test_a_missing_symbol_costs_its_hook_only(monkeypatch, caplog, path, lost):
    """Where JAX lacks a function, its hook says so once; everything else works."""
    module, name = place(path)
    monkeypatch.delattr(module, name)

    with caplog.at_level(logging.WARNING, "jaxmon"):
        agent = jaxmon.instrument(**SILENT)
        inside.sampling(agent)  # else it attaches with the first call
    try:
        inactive = {
            series.split('"')[1]
            for series, active in samples(agent).items()
            if series.startswith(ACTIVE) and not active
        }
        counted = jax.jit(lambda x: x + 1)
    finally:
        jaxmon.uninstrument()

    # Causes have no place of their own: they need both.
    causes = {"causes"} if lost & {"misses", "compiles"} else set()
    assert inactive == lost | causes
    assert type(counted).__module__ == "jaxmon.agent.counted"
    assert len(caplog.records) == len(lost)
    for record in caplog.records:
        assert "cannot attach to JAX" in record.getMessage()
    assert value(agent, ERRORS) == 0


def test_hits_are_not_claimed_where_misses_are_not_seen() -> None:
    """Without the hook for misses, no hit is exported."""
    with instrumented() as agent:
        jitted = jax.jit(lambda x: x + 1)
        jitted(1.0)
        jitted(1.0)
        assert value(agent, JIT_CACHE_HITS.name) == 1
        inside.lose_hook(agent, "misses")

        assert value(agent, JIT_CACHE_HITS.name) == 0
        assert value(agent, JIT_CALLS.name) == 2
