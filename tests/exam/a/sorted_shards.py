"""A chemistry integrator is spread over four devices, but is hardly faster than on one; all devices are waiting most of the time according to the profile.

Truth: the cells are sorted by stiffness, so the last shard holds all the cells that need many substeps; its while loop runs many times longer than the others', and they wait for it at the end of each step.
Advice: interleave or shuffle the cells over the devices so that every shard has the same share of stiff cells (balance the work).
"""
import time
T0 = time.perf_counter()
import json
import os
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

FIXED = "--fixed" in sys.argv
WORDS = (r"device|shard", r"uneven|imbalanc|unbalanc|balance|skew|straggl|slowest|idle|differ|longer|one of")
CELLS, SPECIES, STEPS, GROUP = 2048, 32, 100, 8

mesh = jax.make_mesh((4,), ("cells",), axis_types=(jax.sharding.AxisType.Auto,))
sharded = NamedSharding(mesh, P("cells"))


def react(y, rate, coupling):
    """Explicit substeps for one group of cells; stiff groups need more of them."""
    substeps = jnp.ceil(jnp.max(rate) * 100.0).astype(jnp.int32)
    dt = 0.2 / substeps

    def body(_, y):
        return y + dt * rate[:, None] * (jnp.tanh(y @ coupling) - y)

    return jax.lax.fori_loop(0, substeps, body, y), substeps


def shard_step(y, rate, coupling):
    groups = (y.reshape(-1, GROUP, SPECIES), rate.reshape(-1, GROUP))
    y, substeps = jax.lax.map(lambda g: react(g[0], g[1], coupling), groups)
    return y.reshape(-1, SPECIES), substeps.sum()[None]


step = jax.jit(jax.shard_map(shard_step, mesh=mesh, in_specs=(P("cells"), P("cells"), P()), out_specs=(P("cells"), P("cells"))))

rng = np.random.default_rng(0)
rates = np.sort(np.exp(rng.normal(0.0, 1.3, CELLS))).astype(np.float32)  # fault
if FIXED:
    groups = rates.reshape(-1, GROUP)
    rates = np.concatenate([groups[device::4] for device in range(4)]).reshape(-1)
y = jax.device_put(rng.standard_normal((CELLS, SPECIES)).astype(np.float32), sharded)
rate = jax.device_put(rates, sharded)  # fault
coupling = jax.device_put((rng.standard_normal((SPECIES, SPECIES)) / 5).astype(np.float32), NamedSharding(mesh, P()))
y, work = step(y, rate, coupling)
y.block_until_ready()
t = time.perf_counter()
for _ in range(STEPS):
    y, work = step(y, rate, coupling)  # fault
    y.block_until_ready()
stepping = time.perf_counter() - t
share = np.asarray(work) / np.asarray(work).sum()
cores = min(4, len(os.sched_getaffinity(0)))
lost = stepping * max(0.0, 1 - 1 / cores / share.max())
print("share of the substeps per device:", np.round(share, 3), f"{1e3 * stepping / STEPS:.0f} ms per step")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(lost, 3)}))
