"""Sampled calls that are repeated beside the program."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.checks import arrays as waiting
from jaxmon.agent.checks import shadow as shadow_module
from jaxmon.agent.context import Sample
from jaxmon.agent.jaxlink.arrays import can_copy
from jaxmon.facts.record import encoded
from tests.helpers import inside
from tests.helpers.agents import instrumented, value
from tests.helpers.processes import until


CHECKS = "jaxmon_determinism_checks_total"
DEVIATION = "jaxmon_output_deviation"


AGENT = {"shadow_interval": 0.1, "sample_rate": 0}


def shadow_of(agent: Agent) -> shadow_module.ShadowRunner:
    """Return what repeats calls for *agent*."""
    shadow = inside.determinism(agent)._shadow
    assert shadow is not None
    return shadow


def sampled(agent: Agent, jitted: Callable[..., Any], *args: Any) -> Any:
    """Call *jitted* as a call that is sampled, and wait until it was dealt with."""
    outputs = jitted(*args)
    observe(agent, getattr(jitted, "_jitted", jitted), jitted, *args, outputs=outputs)
    return outputs


def observe(
    agent: Agent, inner: Any, jitted: Any, *args: Any, outputs: Any
) -> shadow_module.ShadowRunner:
    """Have *inner*, called in place of *jitted*, dealt with as a call is sampled."""
    function = inside.table(agent).of(jitted.__wrapped__)
    shadow = shadow_of(agent)
    shadow._turns.due = 0
    for see in inside.observers(agent).sample:
        see(Sample(function, inner, args, {}, outputs))
    until(lambda: not shadow._turns.busy, "the repetition")
    return shadow


def test_a_repeated_call_counts_as_a_check_only(agent: Agent) -> None:
    """A repetition is no compile, call, miss or transfer of the program."""

    @jax.jit
    def step(x):
        return {"loss": (x * x).sum(), "x": x + 1}

    x = jnp.arange(100.0)
    step(x)
    names = ("jit_calls", "jit_cache_misses", "compiles", "host_transfers")
    before = [value(agent, f"jaxmon_{name}_total") for name in names]
    sampled(agent, step, x)
    after = [value(agent, f"jaxmon_{name}_total") for name in names]

    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 0, 0, 0]
    assert value(agent, CHECKS, outcome="passed") == 1
    assert value(agent, DEVIATION) == 0
    assert encoded(inside.determinism(agent).snapshot())[
        f"{__name__}.{step.__qualname__}"
    ] == {
        "checks": {"passed": 1, "failed": 0},
        "deviation": 0,
        "gradient_checks": {},
    }


def test_a_repetition_that_differs_is_reported(agent: Agent) -> None:
    """Outputs that are not those of a second run fail the check."""
    step = jax.jit(lambda x: x * 2)
    x = jnp.ones(3)
    step(x)
    observe(agent, step._jitted, step, x, outputs=x * 3)

    assert value(agent, CHECKS, outcome="failed") == 1
    assert value(agent, DEVIATION) == pytest.approx(1 / 3)


def callback(x: Any) -> Any:
    return jax.pure_callback(_count, jax.ShapeDtypeStruct((), x.dtype), x.sum())


def printing(x: Any) -> Any:
    jax.debug.callback(_count, x.sum())
    return x


def in_a_loop(x: Any) -> Any:
    return jax.lax.scan(lambda c, y: (c + callback(y), y), x.sum(), x)


counted: list[float] = []


def _count(x: Any) -> Any:
    counted.append(float(x))
    return np.float32(len(counted))


@pytest.mark.ground_truth
@pytest.mark.parametrize("fun", [callback, printing, in_a_loop])
def test_side_effects_are_never_repeated(agent: Agent, fun: Any) -> None:
    """A function that calls back into Python, however deep, is left alone."""
    jitted, x = jax.jit(fun), jnp.ones(3)
    jax.block_until_ready(jitted(x))
    jax.effects_barrier()
    before = len(counted)
    jax.block_until_ready(sampled(agent, jitted, x))
    jax.effects_barrier()

    assert len(counted) - before == (3 if fun is in_a_loop else 1)
    [found] = encoded(inside.determinism(agent).snapshot()).values()
    assert found == {"not_repeated": "effects"}
    assert value(agent, CHECKS) == 0


@pytest.mark.ground_truth
def test_a_call_that_has_donated_is_not_repeated(agent: Agent) -> None:
    """A donated argument is never used again; the next call is, on copies."""
    step = jax.jit(lambda state: state + 1, donate_argnums=0)
    step(jnp.ones(3))
    for _ in range(2):
        sampled(agent, step, jnp.ones(3))

    refused = [] if can_copy(jax) else [{"not_repeated": "old_jax"}]
    assert [*encoded(inside.determinism(agent).snapshot()).values()] == refused


def test_a_state_that_cannot_be_copied_is_left_alone(agent, monkeypatch):
    """What an old JAX returns as a copy is the program's own memory."""
    monkeypatch.setattr(shadow_module, "can_copy", lambda _: False)
    step = jax.jit(lambda state: state + 1, donate_argnums=0)
    sampled(agent, step, jnp.ones(3))

    [found] = encoded(inside.determinism(agent).snapshot()).values()
    assert found == {"not_repeated": "old_jax"}


@pytest.mark.ground_truth
def test_arguments_that_are_donated_meanwhile_end_a_repetition(agent: Agent) -> None:
    """The program may pass them to another function at any time: not a failure."""
    step, x = jax.jit(lambda x: x + 1), jnp.ones(3)

    class Late:
        def __init__(self) -> None:
            self.trace = step.trace

        def __call__(self, x: Any) -> Any:
            x.delete()
            return step(x)

    shadow = observe(agent, Late(), step, x, outputs=step(x))

    assert shadow._worker.drain(10)
    assert value(agent, CHECKS) == 0
    assert value(agent, "jaxmon_internal_errors_total") == 0


def test_arguments_that_may_change_or_are_large_are_not_repeated() -> None:
    """NumPy arguments can be overwritten meanwhile, and memory is the program's."""

    @jax.jit
    def of_numpy(x):
        return x + 1

    @jax.jit
    def of_much(x):
        return x + 1

    with instrumented(shadow_interval=0.1, shadow_memory=1024, sample_rate=0) as agent:
        sampled(agent, of_numpy, np.ones(3))
        sampled(agent, of_much, jnp.ones(300))

        found = inside.determinism(agent).snapshot()
    assert [one.not_repeated for one in found.values()] == [
        "numpy_argument",
        "too_large",
    ]


def test_an_end_of_the_program_waits_for_no_device(agent, monkeypatch):
    """Neither exit nor our thread waits in JAX; what is ready is compared."""
    ready = [True]
    monkeypatch.setattr(waiting, "is_ready_or_deleted", lambda _: ready[0])
    step, x = jax.jit(lambda x: x + 1), jnp.ones(3)
    sampled(agent, step, x)
    assert value(agent, CHECKS, outcome="passed") == 1

    ready[0] = False
    shadow = shadow_of(agent)
    shadow._turns.due = 0
    function = inside.table(agent).of(step.__wrapped__)
    shadow.take(Sample(function, step._jitted, (x,), {}, step(x)))
    until(lambda: shadow._worker._done, "the job to begin")
    shadow.stop()

    assert shadow._worker._done is None
    assert value(agent, CHECKS) == 1
    assert value(agent, "jaxmon_internal_errors_total") == 0


def test_another_configuration_is_not_repeated(agent: Agent) -> None:
    """What a context manager changes on the caller's thread holds on no other."""
    jitted, traced = jax.jit(lambda x: x @ x), threading.active_count()
    with jax.default_matmul_precision("float32"):
        jitted(jnp.ones((3, 3)))
        sampled(agent, jitted, jnp.ones((3, 3)))

    assert traced
    assert value(agent, CHECKS) == 0
    assert inside.determinism(agent).snapshot() == {}


def test_off_by_default() -> None:
    """Nothing is repeated, or even looked at, unless a user asks for it."""
    with instrumented(sample_rate=0) as agent:
        assert inside.determinism(agent)._shadow is None
