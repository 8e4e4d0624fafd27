"""Image-like training fed by two spawned decoder processes (zlib), with an ordered hand-over, a thread that puts batches on the device two ahead and an evaluation after every epoch."""
import time
T0 = time.perf_counter()
import json
import queue
import threading
import zlib
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

import numpy as np

SIDE, BATCH = 24, 128


def decode(seed_blob):
    """Runs in a worker: decompress, augment; numpy only."""
    seed, blobs, labels = seed_blob
    rng = np.random.default_rng(seed)
    x = np.stack([np.frombuffer(zlib.decompress(b), np.uint8).reshape(SIDE, SIDE) for b in blobs])
    flip = rng.random(len(x)) < 0.5
    x[flip] = x[flip][:, :, ::-1]
    return x.astype(np.float32)[..., None] / 255, labels


def main():
    import jax
    import optax
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.c1 = nnx.Conv(1, 16, (4, 4), strides=4, rngs=rngs)
            self.c2 = nnx.Conv(16, 32, (2, 2), strides=2, rngs=rngs)
            self.out = nnx.Linear(32 * 9, 4, rngs=rngs)

        def __call__(self, x):
            x = nnx.gelu(self.c2(nnx.gelu(self.c1(x))))
            return self.out(x.reshape(len(x), -1))

    @nnx.jit
    def train_step(model, opt, x, y):
        def loss_fn(m):
            return optax.softmax_cross_entropy_with_integer_labels(m(x), y).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        opt.update(model, grads)
        return loss

    @nnx.jit
    def accuracy(model, x, y):
        return (model(x).argmax(-1) == y).mean()

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 4096 + 512)
    grid = np.arange(SIDE)
    waves = 128 + 60 * np.sin(grid[:, None] * (0.3 + 0.25 * labels[:, None, None])) + 0 * grid
    raw = np.clip(waves + 30 * rng.standard_normal(waves.shape), 0, 255).astype(np.uint8)
    blobs = [zlib.compress(r.tobytes()) for r in raw]
    held_out = jax.device_put((raw[4096:, ..., None].astype(np.float32) / 255, labels[4096:]))

    def tasks(epoch):
        order = np.random.default_rng(epoch).permutation(4096)
        for i in range(0, 4096, BATCH):
            idx = order[i:i + BATCH]
            yield epoch * 10_000 + i, [blobs[j] for j in idx], labels[idx]

    def feed(pool, epoch, out):
        try:
            todo, pending = tasks(epoch), []
            pending = [pool.submit(decode, t) for t in islice(todo, 4)]
            while pending:
                batch = pending.pop(0).result()
                pending += [pool.submit(decode, t) for t in islice(todo, 1)]
                out.put(jax.device_put(batch))
            out.put(None)
        except Exception as e:
            out.put(e)

    model = Net(nnx.Rngs(0))
    opt = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for epoch in range(5):
            out, losses = queue.Queue(maxsize=2), []
            feeder = threading.Thread(target=feed, args=(pool, epoch, out), name="feeder")
            feeder.start()
            while (item := out.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                losses.append(train_step(model, opt, *item))
            feeder.join()
            print("epoch %d loss %.3f accuracy %.3f" % (epoch, float(np.mean(jax.device_get(losses))), float(accuracy(model, *held_out))))


if __name__ == "__main__":
    main()
    print(json.dumps({"wall": time.perf_counter() - T0}))
