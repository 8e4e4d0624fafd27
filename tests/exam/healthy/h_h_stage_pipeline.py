"""Image training with two decode threads and a transfer thread, bounded queues, end-of-data sentinels and errors passed on; JPEGs are decoded once into a bounded cache; progressive resizing compiles one program per stage."""
import time
T0 = time.perf_counter()
import functools
import io
import json
import queue
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image

N, BATCH, STAGES = 768, 64, ((16, 3), (24, 3), (32, 4))


def make_jpegs(rng):
    out = []
    for label in rng.integers(0, 6, N):
        g = np.linspace(0, 6.28 * (label + 1), 48)
        img = 127 + 80 * np.sin(g)[:, None] * np.cos(g)[None] + 25 * rng.normal(size=(48, 48))
        buf = io.BytesIO()
        Image.fromarray(np.clip(img, 0, 255).astype(np.uint8)).save(buf, "JPEG")
        out.append((buf.getvalue(), int(label)))
    return out


JPEGS = make_jpegs(np.random.default_rng(0))


@functools.lru_cache(maxsize=N)
def decode(i, side):
    img = Image.open(io.BytesIO(JPEGS[i][0])).resize((side, side))
    return np.asarray(img, np.float32)[..., None] / 127.5 - 1


def pipeline(rng, side, epochs):
    jobs, ready = queue.Queue(), queue.Queue(4)
    for _ in range(epochs):
        for idx in np.split(rng.permutation(N), N // BATCH):
            jobs.put(idx)
    workers = 2
    for _ in range(workers):
        jobs.put(None)

    def work():
        try:
            while (idx := jobs.get()) is not None:
                x = np.stack([decode(int(i), side) for i in idx])
                y = np.array([JPEGS[i][1] for i in idx], np.int32)
                ready.put(jax.device_put((x, y)))
            ready.put(None)
        except BaseException as e:
            ready.put(e)

    threads = [threading.Thread(target=work, name=f"decode{i}", daemon=True) for i in range(workers)]
    for t in threads:
        t.start()
    while workers:
        item = ready.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            workers -= 1
        else:
            yield item
    for t in threads:
        t.join()


def net(p, x):
    for w in p["convs"]:
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
    return x.mean((1, 2)) @ p["out"]


tx = optax.adam(2e-3)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(p, opt, x, y):
    loss, g = jax.value_and_grad(
        lambda p: optax.softmax_cross_entropy_with_integer_labels(net(p, x), y).mean())(p)
    up, opt = tx.update(g, opt)
    return optax.apply_updates(p, up), opt, loss


rng, ks = np.random.default_rng(1), jax.random.split(jax.random.PRNGKey(0), 4)
chans = [1, 24, 48, 64]
p = {"convs": [jax.random.normal(k, (3, 3, a, b)) * (2 / (9 * a)) ** 0.5 for k, a, b in zip(ks, chans, chans[1:])],
     "out": jax.random.normal(ks[3], (64, 6)) / 8}
opt = tx.init(p)
for side, epochs in STAGES:
    decode.cache_clear()                                   # the last stage's images are of no more use
    losses = []
    for x, y in pipeline(rng, side, epochs):
        p, opt, loss = step(p, opt, x, y)
        losses.append(loss)
    print(f"side {side} loss {float(losses[0]):.3f} -> {float(jnp.stack(losses[-6:]).mean()):.3f}")
print(json.dumps({"wall": time.perf_counter() - T0}))
