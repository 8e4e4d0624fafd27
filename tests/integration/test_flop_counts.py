"""FLOPs counted in programs equal those worked out by hand."""

import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxmon.agent.jaxlink import executables, flops
from jaxmon.agent.jaxlink.executables import accessed_bytes
from jaxmon.agent.jaxlink.flops import Flops
from jaxmon.agent.jaxlink.products import _overlaps
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from tests.helpers import flops as products
from tests.helpers.flops import (
    CONVOLVED,
    LAYER,
    LAYERS,
    PERCEPTRON,
    PRODUCT,
    STEP,
    WIDTH,
    WORDS,
    branches,
    convolution,
    counted_while,
    factored,
    jitted_twice,
    layer,
    looped,
    mapped,
    nested,
    ones,
    outside,
    product,
    ragged,
    slopes_of_convolution,
    step,
    times_to,
    tokens,
    until_large,
    weights_of,
    with_rules,
)
from tests.helpers.processes import each


pytestmark = pytest.mark.ground_truth


def count(fun: Callable[..., Any], *args: Any) -> Flops:
    """Return the FLOPs of the jaxpr of *fun*, called with *args*."""
    return flops.count(jax, jax.make_jaxpr(fun)(*args).jaxpr, SourceLineFinder(jax))


def total(found: Flops) -> float:
    """Return all that is counted; nothing may be unknown."""
    assert found.unknown is None
    return sum(found.amounts.values())


@pytest.mark.parametrize("scanned", [False, True], ids=["list", "scan"])
@pytest.mark.parametrize("again", [False, True], ids=["kept", "remat"])
def test_a_training_step_of_a_transformer(*, scanned: bool, again: bool) -> None:
    """
    Forward and backward are three times the forward pass; a checkpoint computes the
    layers once more, but for what nothing needs, and that is no part of the model.
    """
    body = jax.checkpoint(layer) if again else layer
    layers = weights_of(LAYERS) if scanned else [weights_of() for _ in range(LAYERS)]
    found = count(partial(step, body), ones(WORDS, WIDTH), layers, tokens())

    model = sum(n for (_, more), n in found.amounts.items() if not more)
    assert total(found) - model == (LAYERS * (LAYER - PERCEPTRON // 2) if again else 0)
    assert model == STEP
    assert found.loops == scanned


@each(
    {
        "product": (PRODUCT, product),
        "einsum": (2 * 3 * 4 * 6 * 6, mapped, (3, 4, 6)),
        "jit in jit": (2 * PRODUCT, jitted_twice),
        "own gradient": (2 * PRODUCT, with_rules),
        "fori_loop": (7 * PRODUCT, partial(looped, 7)),
        "loop in scan": (35 * PRODUCT, nested),
        "while, less": (4 * PRODUCT, partial(counted_while, 0, 3, lambda i: i < 10)),
        "while, at least": (
            10 * PRODUCT,
            partial(counted_while, 9, -1, lambda i: i >= 0),
        ),
        "while, never": (0, partial(counted_while, 9, 1, lambda i: i < 9)),
        "equal branches": (PRODUCT, partial(branches, other=lambda x: -product(x))),
        "complex": (4 * 2 * 4**3, lambda x: (1j * x) @ (1j * x), (4, 4)),
        "ragged": (2 * 4 * 6 * 5, ragged, (4, 6), (2, 6, 5)),
        "convolution": (CONVOLVED, convolution, (2, 3, 9, 9), (5, 3, 3, 3)),
        "with its gradients": (
            3 * CONVOLVED,
            slopes_of_convolution,
            (2, 3, 9, 9),
            (5, 3, 3, 3),
        ),
        "depthwise": (
            CONVOLVED // 5,
            partial(convolution, feature_group_count=3),
            (2, 3, 9, 9),
            (3, 1, 3, 3),
        ),
        # At the edges, parts of the kernel meet no input.
        "padded": (
            2 * (2 + 3 + 2) ** 2,
            partial(convolution, padding="SAME"),
            (1, 1, 3, 3),
            (1, 1, 3, 3),
        ),
    }
)
def test_products(wanted, fun, *shapes):
    """Each operation, each loop of a known length, and what calls them."""
    assert total(count(fun, *(ones(*of) for of in shapes or [(4, 6)]))) == wanted


def test_a_window_meets_the_input_where_it_does() -> None:
    """The overlaps along a dimension, against looking at each pair."""
    chance = random.Random(1)  # noqa: S311 - cases of a test
    for _ in range(2_000):
        size, kernel, output = (chance.randint(1, 9) for _ in range(3))
        stride, spread, dilation = (chance.randint(1, 4) for _ in range(3))
        before = chance.randint(-3, 5)
        places = [
            i * stride + j * dilation - before
            for i in range(output)
            for j in range(kernel)
        ]
        wanted = sum(
            0 <= place <= (size - 1) * spread and place % spread == 0
            for place in places
        )
        found = _overlaps(
            *(size, kernel, output),
            stride=stride,
            before=before,
            spread=spread,
            dilation=dilation,
        )
        assert found == wanted


@each(
    {
        "until a value": ("loop", "while", until_large, (4, 6)),
        "until an argument": ("loop", "while", times_to, (4, 6), ()),
        "branches": ("branch", "cond", partial(branches, other=lambda x: x), (4, 6)),
        "another library": ("library", "ffi_call", outside, (4, 6)),
        "a decomposition": ("library", "cholesky", factored, (4, 4)),
    }
)
def test_what_is_unknown(reason, what, fun, *shapes):
    """Nothing is guessed: the operation and its line are said."""
    args = [ones(*shape, dtype="float32" if shape else "int32") for shape in shapes]
    counted = count(fun, *args)
    found = counted.unknown

    assert found is not None
    assert counted.open_loop == (found.where if reason == "loop" else "")
    assert (found.reason, found.what) == (reason, what)
    if what != "cholesky":  # jitted by JAX
        place, _, line = found.where.rpartition(":")
        assert place.endswith("flops.py")
        with Path(products.__file__).open() as file:
            source = file.readlines()[int(line) - 1]
        assert re.search("while_loop|fori_loop|cond|ffi_call", source)


def drawing(key: Any, x: Any) -> Any:
    one, two = jax.random.split(key)
    x = x * jax.random.bernoulli(one, 0.5, x.shape) + jax.random.gamma(two, x)
    x = jnp.sort(x) + jax.lax.top_k(x, 6)[0] + jnp.cumsum(x, 0) + jnp.fft.fft(x).real
    x = jax.lax.optimization_barrier(x) + jax.nn.one_hot(jnp.argmax(x, 1), 6)
    jax.debug.print("{}", x[0, 0])
    return x.at[0].set(3).sum() + jnp.median(x) + jax.random.categorical(one, x).sum()


def test_other_operations_need_no_products() -> None:
    """Random numbers, sorting, transforms and indices are known to have none."""
    assert total(count(drawing, jax.random.key(0), ones(4, 6))) == 0


def multiply(a: Any, b: Any, **options: Any) -> Any:
    return jax.lax.dot(a, b, **options)


@each(
    {
        "bfloat16": ("bfloat16", "bfloat16", {}),
        "float16": ("float16", "float16", {}),
        "float8_e4m3fn": (
            "float8",
            "float8_e4m3fn",
            {"preferred_element_type": "float32"},
        ),
        "int8": ("int8", "int8", {"preferred_element_type": "int32"}),
        "complex64": ("float32", "complex64", {}),
        "float32": ("float32", "float32", {}),
        "high": ("float32/high", "float32", {"precision": "high"}),
        "highest": ("float32/highest", "float32", {"precision": "highest"}),
    }
)
def test_formats(wanted: str, dtype: str, options: dict[str, Any]) -> None:
    """The format of the operands decides what a device could do."""
    x = jnp.ones((4, 4), dtype)
    assert list(count(partial(multiply, **options), x, x).amounts) == [(wanted, False)]


@pytest.mark.parametrize("partly", [False, True])
def test_each_shard_counts(preloaded_script: Any, *, partly: bool) -> None:
    """Each device multiplies its part; an unknown layout is said."""
    script = f"""
import functools
import json

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxmon.agent.jaxlink import flops
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder

try:
    shard_map = functools.partial(jax.shard_map, axis_names={{"a"}})
except AttributeError:
    from jax.experimental.shard_map import shard_map as old

    shard_map = functools.partial(old, auto=frozenset("b"))
if not {partly}:
    shard_map = shard_map.func
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
spec = PartitionSpec("a")
fun = shard_map(lambda x: x @ x.T, mesh=mesh, in_specs=spec, out_specs=spec)
jaxpr = jax.make_jaxpr(jax.jit(fun))(np.ones((8, 6), np.float32)).jaxpr
count = lambda: flops.count(jax, jaxpr, SourceLineFinder(jax))
known = sum(count().amounts.values())
(inside,) = [
    one for one in jaxpr.eqns[0].params["jaxpr"].eqns
    if one.primitive.name == "shard_map"
]
for name in list(inside.params):
    if "axes" in name or name == "auto":
        inside.params["future_" + name] = inside.params.pop(name)
print(json.dumps([known, count().unknown.reason]))
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    known, reason = preloaded_script(script, env=flags).json()

    # Two shards of four rows each, and all of it on four devices unless XLA divides it.
    assert known == 2 * (2 * 4 * 6 * 4) * (1 if partly else 4)
    assert reason == "layout"


def kernel(x: Any, *, skips: bool = False, **options: Any) -> Any:
    """Multiply in a kernel, four rows at a time, the first four perhaps not at all."""
    from jax.experimental import pallas as pl

    def body(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.zeros_like(out)

        def work() -> None:
            out[...] = jnp.dot(x[...], y[...])

        if skips:
            pl.when(pl.program_id(0) > 0)(work)
        else:
            work()

    rows = pl.BlockSpec((4, 6), lambda i: (i, 0))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // 4,),
        in_specs=[rows, pl.BlockSpec((6, 6), lambda _: (0, 0))],
        out_specs=rows,
        interpret=True,
        **options,
    )(x, ones(6, 6))


def test_kernels() -> None:
    """A kernel counts once for each step of its grid, or as its author says."""
    from jax.experimental import pallas as pl

    said = pl.CostEstimate(flops=70, transcendentals=0, bytes_accessed=0)
    x = ones(12, 6)

    assert total(count(kernel, x)) == 3 * PRODUCT
    found = count(partial(kernel, skips=True), x).unknown
    assert found is not None
    assert found.reason == "kernel"
    assert total(count(partial(kernel, skips=True, cost_estimate=said), x)) == 70


@pytest.mark.optimised
def test_bytes_of_loops() -> None:
    """A scan accesses about as much as its layers in a row; an open loop is unknown."""

    def compiled(fun: Callable[..., Any], *args: Any) -> Any:
        return jax.jit(fun).lower(*args).compile().runtime_executable()

    def bytes_of(fun: Callable[..., Any], *args: Any) -> float:
        found = accessed_bytes(jax, compiled(fun, *args))
        assert found is not None
        return found

    def scanned(x: Any, layers: Any) -> Any:
        return jax.lax.scan(lambda x, one: (jnp.tanh(x @ one), None), x, layers)[0]

    def twice(x: Any, layers: Any) -> Any:
        return jax.lax.fori_loop(0, 2, lambda _, x: scanned(x, layers), x)

    def in_a_row(x: Any, layers: Any) -> Any:
        for one in layers:
            x = jnp.tanh(x @ one)
        return x

    number = 4
    x, layers = ones(128, 128), ones(number, 128, 128)
    row = bytes_of(in_a_row, x, list(layers))
    plain = executables.facts(compiled(in_a_row, x, list(layers)))
    assert row == plain["accessed_bytes"]
    # A layer of a scan is copied out of their array first.
    size = 4 * 128 * 128
    once = bytes_of(scanned, x, layers)
    assert row <= once <= row + number * 3 * size
    assert 2 * row <= bytes_of(twice, x, layers) < 3 * once
    assert accessed_bytes(jax, compiled(until_large, ones(6, 6))) is None


LOADING = """
import json, sys
import jax, numpy as np
import jaxmon

built = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: built.append(name.endswith("backend_compile_duration"))
)
agent = jaxmon.instrument(port=None, socket=False) if "agent" in sys.argv else None

@jax.jit
def step(w, x):
    return w - jax.grad(lambda w: jax.numpy.mean((x @ w) ** 2))(w)

w = np.ones((4, 4), np.float32)
for rows in (2, 3, 2, 3):
    w = step(w, np.ones((rows, 4), np.float32))
counted = sum(
    family.metric.name == "jaxmon_program_matrix_flops" and len(family.samples)
    for family in (agent.collect() if agent else ())
)
jaxs = [name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib")]
print(json.dumps([counted, sum(built), sorted(jaxs)]))
"""


def test_counting_loads_nothing_of_jax(preloaded_script):
    """The program has the modules and compiles that it has without jaxmon."""
    counted, *beside = preloaded_script(LOADING, "agent").json()

    assert counted > 0
    assert beside == preloaded_script(LOADING).json()[1:]
    assert beside[0] == 2
