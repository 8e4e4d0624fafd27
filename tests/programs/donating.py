"""
A sharded training step on four devices that donates its state, with and without
re-runs. Prints what it saw as JSON.
"""

import ctypes
import json
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxmon
from jaxmon.agent.checks import shadow
from jaxmon.agent.checks.shadow import KeptOutputs
from jaxmon.agent.context import Sample
from jaxmon.agent.jaxlink.arrays import copied_on_devices
from jaxmon.agent.sampling import part as sampling_part
from jaxmon.facts.record import encoded
from tests.helpers import inside
from tests.helpers.agents import SILENT, samples, value
from tests.helpers.processes import until


mesh = Mesh(np.array(jax.devices()), ("x",))
WHOLE = NamedSharding(mesh, PartitionSpec())
ROWS = NamedSharding(mesh, PartitionSpec("x"))
# Reading outputs for NaN creates arrays, too.
ALONE = {**SILENT, "sample_rate": 0.001, "nonfinite": False}
COUNTS = ("jit_calls", "jit_cache_misses", "compiles", "host_transfers")


def adam(state: Any, batch: Any) -> Any:
    """Return the next state, and the loss; noise comes from a key in the state."""

    def loss_of(params: Any) -> Any:
        return jnp.mean((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2)

    key, noise = jax.random.split(state["key"])
    loss, gradient = jax.value_and_grad(loss_of)(state["params"])
    count = state["count"] + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["first"], gradient)
    second = jax.tree.map(
        lambda v, g: 0.999 * v + 0.001 * g * g, state["second"], gradient
    )
    params = jax.tree.map(
        lambda p, m, v: (
            p
            - 0.01 * m / (jnp.sqrt(v) + 1e-8)
            + 1e-6 * jax.random.normal(noise, p.shape)
        ),
        state["params"],
        first,
        second,
    )
    found = {"params": params, "first": first, "second": second}
    return {**found, "count": count, "key": key}, {"loss": loss}


def fresh() -> Any:
    params = {
        "w": jax.device_put(np.ones((16, 4), np.float32), ROWS),
        "b": jax.device_put(np.zeros(4, np.float32), WHOLE),
    }
    return {
        "params": params,
        "first": jax.tree.map(jnp.zeros_like, params),
        "second": jax.tree.map(jnp.zeros_like, params),
        "count": jax.device_put(np.int32(0), WHOLE),
        "key": jax.device_put(jax.random.key(0), WHOLE),
    }


def plain(state: Any) -> list[str]:
    """Return all bits of a state."""
    data = {**state, "key": jax.random.key_data(state["key"])}
    return [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves(data)]


def flip(array: Any, device: int) -> None:
    """Flip one bit of what *device* holds of *array*."""
    array.block_until_ready()
    [shard] = [s for s in array.addressable_shards if s.device.id == device]
    place = ctypes.c_uint8.from_address(shard.data.unsafe_buffer_pointer())
    place.value ^= 1 << 6


@contextmanager
def replaced(module: Any, **names: Any) -> Iterator[None]:
    """Replace names in *module* while the block runs."""
    known = {name: getattr(module, name) for name in names}
    for name, found in names.items():
        setattr(module, name, found)
    yield
    for name, found in known.items():
        setattr(module, name, found)


# Libraries import debuggers. Whether one runs is not known shortly before garbage is
# collected; then nothing is sampled until the next time, which does not come here.
sampling_part.is_debugged = lambda: False  # type: ignore[attr-defined]


class Run:
    """Steps of one training under an agent."""

    def __init__(self, agent: Any, step: Any) -> None:
        self.agent = agent
        self.step = step
        self.state = fresh()
        self.gone = True
        self.shadow: Any = inside.determinism(agent)._shadow
        rng = np.random.default_rng(0)
        self.batch = {
            "x": jax.device_put(rng.normal(size=(8, 16)).astype(np.float32), ROWS),
            "y": jax.device_put(rng.normal(size=(8, 4)).astype(np.float32), ROWS),
        }

    def go(self, steps: int) -> None:
        for _ in range(steps):
            before = jax.tree.leaves(self.state)
            self.state, _ = self.step(self.state, self.batch)
            self.gone &= all(leaf.is_deleted() for leaf in before)

    def sample(self) -> None:
        """Make five steps, of which the first is sampled and the second re-run."""
        self.arm()
        self.go(5)
        jax.block_until_ready(self.state["count"])
        if self.shadow is not None:
            until(lambda: not self.shadow._turns.busy, "the comparison")

    def arm(self) -> None:
        """Have the next step sampled."""
        if self.shadow is not None:
            self.shadow._turns.due = 0
        sampling = inside.sampling(self.agent)
        # Whatever the samples before have cost.
        sampling._spent_before = sampling.spent
        sampling._saved = 1.0
        sampling.arm()

    def of_one(self, step: Any, *args: Any) -> Any:
        """Return what is said of *step* after two sampled calls."""
        function = inside.table(self.agent).of(step.__wrapped__)
        outputs = step(*args)
        for _ in range(2):
            self.shadow._turns.due = 0
            self.shadow.take(Sample(function, step._jitted, args, {}, outputs))
            until(lambda: not self.shadow._turns.busy, "the comparison")
        return encoded(inside.determinism(self.agent).snapshot())[function.name]

    def snapshot(self) -> Any:
        found = encoded(inside.determinism(self.agent).snapshot())
        return next(iter(found.values()), {})


def training(**settings: Any) -> dict[str, Any]:
    """Train with and without re-runs, and return what differs, if anything."""
    agent = jaxmon.instrument(**ALONE, **settings)
    run = Run(agent, jax.jit(adam, donate_argnums=0))
    run.go(3)
    arrays = len(jax.live_arrays())
    before = [value(agent, f"jaxmon_{name}_total") for name in COUNTS]
    for _ in range(4):
        run.sample()
    after = [value(agent, f"jaxmon_{name}_total") for name in COUNTS]
    found = {
        "counts": [b - a for a, b in zip(before, after, strict=True)],
        "arrays": len(jax.live_arrays()) - arrays,
        "deleted": run.gone,
        "bits": plain(run.state),
        "checks": run.snapshot(),
        "errors": value(agent, "jaxmon_internal_errors_total"),
    }
    jaxmon.uninstrument()
    return found


def missed(run: Run) -> dict[str, Any]:
    """Return what is said if the next call is given another state, or does not come."""
    run.arm()
    run.go(1)
    run.state = jax.tree.map(lambda leaf: leaf.copy(), run.state)
    # Any timing is over then as well.
    run.go(5)
    another = run.snapshot()["not_repeated"]
    run.arm()
    arrays = len(jax.live_arrays())
    run.go(1)
    kept = len(jax.live_arrays()) - arrays
    run.shadow.expire()
    run.shadow._kept[0].since -= 61
    run.shadow.expire()
    left = len(jax.live_arrays()) - arrays
    late = run.snapshot()["not_repeated"], kept - left
    return {"another": another, "late": late}


def faults() -> dict[str, Any]:
    """Return what is seen of faults on device 2, and of what is refused."""
    found: dict[str, Any] = {}
    agent = jaxmon.instrument(**ALONE, shadow_interval=0.1)
    run = Run(agent, jax.jit(adam, donate_argnums=0))
    run.go(3)
    run.sample()

    # Device 2 is nearly full.
    class Full:
        def __init__(self, device: Any) -> None:
            self._used = 900_000 if device.id == 2 else 0

        def memory_stats(self) -> Any:
            return {"bytes_limit": 1 << 20, "bytes_in_use": self._used}

    copied: list[int] = []

    def keep(*args: Any) -> Any:
        copied.append(1)
        return KeptOutputs(*args)

    known_room = shadow.has_room

    def has_room(needed: Any) -> bool:
        return known_room(Counter({Full(d): n for d, n in needed.items()}))

    with replaced(shadow, KeptOutputs=keep, has_room=has_room):
        run.sample()
    found["full"] = run.snapshot(), len(copied)

    # A bit flips in what one of the runs returned on device 2.
    def flipping(jax_: Any, arrays: Any) -> Any:
        made = copied_on_devices(jax_, arrays)
        callers = traceback.extract_stack(limit=3)
        if {"__init__", "arguments"} & {caller.name for caller in callers}:
            return made  # what goes into both runs
        flip(next(one for one in made if one.shape == (16, 4)), 2)
        return made

    with replaced(shadow, copied_on_devices=flipping):
        run.sample()
    found["transient"] = run.snapshot()
    found["event"] = inside.events(agent).since(kind="determinism")[-1].message
    found["series"] = {
        name: number
        for name, number in samples(agent).items()
        if name.startswith("jaxmon_device_deviations")
    }

    # A bit of a replicated parameter flips in the memory of device 2.
    flip(run.state["params"]["b"], 2)
    run.sample()
    found["replica"] = inside.events(agent).since(kind="determinism")[-1].message
    found["seen"] = run.snapshot()

    found.update(missed(run))

    def spread(x: Any) -> Any:
        return x.sum(), x * 2

    def calling(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), np.float32)
        return x + jax.pure_callback(lambda: np.float32(1), shape)

    rows = run.batch["x"]
    found["spread"] = run.of_one(jax.jit(spread), rows)
    donated = jax.device_put(np.zeros(4, np.float32), ROWS)
    found["calling"] = run.of_one(jax.jit(calling, donate_argnums=0), donated)
    found["errors"] = value(agent, "jaxmon_internal_errors_total")
    jaxmon.uninstrument()
    return found


if __name__ == "__main__":
    results = {
        "without": training(),
        "with": training(shadow_interval=0.1),
        "faults": faults(),
    }
    print(json.dumps(results))
