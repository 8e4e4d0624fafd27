"""Reaction-diffusion simulation that saves its frames from a thread. "It prints 'done', and then the prompt does not come for ages."

Truth: the writer thread opens and syncs one file per frame and falls behind; the queue is unbounded, so the backlog is written after the end: the program waits for it at the exit.
Advice: write frames in batches (one file and sync per 50 frames), or fewer frames, or a bounded queue so that the backlog shows.
"""
import time
T0 = time.perf_counter()
import json
import os
import queue
import sys
import tempfile
import threading

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"writ|thread|queue|backlog|flush|sav|join|file", r"exit|end|close|join|shutdown|drain|wait|finish")
PER_FILE = 50 if FIXED else 1


class FrameWriter(threading.Thread):
    def __init__(self, folder):
        super().__init__()
        self.folder, self.frames = folder, queue.Queue()
        self.start()

    def run(self):
        pending, files = [], 0
        while True:
            frame = self.frames.get()
            if frame is not None:
                pending.append(frame)
            if len(pending) >= PER_FILE or (frame is None and pending):
                np.save(os.path.join(self.folder, f"{files:05d}.npy"), np.stack(pending))
                time.sleep(0.04)  # the sync of a network drive  # fault
                pending, files = [], files + 1
            if frame is None:
                return

    def close(self):
        self.frames.put(None)
        self.join()  # fault


@jax.jit
def advance(state):
    def step(_, state):
        u, v = state
        lap = lambda a: sum(jnp.roll(a, s, ax) for s in (1, -1) for ax in (0, 1)) - 4 * a
        uvv = u * v * v
        return u + 0.16 * lap(u) - uvv + 0.035 * (1 - u), v + 0.08 * lap(v) + uvv - 0.095 * v
    return jax.lax.fori_loop(0, 15, step, state)


def main():
    rng = np.random.default_rng(0)
    v = np.zeros((160, 160), np.float32)
    v[60:100, 60:100] = 0.5 + 0.1 * rng.random((40, 40))
    state = (jnp.ones((160, 160)) - v, jnp.asarray(v))
    with tempfile.TemporaryDirectory() as folder:
        writer = FrameWriter(folder)
        for frame in range(300):
            state = advance(state)
            writer.frames.put(np.asarray(state[1]))
        print("done: mass", float(state[1].mean()))
        t = time.perf_counter()
        writer.close()  # fault
        lost = time.perf_counter() - t
        print(len(os.listdir(folder)), "files")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))


main()
