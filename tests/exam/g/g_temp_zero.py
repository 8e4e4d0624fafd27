"""A completion server with per-request temperature that returns log-probabilities with its tokens.
"With temperature 0 the model only ever says token 0, and the dashboard's mean log-probability is nan."

Truth: temperature 0, which clients send to ask for greedy decoding, divides the logits by zero: infinities, then NaN in log_softmax; the draw over NaN is meaningless.
Advice: treat temperature 0 as argmax (jnp.where with a safe divisor), or refuse it.
"""
import time
T0 = time.perf_counter()
import json
import queue
import sys
import threading
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"\bnans?\b|non-?finite|not finite|\binf",)
V, D, STEPS, N = 8192, 512, 48, 80
ks = jax.random.split(jax.random.key(0), 4)
params = {"emb": jax.random.normal(ks[0], (V, D)), "w": jax.random.normal(ks[1], (D, D)) * 0.05,
          "r": jax.random.normal(ks[2], (D, D)) * 0.05, "out": jax.random.normal(ks[3], (D, V)) * 0.05}


def choose(logits, key, temperature):
    if FIXED:
        safe = jnp.where(temperature > 0, temperature, 1.0)
        logp = jax.nn.log_softmax(logits / safe)
        tok = jnp.where(temperature > 0, jax.random.categorical(key, logp), logp.argmax(-1))
    else:
        logp = jax.nn.log_softmax(logits / temperature)  # fault
        tok = jax.random.categorical(key, logp)  # fault
    return tok, jnp.take_along_axis(logp, tok[:, None], -1)[:, 0]


@jax.jit
def complete(params, prompt, key, temperature):
    def body(carry, k):
        tok, s = carry
        s = jnp.tanh(params["emb"][tok] @ params["w"] + s @ params["r"])
        tok, lp = choose(s @ params["out"], k, temperature)  # fault
        return (tok, s), (tok, lp)
    _, (toks, lps) = jax.lax.scan(body, (prompt, jnp.zeros((prompt.shape[0], D))), jax.random.split(key, STEPS))
    return toks, lps.mean()


inbox, answers = queue.Queue(), queue.Queue()


def server():
    while (req := inbox.get()) is not None:
        toks, lp = complete(params, req["prompt"], req["key"], req["temperature"])  # fault
        answers.put((req["id"], np.asarray(toks), float(lp)))  # fault


jax.block_until_ready(complete(params, jnp.zeros(8, jnp.int32), ks[0], 1.0))
thread = threading.Thread(target=server, name="server")
thread.start()
keys = jax.random.split(ks[1], N)
for i in range(N):
    inbox.put({"id": i, "prompt": jnp.arange(8) + i, "key": keys[i], "temperature": (0.7, 1.0, 0.0, 0.9)[i % 4]})
got = [answers.get() for _ in range(N)]
inbox.put(None)
thread.join()
print("mean log-probability", np.mean([lp for _, _, lp in got]), "distinct tokens at T=0:", len(np.unique(np.stack([t for i, t, _ in got if i % 4 == 2]))))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
