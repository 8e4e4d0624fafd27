"""A chat service with a KV cache per session; sessions are opened, used for some turns and closed. "Memory grows all day, and in the evening the process is killed, though never more than four users are on."

Truth: closing a session removes its record but not its KV cache: self.caches keeps the device arrays of all the sessions that ever were.
Advice: pop the cache when the session closes (and bound the table, e.g. LRU with eviction).
"""
import time
T0 = time.perf_counter()
import itertools
import json
import resource
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"leak|grow|grew|accumulat|retain|kept|keeps|live arrays|memory|never (freed|released|removed|evict)", r"array|cache|memory|buffer|MB|GB|MiB|GiB|live")
D, LAYERS, CTX = 256, 4, 1280                      # 10.5 MB of cache a session
ks = jax.random.split(jax.random.key(0), 2)
PARAMS = {"qkv": jax.random.normal(ks[0], (LAYERS, D, 3 * D)) * 0.06, "o": jax.random.normal(ks[1], (LAYERS, D, D)) * 0.06}


@partial(jax.jit, donate_argnums=1)
def turn(params, cache, pos, x):
    def token(carry, x):
        cache, pos = carry

        def layer(x, pl):
            p, kv = pl
            q, k, v = jnp.split(x @ p["qkv"], 3)
            kv = kv.at[:, pos].set(jnp.stack([k, v]))
            s = jnp.where(jnp.arange(CTX) <= pos, kv[0] @ q / D ** 0.5, -1e9)
            return x + jnp.tanh(jax.nn.softmax(s) @ kv[1] @ p["o"]), kv
        x, cache = jax.lax.scan(layer, x, (params, cache))
        return (cache, pos + 1), x
    (cache, pos), out = jax.lax.scan(token, (cache, pos), x)
    return cache, pos, out[-1]


class Chat:
    def __init__(self):
        self.sessions, self.caches, self.ids, self.lock = {}, {}, itertools.count(), threading.Lock()

    def open(self, user):
        with self.lock:
            sid = next(self.ids)
        self.sessions[sid] = user
        self.caches[sid] = (jnp.zeros((LAYERS, 2, CTX, D)), jnp.int32(0))  # fault
        return sid

    def say(self, sid, tokens):
        cache, pos = self.caches[sid]
        cache, pos, out = turn(PARAMS, cache, pos, tokens)  # fault
        self.caches[sid] = (cache, pos)  # fault
        return np.asarray(out)

    def close(self, sid):
        del self.sessions[sid]
        if FIXED:
            del self.caches[sid]


chat = Chat()


def user(u):
    rng = np.random.default_rng(u)
    for _ in range(30):
        sid = chat.open(u)  # fault
        for _ in range(3):
            assert np.isfinite(chat.say(sid, rng.standard_normal((8, D), np.float32))).all()  # fault
        chat.close(sid)


with ThreadPoolExecutor(4) as pool:
    list(pool.map(user, range(4)))
print("open sessions", len(chat.sessions), "peak MB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
