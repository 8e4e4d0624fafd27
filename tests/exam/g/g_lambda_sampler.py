"""A text generation worker: a client thread posts prompts, a worker thread decodes them with a jitted loop.
"Every request takes half a second, although the model is tiny and was warmed up before the first one."

Truth: the sampler is a static argument of the jitted `generate`, and each request builds a new functools.partial, which never equals an earlier one: each request retraces and recompiles.
Advice: pass the temperature as an ordinary (traced) argument, or build the sampler once and keep it.
"""
import time
T0 = time.perf_counter()
import functools
import json
import queue
import sys
import threading
import jax
import jax.numpy as jnp

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|retrac|trac(ed|ing)|cache miss", r"static|partial|sampler|hash|new (function|callable|object)|function object|generate")
LAYERS, D, V, STEPS = 10, 256, 4096, 96


def init(key):
    ks = iter(jax.random.split(key, 4 * LAYERS + 2))
    w = lambda *s: jax.random.normal(next(ks), s) * s[0] ** -0.5
    return {"emb": w(V, D), "out": w(D, V), "layers": [{"i": w(D, 2 * D), "g": w(D, 2 * D), "o": w(2 * D, D), "r": w(D, D)} for _ in range(LAYERS)]}


def sample(logits, key, temperature):
    return jax.random.categorical(key, jax.lax.top_k(logits, 50)[0] / temperature)


def decode(params, prompt, key, pick):
    def body(carry, k):
        tok, state = carry
        x, new = params["emb"][tok] * 16.0, []
        for p, s in zip(params["layers"], state):
            s = jnp.tanh(x + s @ p["r"])
            x = x + (jax.nn.silu(s @ p["g"]) * (s @ p["i"])) @ p["o"]
            x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
            new.append(s)
        logits = x @ params["out"]
        tok = jnp.take_along_axis(jax.lax.top_k(logits, 50)[1], pick(logits, k)[:, None], -1)[:, 0]
        return (tok, new), tok
    state = [jnp.zeros((prompt.shape[0], D))] * LAYERS
    return jax.lax.scan(body, (prompt, state), jax.random.split(key, STEPS))[1]


generate_static = jax.jit(lambda params, prompt, key, sampler: decode(params, prompt, key, sampler), static_argnums=3)
generate_traced = jax.jit(lambda params, prompt, key, t: decode(params, prompt, key, lambda l, k: sample(l, k, t)))
requests, lost = queue.Queue(), []


def handle(params, req):
    if FIXED:
        out = generate_traced(params, req["prompt"], req["key"], req["temperature"])
    else:
        sampler = functools.partial(sample, temperature=req["temperature"])  # fault
        t = time.perf_counter()
        out = generate_static(params, req["prompt"], req["key"], sampler)  # fault
        lost.append(time.perf_counter() - t)   # dispatch of a warm function would return at once
    return jax.device_get(out)


def worker(params):
    while (req := requests.get()) is not None:
        req["reply"].put(handle(params, req))  # fault


params = init(jax.random.key(0))
thread = threading.Thread(target=worker, args=(params,), name="decoder")
thread.start()
keys, total = jax.random.split(jax.random.key(1), 14), 0
for i in range(14):
    reply = queue.Queue()
    requests.put({"prompt": jnp.arange(4) + i, "key": keys[i], "temperature": 0.8, "reply": reply})
    total += int(reply.get().sum() % 1000)
requests.put(None)
thread.join()
print("served 14 requests, checksum", total)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": sum(lost[1:]) if lost else None}))
