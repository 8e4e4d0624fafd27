"""Heat equation on two devices with shard_map and halo exchange by ppermute, many steps per call; structure as in the shard_map tutorial of the JAX documentation."""
import time
T0 = time.perf_counter()
import json
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

ROWS, COLS, INNER, CHUNKS = 512, 512, 100, 20
mesh = jax.make_mesh((2,), ("rows",))


def smooth(u):
    """The local half of the plate; the ends of the rod are kept at zero."""
    up, down = [(0, 1)], [(1, 0)]

    def step(_, u):
        above = jax.lax.ppermute(u[-1:], "rows", up)
        below = jax.lax.ppermute(u[:1], "rows", down)
        tall = jnp.concatenate([above, u, below])
        wide = jnp.pad(u, ((0, 0), (1, 1)))
        return u + 0.2 * (tall[2:] + tall[:-2] + wide[:, 2:] + wide[:, :-2] - 4 * u)

    u = jax.lax.fori_loop(0, INNER, step, u)
    return u, jax.lax.psum(u.sum(), "rows")


advance = jax.jit(jax.shard_map(smooth, mesh=mesh, in_specs=P("rows"), out_specs=(P("rows"), P())), donate_argnums=0)


def main():
    start = np.random.default_rng(0).random((ROWS, COLS)).astype(np.float32)
    u = jax.device_put(start, NamedSharding(mesh, P("rows")))
    heats = []
    for _ in range(CHUNKS):
        u, heat = advance(u)
        heats.append(heat)
    heats = jax.device_get(heats)
    print("heat", float(heats[0]), "->", float(heats[-1]))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))


main()
