"""
Non-finite outputs and promotions to float64, against outputs looked at by the test.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.checks import numerics
from jaxmon.facts.functions import Numerics
from jaxmon.facts.process import read as read_report
from jaxmon.symptoms.errors import ERRORS
from jaxmon.symptoms.findings import find
from tests.helpers import inside
from tests.helpers.agents import instrumented, samples, value
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT, until


pytestmark = pytest.mark.ground_truth


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Return an agent that reads outputs of the calls that the test samples."""
    with instrumented(sample_rate=0.001, time_interval=0) as running:
        yield running


@pytest.fixture
def x64() -> Iterator[None]:
    """Let JAX compute in float64."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)  # noqa: FBT003 - JAX's signature
    yield
    jax.config.update("jax_enable_x64", before)


def name_of(function: Any) -> str:
    return f"{__name__}.{function.__qualname__}"


def spoil(x: Any) -> Any:
    return {"log": jnp.log(x), "half": (x / 0).astype(jnp.bfloat16), "whole": x > 0}


def test_nonfinite_values_are_counted(agent: Agent) -> None:
    """
    Every floating-point output of a sampled call is counted, whatever its width; and
    neither a call nor a compile of the program's comes from that.
    """
    step, x = jax.jit(spoil), jnp.array([1.0, -1.0, 0.0, 2.0])
    name = name_of(spoil)
    step(jnp.ones(4)), step(x)
    read = inside.numerics(agent).snapshot
    until(lambda: read().get(name, Numerics()).values == 8, "the first call")
    first = read()[name].nonfinite
    outputs = step(x)
    truth = sum(
        int((~np.isfinite(np.asarray(outputs[name], np.float32))).sum())
        for name in ("log", "half")
    )
    before, calls = value(agent, "jaxmon_compiles_total"), 3

    def is_sampled() -> bool:
        nonlocal calls
        inside.sampling(agent).arm()  # as few as a busy machine can afford, or none
        step(x)
        calls += 1
        return read()[name].values > 8

    until(is_sampled, "outputs to be read")
    inside.numerics(agent).stop()

    found = read()[name]
    assert (truth, first) == (6, 4)
    assert found.nonfinite == first + truth * (found.values - 8) // 8
    assert samples(agent)[f'jaxmon_nonfinite_total{{name="{name}"}}'] == found.nonfinite
    assert value(agent, "jaxmon_jit_calls_total", function=name) == calls
    assert value(agent, "jaxmon_compiles_total") == before
    (event,) = inside.events(agent).since(0, "numerics")
    assert event.message == "4 of 8 values in a call's outputs are non-finite"


def diverge(weights: Any, step: Any) -> Any:
    """Return a state, and a loss that is NaN from step 3 on."""
    loss = jnp.where(step < 3, jnp.sum(weights), jnp.nan)
    return weights - loss, {"loss": loss, "step": step + 1}


def print_and_diverge(weights: Any, step: Any) -> Any:
    jax.debug.callback(lambda _: None, step)
    return diverge(weights, step)


def mask(logits: Any, step: Any) -> Any:
    """Return logits of which some are forbidden, and the best so far."""
    best = jnp.where(step < 4, jnp.inf, jnp.min(logits))
    masked = jnp.where(jnp.arange(logits.size) < step, logits, -jnp.inf)
    return logits, {"masked": masked, "best": best, "step": step + 1}


@pytest.mark.parametrize(
    ("function", "lost"),
    [
        (diverge, ["[1]['loss']", "[0]"]),
        pytest.param(
            *(print_and_diverge, ["[1]['loss']", "[0]"]),
            marks=pytest.mark.skipif(
                jax.__version_info__ < (0, 6), reason="off beside a callback"
            ),
        ),
        (mask, []),
    ],
)
def test_what_was_finite_and_stays_nan_is_a_failure(
    agent: Agent,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., Any],
    lost: list[str],
) -> None:
    """
    With the calls between which it happened. Healthy programs return values that are
    not finite too: masks, placeholders, missing data, steps that are skipped.
    """
    # Calls with effects all leave the fast path, and are read once a second.
    monkeypatch.setattr(numerics, "_INTERVAL", 0.0)
    step, numbers = jax.jit(function), inside.numerics(agent)
    state, at, name = jnp.arange(1.0, 7.0), jnp.int32(0), name_of(function)
    truth = []

    def values() -> int:
        return numbers.snapshot().get(name, Numerics()).values

    for _ in range(8):
        before = values()

        def read(state: Any = state, at: Any = at, before: int = before) -> Any:
            inside.sampling(agent).arm()
            outputs = step(state, at)
            truth.append(not np.isfinite(outputs[1].get("loss", 0.0)))
            return outputs if values() > before else None

        state, metrics = until(read, "outputs to be read")
        at = metrics["step"]

    found = numbers.snapshot()[name].outputs
    assert [one.name for one in found] == lost
    assert samples(agent)[f'jaxmon_nonfinite_outputs{{name="{name}"}}'] == len(lost)
    findings = find(read_report(inside.overview(agent)))
    topics = [one.topic for one in findings if one.topic != "short"]
    assert topics == ["nonfinite"] * bool(lost)
    if lost:
        ((finite, nan),) = {(one.finite_call, one.call) for one in found}
        assert not truth[finite - 1]
        assert truth[nan - 1]


def skip(weights: Any, scale: Any) -> Any:
    """Return a slope, the weights that it updates if it is finite, and a loss."""
    slope = weights * scale
    return slope, jnp.where(jnp.isfinite(slope), weights - slope, weights), slope[0]


def skip_first(weights: Any, scale: Any) -> Any:
    return *skip(weights, scale)[1::-1], weights[0] * scale


def slope_of(weights: Any, scale: Any) -> Any:
    return weights * scale, weights[0] * scale


def views(*held: Any) -> Any:
    """Return what a thread of ours has while it reads these, of the same calls."""
    return [array.addressable_data(0) for array in held]


def update(slope: Any, _loss: Any) -> Any:
    return jnp.where(jnp.isfinite(slope), slope, 0.0)


@pytest.mark.parametrize(
    ("function", "then", "lost"),
    [
        (skip, views, []),
        (skip_first, views, []),
        (slope_of, update, []),
        (slope_of, views, ["[0]", "[1]"]),
    ],
)
def test_nan_that_is_held_at_the_end(
    agent: Agent,
    function: Callable[..., Any],
    then: Callable[..., Any],
    lost: list[str],
) -> None:
    """It is a failure if no newer tensor of its kind is finite, whatever made that."""
    step, numbers, name = jax.jit(function), inside.numerics(agent), name_of(function)
    weights = jnp.full(37, 0.5)

    def called(scale: float) -> Any:
        inside.sampling(agent).arm()
        return step(weights, scale)

    until(lambda: called(1.0) and name in numbers.snapshot(), "a call to be read")
    outputs = called(np.nan)
    held = jax.block_until_ready((*outputs, then(*outputs)))

    def found() -> dict[str, str]:
        numbers.refresh(asked=False)
        return {of.name: of.where for of in numbers.snapshot()[name].outputs}

    # Of a busy machine, it may say nothing: the look at what is held is short.
    until(lambda: sorted(found()) == lost, "the outputs that are lost")
    assert all(found().values())
    assert held


def test_a_step_is_read_by_default() -> None:
    """Without any setting; and not if that is disabled."""
    for settings, expected in (({}, 1), ({"nonfinite": False}, 0)):
        with instrumented(sample_rate=0.001, **settings) as running:
            jax.jit(keep)(jnp.ones(3))
            inside.numerics(running), inside.sampling(running)  # are loaded
            observers = inside.observers(running)
            assert len(observers.returned) == expected


def widen(x: Any) -> Any:
    return x * np.float64(2)


def widen_within(x: Any) -> Any:
    return (x.astype(jnp.float64) / 3).astype(jnp.float32)


def keep(x: Any) -> Any:
    return jnp.sin(x) * 2.5 + x**x


def corrected(x: Any) -> Any:
    return x / (1 - 0.9 ** x[0].astype(jnp.int32)).astype(jnp.float32)


@pytest.mark.usefixtures("x64")
def test_promotions_to_float64_are_counted(agent: Agent) -> None:
    """
    A program with an array of float64 in it and in no argument counts, also where no
    output shows it; one that was given float64, or has none but scalars, as an
    optimizer does that corrects its bias, does not.
    """
    x = jnp.ones(3, jnp.float32)
    for function in (widen, widen_within, keep, corrected):
        jax.jit(function)(x)
    jax.jit(keep)(x.astype(jnp.float64))
    inside.programs(agent).finish(30)

    counted = {
        function: value(
            agent, "jaxmon_float64_promotions_total", function=name_of(function)
        )
        for function in (widen, widen_within, keep, corrected)
    }
    assert counted == {widen: 1, widen_within: 1, keep: 0, corrected: 0}
    programs = inside.programs(agent).snapshot()
    for function in (widen, widen_within):
        at = f"test_numerics.py:{inspect.getsourcelines(function)[1] + 1}"
        assert programs[name_of(function)].promoted_at.endswith(at)
    assert programs[name_of(keep)].promoted_at == ""


def forget(params: Any, x: Any) -> Any:
    slopes = jax.grad(lambda of: ((x @ of["w"] + of["b"]) ** 2).sum())(params)
    jax.tree.map(lambda of, slope: of - 0.1 * slope, params, slopes)
    return x.sum()


def test_updates_that_jax_leaves_out_of_a_program_are_found(agent: Agent) -> None:
    """
    JAX compiles nothing of what is not returned; what it traced is known. Nothing is
    concluded where a JAX does not mark what it computes for a gradient.
    """
    given = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}, jnp.ones((4, 3))
    equations = jax.jit(forget).trace(*given).jaxpr.jaxpr.eqns
    is_marked = any("transpose(" in str(of.source_info.name_stack) for of in equations)
    assert is_marked or jax.__version_info__ < (0, 8)
    jax.jit(forget)(*given)
    inside.programs(agent).finish(30)

    unused = inside.programs(agent).snapshot()[name_of(forget)].unused
    outputs = None if unused is None else unused.outputs
    assert outputs == (("params['b']", "params['w']") if is_marked else None)


DRIFT = """
import json, jax, jax.numpy as jnp, jaxmon, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from tests.helpers import inside
from tests.helpers.agents import instrumented
from tests.helpers.processes import until
try:
    from jax import shard_map
    unchecked = {"check_vma": False}
except ImportError:  # before 0.6
    from jax.experimental.shard_map import shard_map
    unchecked = {"check_rep": False}

mesh = jax.make_mesh((2,), ("data",))

def make(combine):
    def step(w, x):
        return w - combine(jnp.mean(x, 0)), jax.lax.pmean(jnp.sum(x), "data")
    step.__qualname__ = combine.__name__
    specs = P(), P("data")
    return jax.jit(shard_map(
        step, mesh=mesh, in_specs=specs, out_specs=(P(), P()), **unchecked
    ))

def forgotten(gradients):
    return gradients

def averaged(gradients):
    return jax.lax.pmean(gradients, "data")

x = jax.device_put(jnp.arange(32.0).reshape(8, 4), NamedSharding(mesh, P("data")))
with instrumented(sample_rate=0.001) as agent:
    found = {}
    for step in map(make, (forgotten, averaged)):
        w = jax.device_put(jnp.zeros(4), NamedSharding(mesh, P()))
        def is_read():
            global w
            inside.sampling(agent).arm()
            w, _ = step(w, x)
            found.update(inside.numerics(agent).snapshot())
            return any(f.values >= 20 and n not in done for n, f in found.items())
        done = set(found)
        until(is_read, "samples")
print(json.dumps({
    name.rpartition(".")[2]: [(of.name, of.state) for of in read.outputs]
    for name, read in found.items()
}))
"""


def test_copies_on_two_devices_that_differ_are_found() -> None:
    """Of what a program says is replicated: each device has updated its own."""
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    found = run_preloaded("-c", DRIFT, env=devices, cwd=ROOT).json()

    assert found == {"forgotten": [["[0]", "differs"]], "averaged": []}


NORM = """
import jax, jax.numpy as jnp
def distance(a, b):
    return jnp.linalg.norm(a - b) + 0 * jnp.var(a)
step = jax.jit(jax.value_and_grad(distance))
{block}
    for number in range(4):
        step(jnp.ones(3) + 2, jnp.full(3, float(number)))
"""


def test_the_advice_on_nan_finds_the_operation(tmp_path: Path) -> None:
    """Of a gradient that is NaN, the line of what it is the gradient of."""
    (advised,) = re.findall(r"`(with .*:)`", ERRORS["nan"])
    program = tmp_path / "norm.py"
    program.write_text(NORM.format(block=advised))

    assert 'norm.py", line 4, in distance' in run_preloaded(str(program)).err
