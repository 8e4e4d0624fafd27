"""Scoring service on asyncio with dynamic batching: a queue, a batch as soon as the device is free, padding to two sizes, warm-up first; structure as in the batching layers of Ray Serve and BentoML."""
import time
T0 = time.perf_counter()
import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

WIDTH, SIZES = 512, (8, 32)


@jax.jit
def score(params, rows):
    h = rows
    for w in params["layers"]:
        h = h + jax.nn.gelu(h @ w)
    return jax.nn.softmax(h @ params["out"])


class Service:
    def __init__(self, params):
        self.params, self.queue, self.device = params, asyncio.Queue(), ThreadPoolExecutor(1)
        self.batches = 0

    def run(self, rows):
        size = next(s for s in SIZES if s >= len(rows))
        padded = np.zeros((size, WIDTH), np.float32)
        padded[: len(rows)] = rows
        return np.asarray(score(self.params, padded))[: len(rows)]

    async def ask(self, row):
        future = asyncio.get_running_loop().create_future()
        await self.queue.put((row, future))
        return await future

    async def batcher(self):
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self.queue.get()]
            while len(batch) < SIZES[-1] and not self.queue.empty():
                batch.append(self.queue.get_nowait())
            answers = await loop.run_in_executor(self.device, self.run, [row for row, _ in batch])
            self.batches += 1
            for answer, (_, future) in zip(answers, batch):
                future.set_result(answer)


async def client(n, service):
    rng = np.random.default_rng(n)
    return [int((await service.ask(rng.normal(size=WIDTH).astype(np.float32))).argmax()) for _ in range(100)]


async def main():
    keys = jax.random.split(jax.random.key(0), 9)
    params = {"layers": [jax.random.normal(k, (WIDTH, WIDTH)) / WIDTH**0.5 for k in keys[:8]], "out": jax.random.normal(keys[8], (WIDTH, 20))}
    service = Service(params)
    for size in SIZES:
        service.run(np.zeros((size, WIDTH), np.float32))
    task = asyncio.create_task(service.batcher())
    answers = await asyncio.gather(*(client(n, service) for n in range(16)))
    task.cancel()
    print(sum(map(len, answers)), "answers in", service.batches, "batches")
    service.device.shutdown()


asyncio.run(main())
print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))
