"""A scoring service with dynamic batching: warm-up of each bucket, a deliberate wait of 5 ms to fill a batch, handlers in asyncio, the model in one worker thread, clean drain at the end."""
import time
T0 = time.perf_counter()
import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

BUCKETS, DIM, CLIENTS, EACH = (1, 4, 16, 32), 512, 32, 40
params = [jax.random.normal(k, (a, b)) / a ** 0.5 for k, a, b in zip(
    jax.random.split(jax.random.PRNGKey(0), 8), [DIM] + [1536] * 7, [1536] * 7 + [1])]


@jax.jit
def model(params, x):
    for w in params[:-1]:
        x = jax.nn.gelu(x @ w)
    return jax.nn.sigmoid(x @ params[-1])[:, 0]


class Batcher:
    def __init__(self):
        self.queue, self.worker, self.sizes = asyncio.Queue(), ThreadPoolExecutor(1), []

    def infer(self, rows):
        bucket = next(b for b in BUCKETS if b >= len(rows))
        x = np.zeros((bucket, DIM), np.float32)
        x[:len(rows)] = rows
        return np.asarray(model(params, x))[:len(rows)]

    async def run(self):
        loop = asyncio.get_running_loop()
        while True:
            jobs = [await self.queue.get()]
            if jobs[0] is None:
                return
            deadline = loop.time() + 0.005
            while len(jobs) < BUCKETS[-1] and (left := deadline - loop.time()) > 0:
                try:
                    job = await asyncio.wait_for(self.queue.get(), left)
                except asyncio.TimeoutError:
                    break
                if job is None:
                    self.queue.put_nowait(None)
                    break
                jobs.append(job)
            out = await loop.run_in_executor(self.worker, self.infer, [r for r, _ in jobs])
            self.sizes.append(len(jobs))
            for (_, fut), v in zip(jobs, out):
                fut.set_result(float(v))

    async def score(self, row):
        fut = asyncio.get_running_loop().create_future()
        await self.queue.put((row, fut))
        return await fut


batcher = None


async def endpoint(request):
    body = await request.body()
    return JSONResponse({"score": await batcher.score(np.frombuffer(body, np.float32))})


app = Starlette(routes=[Route("/score", endpoint, methods=["POST"])])


async def client(seed, scores):
    import httpx
    rng = np.random.default_rng(seed)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://t") as c:
        for _ in range(EACH):
            r = await c.post("/score", content=rng.normal(size=DIM).astype(np.float32).tobytes())
            scores.append(r.json()["score"])
            await asyncio.sleep(rng.exponential(0.01))          # think time of the user


async def main():
    global batcher
    batcher = Batcher()
    for b in BUCKETS:                                           # compile before the traffic
        model(params, np.zeros((b, DIM), np.float32)).block_until_ready()
    runner, scores = asyncio.create_task(batcher.run()), []
    await asyncio.gather(*(client(s, scores) for s in range(CLIENTS)))
    await batcher.queue.put(None)
    await runner
    batcher.worker.shutdown()
    print(f"{len(scores)} requests, mean batch {np.mean(batcher.sizes):.1f}, mean {np.mean(scores):.4f}")


asyncio.run(main())
print(json.dumps({"wall": time.perf_counter() - T0}))
