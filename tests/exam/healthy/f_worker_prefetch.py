"""Linen autoencoder fed by two spawned worker processes through a bounded queue, with a prefetch thread that puts batches on the device.

The workers end by themselves with a sentinel, a heartbeat thread sleeps on an event, and the parent drains the queue before it joins.
"""
import time
T0 = time.perf_counter()
import json
import multiprocessing as mp
import queue as queues
import threading
import numpy as np

DIM, BATCH, PER_WORKER, WORKERS = 784, 256, 104, 2


def worker(seed, out):
    basis = np.random.default_rng(0).normal(size=(12, DIM)).astype(np.float32)
    rng = np.random.default_rng(seed)
    for _ in range(PER_WORKER):
        z = rng.normal(size=(BATCH, 12)).astype(np.float32)
        out.put(np.tanh(z @ basis / 3) + 0.05 * rng.normal(size=(BATCH, DIM)).astype(np.float32))
    out.put(None)


def main():
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import optax

    class AutoEncoder(nn.Module):
        @nn.compact
        def __call__(self, x):
            h = nn.gelu(nn.Dense(768)(x))
            h = nn.Dense(16)(nn.gelu(nn.Dense(512)(h)))
            h = nn.gelu(nn.Dense(768)(nn.gelu(nn.Dense(512)(h))))
            return nn.Dense(DIM)(h)
    net, opt = AutoEncoder(), optax.adam(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 20, 208))

    @jax.jit
    def train_step(params, state, x):
        loss, g = jax.value_and_grad(lambda p: jnp.mean((net.apply(p, x) - x) ** 2))(params)
        up, state = opt.update(g, state, params)
        return optax.apply_updates(params, up), state, loss

    ctx = mp.get_context("spawn")
    raw, ready, stop = ctx.Queue(maxsize=6), queues.Queue(maxsize=2), threading.Event()
    procs = [ctx.Process(target=worker, args=(10 + i, raw), daemon=True) for i in range(WORKERS)]
    for p in procs:
        p.start()

    def prefetch():
        live = WORKERS
        while live:
            item = raw.get()
            if item is None:
                live -= 1
                continue
            ready.put(jax.device_put(item))
        ready.put(None)
    beats = []

    def heartbeat():
        while not stop.wait(1.0):
            beats.append(time.perf_counter() - T0)
    threads = [threading.Thread(target=f, daemon=True) for f in (prefetch, heartbeat)]
    for t in threads:
        t.start()
    params = jax.jit(net.init)(jax.random.key(0), jnp.zeros((1, DIM)))
    state, losses, step = opt.init(params), [], 0
    while (x := ready.get()) is not None:
        params, state, loss = train_step(params, state, x)
        losses.append(loss)
        step += 1
        if step % 52 == 0:
            print(step, "loss", float(jnp.mean(jnp.stack(losses[-52:]))), flush=True)
    for p in procs:
        p.join()
    stop.set()
    for t in threads:
        t.join()
    print("steps", step, "exit codes", [p.exitcode for p in procs])
    assert step == PER_WORKER * WORKERS


if __name__ == "__main__":
    main()
    print(json.dumps({"wall": time.perf_counter() - T0}))
