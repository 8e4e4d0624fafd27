"""The sampler with the live dashboard freezes in its very first sweep: no output, no CPU use, Ctrl-C does not help.

Truth: the main thread waits for the sweep (block_until_ready) while it holds the dashboard's lock, and the host callback inside the compiled sweep needs that lock to note its value: each waits for the other.
Advice: never wait for a JAX computation while holding a lock that a host callback of that computation takes; hold it only to swap the state afterwards.
"""
import json
import os
import sys
import threading
import time

import jax
import jax.numpy as jnp

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"lock|callback", r"hang|hung|dead ?lock|stuck|wait|blocked|no progress|stall")
SWEEPS, SIDE = 40, 256


class Dashboard:
    def __init__(self):
        self.lock = threading.Lock()
        self.curve, self.picture = [], None

    def note(self, magnetisation):
        with self.lock:  # fault
            self.curve.append(float(magnetisation))

    def render(self):
        while True:
            time.sleep(0.5)
            with self.lock:
                print(f"dashboard: {len(self.curve)} points", flush=True)


def ising_sweep(board, spins, key):
    rows, cols = jnp.meshgrid(jnp.arange(SIDE), jnp.arange(SIDE), indexing="ij")

    def half(spins, key, parity):
        field = sum(jnp.roll(spins, s, a) for s in (-1, 1) for a in (0, 1))
        flip = jax.random.uniform(key, spins.shape) < jnp.exp(-2 * 0.44 * spins * field)
        return jnp.where(((rows + cols) % 2 == parity) & flip, -spins, spins)

    def body(spins, key):
        even, odd = jax.random.split(key)
        return half(half(spins, even, 0), odd, 1), None

    spins, _ = jax.lax.scan(body, spins, jax.random.split(key, 60))
    jax.debug.callback(board.note, spins.mean())
    return spins


def give_up(since):
    now = time.perf_counter()
    print(json.dumps({"wall": round(now - START, 2), "lost": round(now - since[0], 2)}), flush=True)
    os._exit(3)


def main():
    since = [time.perf_counter()]
    dog = threading.Timer(40, give_up, (since,))
    dog.daemon = True
    dog.start()
    board = Dashboard()
    threading.Thread(target=board.render, daemon=True).start()
    spins = jnp.ones((SIDE, SIDE))
    sweep = jax.jit(lambda spins, key: ising_sweep(board, spins, key)).lower(spins, jax.random.key(0)).compile()
    for n in range(SWEEPS):
        key = jax.random.fold_in(jax.random.key(7), n)
        since[0] = time.perf_counter()
        if FIXED:
            spins = sweep(spins, key).block_until_ready()
            with board.lock:
                board.picture = spins
        else:
            with board.lock:  # fault
                spins = sweep(spins, key).block_until_ready()  # fault
                board.picture = spins
    jax.effects_barrier()
    print("magnetisation", board.curve[-1])
    dog.cancel()
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
