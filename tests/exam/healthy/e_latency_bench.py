"""A latency benchmark as in many repositories' benchmarks/ folder: each variant is compiled ahead of time (lower().compile()), warmed up, then timed call by call with
block_until_ready on purpose; then an open-loop load test with a fixed arrival rate (it sleeps until each arrival) and a soft time limit. Nothing is wrong with it."""
import time
T0 = time.perf_counter()
import json
import threading
import queue
import jax
import jax.numpy as jnp
import numpy as np

D, LAYERS = 384, 6
ks = jax.random.split(jax.random.key(0), 3)
params = {"qkv": jax.random.normal(ks[0], (LAYERS, D, 3 * D)) * 0.03, "up": jax.random.normal(ks[1], (LAYERS, D, 2 * D)) * 0.03, "down": jax.random.normal(ks[2], (LAYERS, 2 * D, D)) * 0.03}


def forward(params, x):
    def layer(x, p):
        q, k, v = jnp.split(x @ p["qkv"], 3, -1)
        x = x + jax.nn.softmax(jnp.einsum("btd,bsd->bts", q, k) / D ** 0.5, -1) @ v
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"], None
    return jax.lax.scan(layer, x, params)[0].mean(1)


def half(tree):
    return jax.tree.map(lambda a: a.astype(jnp.bfloat16).astype(jnp.float32), tree)     # weights rounded as they would be stored


compiled, report = {}, {}
for batch, seq in ((1, 32), (4, 32), (8, 64)):
    t = time.perf_counter()
    compiled[batch, seq] = jax.jit(forward).lower(params, jax.ShapeDtypeStruct((batch, seq, D), jnp.float32)).compile()
    cost = compiled[batch, seq].cost_analysis() or {}
    print(f"batch {batch} seq {seq}: compiled in {time.perf_counter() - t:.2f} s, {cost.get('flops', 0) / 1e9:.2f} GFLOP")

rounded = half(params)
for (batch, seq), fn in compiled.items():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((batch, seq, D), np.float32))
    gap = float(jnp.abs(fn(params, x) - fn(rounded, x)).max())
    for _ in range(5):
        fn(params, x).block_until_ready()                                            # warm-up
    times = []
    for _ in range(60):
        t = time.perf_counter()
        fn(params, x).block_until_ready()
        times.append(1e3 * (time.perf_counter() - t))
    report[f"{batch}x{seq}"] = {"p50": float(np.percentile(times, 50)), "p95": float(np.percentile(times, 95)), "rounding": gap}

arrivals, late = queue.Queue(), []


def serve():
    fn = compiled[1, 32]
    while (item := arrivals.get()) is not None:
        due, x = item
        fn(params, x).block_until_ready()
        late.append(time.perf_counter() - due)


server = threading.Thread(target=serve)
server.start()
x = np.zeros((1, 32, D), np.float32)
start = time.perf_counter()
for due in start + np.cumsum(np.random.default_rng(1).exponential(0.03, 100)):
    time.sleep(max(0.0, due - time.perf_counter()))
    arrivals.put((due, x))
arrivals.put(None)
server.join()
report["open loop p95 ms"] = 1e3 * float(np.percentile(late, 95))
print(json.dumps(report, indent=1))
print(json.dumps({"wall": time.perf_counter() - T0}))
