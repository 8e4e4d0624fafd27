"""Token streaming over asyncio: a continuous-batching decoder with eight slots runs in one executor thread, in chunks of eight tokens; each client reads its tokens from a bounded queue.
Requests arrive open-loop (Poisson, seeded); a heartbeat task and an idle engine between arrivals are part of the design.
"""
import time
T0 = time.perf_counter()
import asyncio
import concurrent.futures
import json
import jax
import jax.numpy as jnp
import numpy as np

SLOTS, CHUNK, V, D, N = 8, 8, 8192, 512, 60
ks = jax.random.split(jax.random.key(0), 4)
params = {"emb": jax.random.normal(ks[0], (V, D)), "w": jax.random.normal(ks[1], (D, D)) * 0.05,
          "r": jax.random.normal(ks[2], (D, D)) * 0.05, "out": jax.random.normal(ks[3], (D, V)) * 0.05}


def chunk(params, tok, state, key):
    def body(carry, k):
        tok, s = carry
        s = jnp.tanh(params["emb"][tok] @ params["w"] + s @ params["r"])
        tok = jax.random.categorical(k, s @ params["out"]).astype(jnp.int32)
        return (tok, s), tok
    key, sub = jax.random.split(key)
    (tok, state), toks = jax.lax.scan(body, (tok, state), jax.random.split(sub, CHUNK))
    return tok, state, key, toks.T


chunk = jax.jit(chunk, donate_argnums=(1, 3))
admit = jax.jit(lambda tok, state, slot, first: (tok.at[slot].set(first), state.at[slot].set(0.0)), donate_argnums=(0, 1))


class Engine:
    def __init__(self):
        self.tok, self.state, self.key = jnp.zeros(SLOTS, jnp.int32), jnp.zeros((SLOTS, D)), jax.random.key(1)
        self.free, self.active, self.work = asyncio.Queue(), {}, asyncio.Event()
        for s in range(SLOTS):
            self.free.put_nowait(s)
        self.thread = concurrent.futures.ThreadPoolExecutor(1, "engine")

    def run_chunk(self, arrivals):
        for slot, first in arrivals:
            self.tok, self.state = admit(self.tok, self.state, slot, first)
        self.tok, self.state, self.key, toks = chunk(params, self.tok, self.state, self.key)
        return np.asarray(toks)

    async def loop(self):
        new = {}
        while True:
            if not self.active:
                self.work.clear()
                await self.work.wait()             # nothing to do until a request comes
            new, seen = [(s, r["first"]) for s, r in self.active.items() if r["new"]], list(self.active.items())
            for _, r in seen:
                r["new"] = False
            toks = await asyncio.get_running_loop().run_in_executor(self.thread, self.run_chunk, new)
            for slot, r in seen:
                await r["out"].put(toks[slot][:r["left"]])
                r["left"] -= CHUNK
                if r["left"] <= 0:
                    await r["out"].put(None)
                    del self.active[slot]
                    self.free.put_nowait(slot)

    async def generate(self, first, length):
        slot, out = await self.free.get(), asyncio.Queue(64)
        self.active[slot] = {"first": np.int32(first), "left": length, "out": out, "new": True}
        self.work.set()
        while (toks := await out.get()) is not None:
            yield toks


async def main():
    engine, beats, rng = Engine(), [0], np.random.default_rng(0)
    engine.run_chunk([(0, np.int32(0))])            # warm-up

    async def heartbeat():
        while True:
            await asyncio.sleep(0.5)
            beats[0] += 1

    async def client(i, at, length):
        await asyncio.sleep(at)
        return sum([len(t) async for t in engine.generate(i, length)])
    background = [asyncio.create_task(heartbeat()), asyncio.create_task(engine.loop())]
    arrivals, lengths = np.cumsum(rng.exponential(0.1, N)), rng.integers(20, 120, N)
    counts = await asyncio.gather(*(client(i, a, int(n)) for i, (a, n) in enumerate(zip(arrivals, lengths))))
    for task in background:
        task.cancel()
    engine.thread.shutdown()
    print("streamed", sum(counts), "tokens, as asked:", sum(counts) == lengths.sum(), "heart beats:", beats[0] > 3)


asyncio.run(main())
print(json.dumps({"wall": time.perf_counter() - T0}))
