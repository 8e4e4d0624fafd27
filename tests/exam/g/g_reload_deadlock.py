"""A model server that reloads its weights from disk in the background and counts requests per version.
"After the first hot reload it stops answering; no error, no CPU use."

Truth: a lock-order inversion: the handler takes `stats_lock`, then `weights_lock`; the reloader takes `weights_lock`, then `stats_lock`. Each waits for the other for ever.
Advice: take the locks in one order everywhere, or hold only one at a time.
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
import tempfile
import threading
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"lock", r"deadlock|wait|block|stuck|hang|hung|never|order|acquir|held|progress")
killer = threading.Timer(40, lambda: os._exit(0))
killer.daemon = True
killer.start()
D = 512
stats_lock, weights_lock = threading.Lock(), threading.Lock()
stats, state = {"requests": 0, "version": 0}, {}
folder = tempfile.mkdtemp()
rng = np.random.default_rng(0)
for version in range(3):
    np.savez(f"{folder}/v{version}.npz", **{f"w{i}": rng.normal(size=(D, D)).astype(np.float32) * 0.06 for i in range(6)})


@jax.jit
def predict(weights, x):
    for i in range(6):
        x = jnp.tanh(x @ weights[f"w{i}"])
    return x.sum(-1)


def load(version):
    with np.load(f"{folder}/v{version}.npz") as f:
        return {k: jnp.asarray(f[k]) for k in f.files}


def reload(version):
    with weights_lock:
        fresh = load(version)
        jax.block_until_ready(predict(fresh, jnp.zeros((256, D))))     # check that it works before it serves
        time.sleep(0.15)                                               # lets the old version's requests drain
        state["weights"] = fresh
        if not FIXED:
            with stats_lock:  # fault
                stats["version"] = version
    if FIXED:
        with stats_lock:
            stats["version"] = version


def handle(x):
    if FIXED:
        with stats_lock:
            stats["requests"] += 1
        with weights_lock:
            weights = state["weights"]
        return float(predict(weights, x).mean())
    with stats_lock:
        stats["requests"] += 1
        with weights_lock:  # fault
            weights = state["weights"]
    return float(predict(weights, x).mean())


def reloader():
    for version in (1, 2):
        time.sleep(2.0)
        reload(version)  # fault


state["weights"] = load(0)
thread = threading.Thread(target=reloader, name="reloader")
thread.start()
x, out, until = jax.random.normal(jax.random.key(0), (256, D)), [], time.perf_counter() + 6
while time.perf_counter() < until:
    out.append(handle(x))  # fault
thread.join()
print("answers:", len(out) > 0, "last version", stats["version"])
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
