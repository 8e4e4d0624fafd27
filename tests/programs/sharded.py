"""Functions on one device and on all of them; prints their FLOPs as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.compiles.programs import Programs


agent = jaxmon.instrument(port=None, socket=False, peak_flops=1e9)
mesh = Mesh(np.array(jax.devices()), ("rows",))


@jax.jit
def spread(x, w):
    return x @ w


@jax.jit
def alone(x):
    return x @ x


x = jax.device_put(jnp.ones((64, 32)), NamedSharding(mesh, P("rows")))
w = jax.device_put(jnp.ones((32, 16)), NamedSharding(mesh, P()))
for _ in range(4):
    spread(x, w)
    alone(jnp.ones((16, 16)))
runtime = runtime_of(agent)
assert runtime is not None
programs = runtime.part(Programs)
assert programs is not None
programs.finish(60)
found = {n: v for family in agent.collect() for n, v in family.samples}
print(json.dumps({n: v for n, v in found.items() if "flops" in n or "ideal" in n}))
