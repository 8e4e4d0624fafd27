"""Trains a dynamics model, then evaluates it against rollouts of worker processes. "Training is done, the workers print 'finished', and then nothing happens."

Truth: the parent joins the workers before it has read their multiprocessing.Queue; a worker does not exit until its big results are read: deadlock.
Advice: get() all results from the queue first, and join the processes after that.
"""
import time
T0 = time.perf_counter()
import json
import multiprocessing as mp
import os
import sys
import threading
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"join|waitpid|process|worker|child", r"queue|join|drain|\bget\b|deadlock|hang|stuck|block|wait")
DIM = 32
A = (0.97 * np.linalg.qr(np.random.default_rng(7).normal(size=(DIM, DIM)))[0]).astype(np.float32)


def roll(rng, n, steps):
    xs = [rng.normal(size=(n, DIM)).astype(np.float32)]
    for _ in range(steps):
        xs.append(np.tanh(xs[-1] @ A).astype(np.float32))
    return np.stack(xs)


def collect(seed, queue):
    queue.put((seed, roll(np.random.default_rng(seed), 64, 200)))
    print("worker", seed, "finished", flush=True)


def watchdog(procs):
    time.sleep(max(0.0, 40 - (time.perf_counter() - T0)))
    for p in procs:
        p.kill()
    os._exit(0)


def main():
    import jax
    import jax.numpy as jnp
    import optax
    procs = []
    threading.Thread(target=watchdog, args=(procs,), daemon=True).start()
    opt = optax.adam(1e-3)
    ks = jax.random.split(jax.random.key(0), 3)
    sizes = [(DIM, 512), (512, 512), (512, DIM)]
    params = [jax.random.normal(k, s) / np.sqrt(s[0]) for k, s in zip(ks, sizes)]

    def model(params, x):
        return jnp.tanh(jnp.tanh(x @ params[0]) @ params[1]) @ params[2]

    @jax.jit
    def train_step(params, state, x, y):
        loss, g = jax.value_and_grad(lambda p: jnp.mean((model(p, x) - y) ** 2))(params)
        up, state = opt.update(g, state)
        return optax.apply_updates(params, up), state, loss
    score = jax.jit(lambda p, xs: jnp.mean((model(p, xs[:-1]) - xs[1:]) ** 2))
    state, rng = opt.init(params), np.random.default_rng(1)
    for step in range(400):
        xs = roll(rng, 512, 2)
        params, state, loss = train_step(params, state, xs[:-1].reshape(-1, DIM), xs[1:].reshape(-1, DIM))
        if step % 100 == 99:
            print(step + 1, "loss", float(loss), flush=True)
    ctx = mp.get_context("spawn")
    queue = ctx.Queue()
    procs += [ctx.Process(target=collect, args=(100 + i, queue)) for i in range(2)]
    for p in procs:
        p.start()
    if FIXED:
        episodes = [queue.get() for _ in procs]
    for p in procs:
        p.join()  # fault
    if not FIXED:
        episodes = [queue.get() for _ in procs]
    for seed, xs in sorted(episodes, key=lambda e: e[0]):
        print("eval", seed, float(score(params, xs)))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))


if __name__ == "__main__":
    main()  # fault
