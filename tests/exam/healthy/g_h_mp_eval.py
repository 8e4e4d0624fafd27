"""Perplexity evaluation with helper processes: two spawned tokenisers (no JAX in them) read documents from a bounded queue, a feeder thread packs batches ahead of the device; bad documents come back as errors and are counted.
Helpers end by sentinel and are joined; a watchdog thread checks every second that they live; losses stay on the device until the end.
"""
import time
T0 = time.perf_counter()
import json
import multiprocessing as mp
import queue
import threading

DOCS, T, BATCH = 480, 128, 8


def tokenise(jobs, results):
    import numpy as np
    while (raw := jobs.get()) is not None:
        try:
            text = " ".join(raw.decode("utf-8").lower().split()).encode()
        except UnicodeDecodeError as e:
            results.put(("bad", str(e)))
            continue
        ids = np.frombuffer(text, np.uint8)[:T].astype(np.int32)
        results.put(("ok", np.pad(ids, (0, T - len(ids)))))
    results.put(("end", None))


def main():
    import jax
    import jax.numpy as jnp
    import numpy as np
    ctx = mp.get_context("spawn")
    jobs, results, batches = ctx.Queue(32), ctx.Queue(32), queue.Queue(2)
    helpers = [ctx.Process(target=tokenise, args=(jobs, results), name=f"tokeniser-{i}", daemon=True) for i in range(2)]
    for h in helpers:
        h.start()
    bad, done = [], threading.Event()

    def send():
        words = [b"the", b"model", b"serves", b"caf\xc3\xa9", b"tokens", b"slowly", b"and", b"well"]
        for i in range(DOCS):
            jobs.put(b" ".join(words[(i * 7 + j * j) % 8] for j in range(30)) + (b" na\xefve" if i % 160 == 7 else b""))
        for _ in helpers:
            jobs.put(None)

    def pack():
        rows, open_helpers = [], len(helpers)
        while open_helpers:
            kind, value = results.get()
            if kind == "end":
                open_helpers -= 1
            elif kind == "bad":
                bad.append(value)
            else:
                rows.append(value)
            if rows and (len(rows) == BATCH or not open_helpers):
                rows += [np.zeros(T, np.int32)] * (BATCH - len(rows))
                batches.put(jax.device_put(np.stack(rows)))
                rows = []
        batches.put(None)

    def watchdog():
        while not done.wait(1.0):
            for h in helpers:
                if h.exitcode not in (None, 0):
                    raise SystemExit(f"{h.name} died with {h.exitcode}")
    threads = [threading.Thread(target=f, name=f.__name__, daemon=True) for f in (send, pack, watchdog)]
    for t in threads:
        t.start()
    ks = jax.random.split(jax.random.key(0), 4)
    params = [jax.random.normal(k, s) * 0.06 for k, s in zip(ks, ((256, 512), (512, 1536), (512, 512), (512, 256)))]

    @jax.jit
    def nll(params, ids, total):
        emb, qkv, o, out = params
        x = emb[ids]
        for _ in range(6):
            q, k, v = jnp.split(x @ qkv, 3, -1)
            a = jnp.where(jnp.tri(T, dtype=bool), jnp.einsum("btd,bsd->bts", q, k), -1e9)
            x = x + jax.nn.softmax(a) @ v @ o
            x = x / (1e-3 + jnp.linalg.norm(x, axis=-1, keepdims=True))
        lp = jax.nn.log_softmax(x @ out)[:, :-1]
        mask = ids[:, 1:] > 0
        loss = -(jnp.take_along_axis(lp, ids[:, 1:, None], -1)[..., 0] * mask).sum()
        return total[0] + loss, total[1] + mask.sum()
    total, n = (jnp.float32(0), jnp.int32(0)), 0
    while (ids := batches.get()) is not None:
        total = nll(params, ids, total)
        n += 1
    done.set()
    for h in helpers:
        h.join()
    for t in threads:
        t.join()
    print(n, "batches", len(bad), "bad documents, perplexity", round(float(jnp.exp(total[0] / total[1])), 2))
    print(json.dumps({"wall": time.perf_counter() - T0}))


if __name__ == "__main__":
    main()
