"""Live arrays by device and dtype, whatever kind of array there is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon import catalog
from jaxmon.agent.context import context_of
from jaxmon.agent.ledger import snapshot_arrays
from jaxmon.agent.memory.part import MemoryPart
from jaxmon.facts.record import encoded
from jaxmon.settings import Settings
from tests.helpers import inside
from tests.helpers.agents import instrumented, value
from tests.helpers.preloaded import run_preloaded


KINDS = """
import gc, json
import jax, jax.numpy as jnp, numpy as np, jaxmon
from jax.sharding import Mesh, NamedSharding, PartitionSpec
agent = jaxmon.instrument(port=0, socket=False, memory_interval=0)
mesh = Mesh(np.array(jax.devices()), ("x",))
rows, everywhere = (NamedSharding(mesh, PartitionSpec(*at)) for at in (("x",), ()))
jax.block_until_ready(jnp.zeros(()))

def look():
    gc.collect()
    agent.refresh()
    found = {}
    for family in agent.collect():
        if family.metric.name.startswith("jaxmon_live_array"):
            for series, number in family.samples:
                _, device, _, dtype, _ = series.split('"')
                found.setdefault(f"{dtype} {device}", []).append(number)
    return {name: figures for name, figures in found.items() if figures != [0, 0]}

def truth():
    # Bytes on each device, each pointer once.
    live = jax.live_arrays()
    shards = [one.data for array in live for one in array.addressable_shards]
    sizes = {
        (one.device.id, one.unsafe_buffer_pointer()): one.nbytes
        for one in shards if one.nbytes
    }
    found = dict.fromkeys(range(4), 0)
    for (device, _), size in sizes.items():
        found[device] += size
    return found

def made(make):
    before = look()
    kept = make()
    jax.block_until_ready(kept)
    after = look()
    totals = dict.fromkeys(range(4), 0)
    for name, (_, size) in after.items():
        totals[int(name[-1])] += size
    assert totals == truth(), (totals, truth())
    if isinstance(kept, jax.Array):
        kept.delete()
    deleted = look()
    return [
        {
            name: [
                a - b
                for a, b in zip(now.get(name, [0, 0]), before.get(name, [0, 0]))
            ]
            for name in {**before, **now}
            if now.get(name) != before.get(name)
        }
        for now in (after, deleted)
    ]

def captured():
    weights = jax.device_put(np.ones(1000, np.int16))
    add = jax.jit(lambda one: one + weights)
    add(np.int16(1))
    return add, weights

def shards():
    array = jax.device_put(host.astype(np.int32), rows)
    return array, [one.data for one in array.addressable_shards]

host = np.ones((8, 3), np.float32)
print(json.dumps({
    "plain": made(lambda: jax.device_put(np.ones((5, 2), np.int8))),
    "bfloat16": made(lambda: jax.device_put(host.astype(jnp.bfloat16))),
    "bool": made(lambda: jax.device_put(np.ones(7, bool))),
    "other device": made(lambda: jax.device_put(host, jax.devices()[3])),
    "rows": made(lambda: jax.device_put(host, rows)),
    "everywhere": made(lambda: jax.device_put(host, everywhere)),
    "key": made(lambda: jax.random.key(3)),
    "empty": made(lambda: jax.device_put(np.ones((0, 4), np.uint16))),
    "many": made(lambda: [jax.device_put(np.float16(at)) for at in range(100)]),
    "captured": made(captured),
    "shards": made(shards),
}))
jaxmon.uninstrument()
"""

EXPECTED: dict[str, dict[str, list[int]]] = {
    "plain": {"int8 0": [1, 10]},
    "bfloat16": {"bfloat16 0": [1, 48]},
    "bool": {"bool 0": [1, 7]},
    "other device": {"float32 3": [1, 96]},
    "rows": {f"float32 {at}": [1, 24] for at in range(4)},
    "everywhere": {f"float32 {at}": [1, 96] for at in range(4)},
    "key": {"uint32 0": [1, 8]},
    "empty": {"uint16 0": [1, 0]},
    "many": {"float16 0": [100, 200]},
    "captured": {"int16 0": [1, 2000]},
    "shards": {f"int32 {at}": [1, 24] for at in range(4)},
}


@pytest.fixture(scope="module")
def kinds() -> Any:
    """Return what each kind of array added, and what was left after its deletion."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    return run_preloaded("-c", KINDS, env=flags).json()


@pytest.mark.ground_truth
@pytest.mark.parametrize("kind", EXPECTED)
def test_each_kind_of_array_counts_where_it_is(kinds: Any, kind: str) -> None:
    """
    By its dtype, with the bytes of its shard on each device; PRNG keys as the numbers
    they are made of; what shares a buffer once.
    """
    added, left = kinds[kind]

    assert added == EXPECTED[kind]
    assert left == (added if kind in {"many", "captured", "shards"} else {})


OFFLOADED = """
import json
import jax, jaxmon, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
agent = jaxmon.instrument(port=0, socket=False, memory_interval=0)
mesh = Mesh(np.array(jax.devices()), ("x",))
kinds = "device", "pinned_host", "unpinned_host"
kept = [
    jax.device_put(
        np.ones((size, 8), np.float16),
        NamedSharding(mesh, PartitionSpec("x"), memory_kind=kind),
    )
    for size, kind in zip((4, 40, 400), kinds)
]
agent.refresh()
print(json.dumps({
    series: number
    for family in agent.collect() for series, number in family.samples
    if "array" in series
}))
jaxmon.uninstrument()
"""


def test_arrays_in_the_hosts_memory_are_told_apart() -> None:
    """They take nothing of the device's, however they are spread over devices."""
    kinds = {one.kind for one in jax.devices()[0].addressable_memories()}
    if len(kinds) == 1:
        pytest.skip("in JAX 0.4, CPUs have one kind of memory")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    found = run_preloaded("-c", OFFLOADED, env=flags).json()

    for device in ("0", "1"):
        here = f'device="{device}"'
        assert found[f'jaxmon_live_arrays{{{here},dtype="float16"}}'] == 1
        assert found[f'jaxmon_live_array_bytes{{{here},dtype="float16"}}'] == 2 * 8 * 2
        assert found[f"jaxmon_offloaded_array_bytes{{{here}}}"] == 220 * 8 * 2


class Lost:
    """A device that does not answer any more."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def memory_stats(self) -> Any:
        msg = "INTERNAL: the device is lost"
        raise jax.errors.JaxRuntimeError(msg)


@pytest.mark.contained
def test_a_lost_device_costs_its_own_figures_only() -> None:
    """
    Its allocator statistics are missing, and counted; arrays are reported as usual.
    """
    kept = jnp.ones(7, jnp.int8)
    fake: Any = Jax(jax.live_arrays())
    fake.local_devices = lambda: [*jax.local_devices(), Lost(jax.local_devices()[0])]
    context = context_of(fake, Settings())
    memory = MemoryPart(context)
    memory.take_snapshot()

    first, lost = encoded(memory.snapshot().devices)
    assert first["dtypes"]["int8"]["bytes"] >= kept.nbytes
    assert "in_use" not in lost
    assert context.guard.failures() == {"memory_stats": 1}


@pytest.mark.contained
def test_a_look_that_fails_leaves_no_figures() -> None:
    """Earlier values are outdated, which would go unnoticed."""
    fake: Any = Jax(jax.live_arrays())
    memory = MemoryPart(context_of(fake, Settings()))
    memory.take_snapshot()
    assert memory.collect()
    fake.live_arrays = None
    with pytest.raises(TypeError):
        memory.take_snapshot()

    assert (memory.collect(), memory.snapshot().devices) == ([], ())


def test_dtypes_that_are_gone_stay_at_zero() -> None:
    """A series that ended would keep its last value in a sum over time."""
    with instrumented() as agent:
        kept = jnp.ones(3, jnp.int16)
        agent.refresh()
        assert value(agent, "jaxmon_live_arrays", device="0", dtype="int16") == 1
        del kept
        agent.refresh()

        assert value(agent, "jaxmon_live_arrays", device="0", dtype="int16") == 0


class Array:
    """An array with a dtype that JAX does not have."""

    shape = (2,)

    def __init__(self, like: Any, name: str) -> None:
        self.sharding = like.sharding
        self.dtype = np.dtype([(name, "f4")])

    def is_deleted(self) -> bool:
        return False

    def on_device_size_in_bytes(self) -> int:
        return 8


class Jax:
    """JAX, with other arrays."""

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays = arrays

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)

    def live_arrays(self) -> list[Any]:
        return list(self.arrays)


def test_dtypes_are_bounded() -> None:
    """However many there are, the label has at most 65 values, and none is lost."""
    like = jnp.ones(2)
    fake: Any = Jax([Array(like, f"field{at}") for at in range(100)])
    memory = MemoryPart(context_of(fake, Settings()))
    memory.take_snapshot()
    counts = {
        series: number
        for family in memory.collect()
        if family.metric.name == "jaxmon_live_arrays"
        for series, number in family.samples
        if 'device="0"' in series
    }

    assert len(counts) == 65
    assert sum(counts.values()) == 100
    assert counts['jaxmon_live_arrays{device="0",dtype="other"}'] == 37


def test_a_snapshot_tells_each_device() -> None:
    """
    Kind, live arrays and dtypes of each device; what a CPU's allocator does not report
    is absent.
    """
    with instrumented() as agent:
        kept = jnp.ones((3, 5), jnp.float16)
        agent.refresh()
        (device, *_) = encoded(inside.memory(agent).snapshot().devices)

        assert device["device"] == "0"
        assert device["kind"] == "cpu"
        assert device["dtypes"]["float16"] == {"arrays": 1, "bytes": kept.nbytes}
        assert device["live_bytes"] >= kept.nbytes
        assert "in_use" not in device


@pytest.mark.ground_truth
def test_packed_arrays_are_as_large_as_they_are_on_the_device() -> None:
    """On the page, in what budgets hold, and in reports of memory that ran out."""
    numbers = jax.device_put(np.ones(4001, jnp.int4))
    size = numbers.on_device_size_in_bytes()
    captured = jax.device_put(np.ones(4003, np.int16))
    jax.jit(lambda one: one + captured)(np.int16(1))
    context = context_of(jax, Settings(memory_interval=0))
    memory = MemoryPart(context)
    memory.take_snapshot()
    found = {
        series.split('"')[3]: number
        for family in memory.collect()
        if family.metric is catalog.LIVE_ARRAY_BYTES
        for series, number in family.samples
    }

    assert found["int4"] == size
    held = snapshot_arrays(jax, context.guard)
    assert held.sizes["int4[4001]"] == size
    assert (held.sizes["int16[4003]"], held.arrays["int16[4003]"]) == (8006, 1)
