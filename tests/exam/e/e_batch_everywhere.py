"""Evaluation of a transformer-like encoder on four devices with jit and a mesh. "Four devices are as slow as one: no speed-up at all."

Truth: the batches are put onto the mesh with the parameters' replicated sharding (P()), so each device has the whole batch and does the whole work; nothing is divided.
Advice: shard the batch over the data axis: device_put(batch, NamedSharding(mesh, P("data"))).
"""
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

FIXED = "--fixed" in sys.argv
WORDS = (r"replicat|whole batch|full batch|same work|every device|each device|all (\d+ |four )?devices|not (shard|split|divid|partition)|unshard|redundant", r"batch|shard|input|argument|split|data|device")
mesh = Mesh(np.array(jax.devices()), ("data",))
everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
D, SEQ, BATCH, LAYERS, STEPS = 128, 64, 64, 3, 50


def init(key):
    def layer(k):
        a, b, c, d = jax.random.split(k, 4)
        n = jax.random.normal
        return {"qkv": n(a, (D, 3 * D)) * 0.05, "o": n(b, (D, D)) * 0.05, "up": n(c, (D, 4 * D)) * 0.05, "down": n(d, (4 * D, D)) * 0.05}
    return {"layers": [layer(k) for k in jax.random.split(key, LAYERS)], "emb": jax.random.normal(key, (1000, D)) * 0.05}


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


@jax.jit
def evaluate(params, tokens):
    x = params["emb"][tokens]
    for p in params["layers"]:
        q, k, v = jnp.split(norm(x) @ p["qkv"], 3, -1)
        x = x + jax.nn.softmax(jnp.einsum("btd,bsd->bts", q, k) / D ** 0.5, -1) @ v @ p["o"]
        x = x + jax.nn.relu(norm(x) @ p["up"]) @ p["down"]
    logp = jax.nn.log_softmax(norm(x[:, :-1]) @ params["emb"].T, -1)
    return -jnp.take_along_axis(logp, tokens[:, 1:, None], -1).mean((1, 2))       # one number a sequence


params = jax.device_put(init(jax.random.key(0)), everywhere)
rng = np.random.default_rng(0)
data = rng.integers(0, 1000, (STEPS, BATCH, SEQ)).astype(np.int32)
place = split if FIXED else everywhere  # fault
evaluate(params, jax.device_put(data[0], place)).block_until_ready()
nll = []
t = time.perf_counter()
for i in range(STEPS):
    tokens = jax.device_put(data[i], place)  # fault
    nll.append(evaluate(params, tokens))  # fault
print("perplexity", float(np.exp(np.mean(jax.device_get(nll)))))
spent = time.perf_counter() - t
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else spent * 0.75}))
