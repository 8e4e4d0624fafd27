"""`jaxmon.log_values` with real device arrays."""

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.facts.process import read
from jaxmon.symptoms.findings import find
from tests.helpers import inside
from tests.helpers.agents import instrumented, samples, value
from tests.helpers.processes import until


pytestmark = pytest.mark.ground_truth


AGENT = {"sample_rate": 0.001}


def quantity(agent: Agent, name: str) -> dict[str, Any]:
    """Return what is known of a quantity now."""
    found: dict[str, Any] = inside.overview(agent)["values"].get(name, {})
    return found


def test_arrays_and_numbers_are_exported(agent: Agent) -> None:
    """The latest value of each name, whatever holds it, with the step."""
    for step in range(5):
        jaxmon.log_values(
            {
                "loss": jnp.float32(step) / 2,
                "lr": 0.25,
                "acc": np.float64(0.5),
                "norm": jnp.full((1, 1), 3.0, jnp.bfloat16),
                "steps": jnp.int32(step),
            },
            step=jnp.int32(10 * step),
        )
    until(lambda: quantity(agent, "loss").get("count") == 5, "values to be read")

    exported = {
        name: samples(agent)[f'jaxmon_value{{name="{name}"}}']
        for name in ("loss", "lr", "acc", "norm", "steps")
    }
    assert exported == {"loss": 2.0, "lr": 0.25, "acc": 0.5, "norm": 3.0, "steps": 4.0}
    assert quantity(agent, "loss")["latest"] == {"step": 40, "value": 2.0}
    assert value(agent, "jaxmon_host_transfers_total", direction="device_to_host") == 0


@pytest.mark.skipif(jax.__version_info__ < (0, 6), reason="off beside a callback")
def test_a_value_that_is_not_ready_is_read_later(agent: Agent) -> None:
    """The program goes on at once; nothing is known of a value that does not exist."""
    release = threading.Event()

    def waits(x: Any) -> Any:
        release.wait(60)
        return x

    slow = jax.jit(
        lambda x: jax.pure_callback(waits, jax.ShapeDtypeStruct((), np.float32), x)
    )

    threads = [
        threading.Thread(
            target=lambda: jaxmon.log_values({"loss": slow(jnp.float32(7))})
        )
    ]
    threads[0].start()
    try:
        assert quantity(agent, "loss") == {}
    finally:
        release.set()
        threads[0].join(60)
    until(lambda: quantity(agent, "loss"), "the value to be read")

    assert samples(agent)['jaxmon_value{name="loss"}'] == 7


def test_donated_values_are_dropped_and_no_value_is_kept(agent: Agent) -> None:
    """A donated loss is gone, without a failure; one that was read is released."""
    give = jax.jit(lambda x: x + 1, donate_argnums=0)
    given = jnp.float32(1) + 1
    inside.logged(agent)._lock.acquire()
    try:
        reader = threading.Thread(target=lambda: jaxmon.log_values({"gone": given}))
        reader.start()
        reader.join(60)
        give(given).block_until_ready()
    finally:
        inside.logged(agent)._lock.release()
    assert given.is_deleted()
    kept = jnp.float32(2) + 1
    died = weakref.ref(kept)
    jaxmon.log_values({"loss": kept})
    until(lambda: quantity(agent, "loss"), "the value to be read")
    del kept
    gc.collect()

    assert died() is None
    assert quantity(agent, "gone") == {}
    assert inside.guard(agent).failures() == {}


@pytest.mark.contained
def test_what_is_no_number_is_counted_and_nothing_is_raised(agent: Agent) -> None:
    """Text, arrays of several elements, PRNG keys and traced values."""
    jaxmon.log_values({"loss": "low"})  # type: ignore[dict-item]  # the mistake
    jaxmon.log_values({"loss": jnp.ones(3)})
    jaxmon.log_values({"loss": jax.random.key(0)})

    def step(x: Any) -> Any:
        jaxmon.log_values({"loss": x})
        return x

    jax.jit(step)(1.0)

    assert quantity(agent, "loss") == {}
    assert inside.guard(agent).failures() == {"values": 4}


def test_too_many_values_are_dropped_and_counted(agent: Agent) -> None:
    """The queue is bounded while nothing is read."""

    def log() -> None:
        for number in range(1200):
            jaxmon.log_values({"x": number})

    inside.logged(agent)._lock.acquire()
    try:
        logger = threading.Thread(target=log)
        logger.start()
        logger.join(60)
    finally:
        inside.logged(agent)._lock.release()

    assert value(agent, "jaxmon_dropped_total", what="value") == 200


def test_without_an_agent_it_does_nothing() -> None:
    """Nor afterwards: nothing is kept for the next one."""
    jaxmon.log_values({"loss": 1.0})
    with instrumented() as agent:
        assert inside.overview(agent)["values"] == {}


def regression(rate: float, dtype: Any = jnp.float32) -> Iterator[dict[str, Any]]:
    """Train a linear model; yield the metrics of each step."""
    inputs = jax.random.normal(jax.random.key(0), (64, 8), dtype)
    targets = inputs @ jnp.ones(8, dtype)

    def step(weights: Any) -> Any:
        def loss(weights: Any) -> Any:
            return jnp.mean((inputs @ weights - targets) ** 2)

        lost, slope = jax.value_and_grad(loss)(weights)
        return weights - rate * slope, {"loss": lost, "norm": jnp.linalg.norm(slope)}

    weights, jitted = jnp.zeros(8, dtype), jax.jit(step)
    while True:
        weights, metrics = jitted(weights)
        yield metrics


@pytest.mark.parametrize(
    ("rate", "topics"), [(0.01, []), (8.0, ["nonfinite_value", "nonfinite_value"])]
)
def test_a_run_that_diverges_is_found(agent, rate, topics):
    """With the step of the first value that is not finite; a healthy one is not."""
    training, truth = regression(rate), []
    for step in range(60):
        metrics = next(training)
        truth.append(float(metrics["loss"]))
        jaxmon.log_values(metrics, step=step)
    until(lambda: quantity(agent, "loss").get("count") == 60, "values to be read")

    found = find(read(inside.overview(agent)))
    assert [one.topic for one in found if one.topic != "short"] == topics
    if topics:
        first = int(np.argmin(np.isfinite(truth)))
        assert f"since step {first:,}" in found[0].verdict
        assert f"at step {first - 1:,}" in found[0].verdict
