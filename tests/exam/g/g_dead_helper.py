"""Perplexity of a byte-level model over documents that a helper process reads and tokenises, through multiprocessing queues.
"The evaluation stops somewhere in the middle, always at the same document, and never ends."

Truth: the helper process dies of a UnicodeDecodeError at a document that is not UTF-8; the parent then waits in `results.get()` for ever for answers that cannot come.
Advice: handle bad documents in the helper (errors="replace", or send the exception), and wait with a time-out that checks that the helper is alive.
"""
import time
T0 = time.perf_counter()
import json
import multiprocessing as mp
import os
import sys
import threading

FIXED = "--fixed" in sys.argv
WORDS = (r"helper|process|child|worker|tokeni[sz]er", r"die|dead|exit|crash|decodeerror|utf|killed|gone|terminated|fail")
DOCS, T = 60, 256


def tokeniser(jobs, results):
    import numpy as np
    while (job := jobs.get()) is not None:
        index, raw = job
        text = raw.decode("utf-8", errors="replace" if FIXED else "strict")  # fault
        ids = np.frombuffer(" ".join(text.lower().split()).encode(), np.uint8)[:T].astype(np.int32)
        results.put((index, np.pad(ids, (0, T - len(ids)))))


def documents():
    words = [b"the", b"model", b"serves", b"caf\xc3\xa9", b"tokens", b"slowly", b"and", b"well"]
    for i in range(DOCS):
        doc = b" ".join(words[(i * 7 + j * j) % 8] for j in range(60))
        yield i, (doc + b" na\xefve" if i == 33 else doc)      # one file was saved as Latin-1


def main():
    import jax
    import jax.numpy as jnp
    killer = threading.Timer(40, lambda: os._exit(0))
    killer.daemon = True
    killer.start()
    ks = jax.random.split(jax.random.key(0), 4)
    params = [jax.random.normal(k, s) * 0.06 for k, s in zip(ks, ((256, 512), (512, 1536), (512, 512), (512, 256)))]

    @jax.jit
    def nll(params, ids):
        emb, qkv, o, out = params
        x = emb[ids]
        for _ in range(6):
            q, k, v = jnp.split(x @ qkv, 3, -1)
            a = jnp.where(jnp.tri(T, dtype=bool), jnp.einsum("btd,bsd->bts", q, k), -1e9)
            x = x + jax.nn.softmax(a) @ v @ o
            x = x / (1e-3 + jnp.linalg.norm(x, axis=-1, keepdims=True))
        lp = jax.nn.log_softmax(x @ out)[:, :-1]
        mask = ids[:, 1:] > 0
        return -(jnp.take_along_axis(lp, ids[:, 1:, None], -1)[..., 0] * mask).sum() / mask.sum()
    ctx = mp.get_context("spawn")
    jobs, results = ctx.Queue(), ctx.Queue()
    helper = ctx.Process(target=tokeniser, args=(jobs, results), daemon=True, name="tokeniser")
    helper.start()
    for job in documents():
        jobs.put(job)
    jobs.put(None)
    losses = []
    for _ in range(DOCS):
        index, ids = results.get()  # fault
        losses.append(nll(params, jnp.broadcast_to(ids, (8, T))))
    helper.join()
    print("documents", DOCS, "mean loss", float(jnp.stack(losses).mean()))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))


if __name__ == "__main__":
    main()
