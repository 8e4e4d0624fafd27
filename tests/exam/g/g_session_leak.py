"""A chat server that keeps a KV cache per conversation between turns, driven by a client thread that holds 120 short conversations.
"Memory climbs with every conversation and the pod is OOM-killed after a day."

Truth: `SESSIONS` keeps each conversation's KV cache on the device for ever; nothing drops it when the conversation ends.
Advice: drop the entry at the conversation's end, or bound the table (LRU / time to live).
"""
import time
T0 = time.perf_counter()
import json
import queue
import sys
import threading
import jax
import jax.numpy as jnp

FIXED = "--fixed" in sys.argv
WORDS = (r"memory|leak|grow|accumulat|live (arrays|buffers)|never (freed|released|dropped)|retain|held|kept",)
LAYERS, T, D, V, CONVERSATIONS, TURNS = 4, 1024, 256, 4096, 120, 4      # a cache is 8 MiB
ks = jax.random.split(jax.random.key(0), 6)
w = lambda k, *s: jax.random.normal(k, s) * s[-2] ** -0.5
PARAMS = {"emb": w(ks[0], V, D), "q": w(ks[1], LAYERS, D, D), "k": w(ks[2], LAYERS, D, D),
          "v": w(ks[3], LAYERS, D, D), "o": w(ks[4], LAYERS, D, D), "out": w(ks[5], D, V)}
new_cache = jax.jit(lambda: jnp.zeros((2, LAYERS, T, D)))


def turn(params, cache, tok, start):
    """16 tokens more of one conversation."""
    def token(carry, pos):
        cache, tok = carry
        x = params["emb"][tok]
        for i in range(LAYERS):
            cache = cache.at[0, i, pos].set(x @ params["k"][i]).at[1, i, pos].set(x @ params["v"][i])
            att = cache[0, i] @ (x @ params["q"][i]) * D ** -0.5
            att = jax.nn.softmax(jnp.where(jnp.arange(T) <= pos, att, -1e9))
            x = x + (att @ cache[1, i]) @ params["o"][i]
            x = x * jax.lax.rsqrt(jnp.mean(x * x) + 1e-6)
        tok = jnp.argmax(x @ params["out"]).astype(jnp.int32)
        return (cache, tok), tok
    (cache, tok), toks = jax.lax.scan(token, (cache, tok), start + jnp.arange(16))
    return cache, tok, toks


turn = jax.jit(turn, donate_argnums=1)
SESSIONS, inbox = {}, queue.Queue()


def server():
    while (req := inbox.get()) is not None:
        sid, tok, n, reply = req
        if tok is None:                          # the client says goodbye
            if FIXED:
                SESSIONS.pop(sid, None)
            reply.put(None)
            continue
        cache = SESSIONS.pop(sid, None)
        if cache is None:
            cache = new_cache()
        cache, tok, toks = turn(PARAMS, cache, tok, 16 * n)  # fault
        SESSIONS[sid] = cache  # fault
        reply.put(jax.device_get((tok, toks)))


thread = threading.Thread(target=server, name="server")
thread.start()
reply, said = queue.Queue(), 0
for c in range(CONVERSATIONS):
    tok = c % V
    for n in range(TURNS):
        inbox.put((f"session-{c}", jnp.int32(tok), n, reply))
        tok, toks = reply.get()
        tok, said = int(tok), said + len(toks)
    inbox.put((f"session-{c}", None, 0, reply))
    reply.get()
inbox.put(None)
thread.join()
print(f"{said} tokens, {len(SESSIONS)} sessions, {sum(a.nbytes for a in jax.live_arrays()) / 2**20:.0f} MiB of live arrays")
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
