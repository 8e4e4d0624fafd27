"""The "light" mobile network is slower on our CPU box than the fat one it replaced, though it has a tenth of the
multiplications. Training is at a crawl, both cores are busy.

Truth: the depthwise convolutions (`feature_group_count` = channels) run through a slow grouped path on CPU, forward and above all backward; they take most of each step.
Advice: write the 3x3 depthwise layer as nine shifted multiply-adds (or use a dense convolution, or another backend).

Source: jax-ml/jax#23713 (also jax-ml/jax#13800, #26266).
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"conv|depthwise|group", r"depthwise|group|feature_group|slow|shift|cpu|time|flop|util|%|efficien")
BATCH, SIDE, CHANNELS, BLOCKS, STEPS = 4, 48, 64, 3, 50


def depthwise(x, w):
    if FIXED:
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return sum(padded[:, i : i + SIDE, j : j + SIDE] * w[i, j, 0] for i in range(3) for j in range(3))
    return jax.lax.conv_general_dilated(  # fault
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=CHANNELS  # fault
    )


def network(params, x):
    x = jnp.einsum("bhwc,cd->bhwd", x, params["stem"])
    for block in params["blocks"]:
        h = jax.nn.relu(depthwise(x, block["depth"]))
        x = x + jnp.einsum("bhwc,cd->bhwd", h, block["point"])
    return x.mean((1, 2)) @ params["head"]


optimizer = optax.sgd(1e-2, momentum=0.9)


@jax.jit
def train_step(params, opt_state, images, labels):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(network(p, images), labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


key = jax.random.key(0)
params = {
    "stem": 0.3 * jax.random.normal(key, (3, CHANNELS)),
    "blocks": [
        {"depth": 0.3 * jax.random.normal(k, (3, 3, 1, CHANNELS)), "point": 0.1 * jax.random.normal(k, (CHANNELS, CHANNELS))}
        for k in jax.random.split(key, BLOCKS)
    ],
    "head": 0.1 * jax.random.normal(key, (CHANNELS, 10)),
}
opt_state = optimizer.init(params)
for step in range(STEPS):
    k_img, k_lab = jax.random.split(jax.random.fold_in(key, step))
    labels = jax.random.randint(k_lab, (BATCH,), 0, 10)
    images = jax.random.normal(k_img, (BATCH, SIDE, SIDE, 3)) + 0.1 * labels[:, None, None, None]
    params, opt_state, loss = train_step(params, opt_state, images, labels)
    if step % 20 == 0:
        print("step", step, "loss", float(loss))
loss.block_until_ready()

lost = 0.0
if not FIXED:  # own clock: one depthwise layer, forward and backward
    x = jax.random.normal(key, (BATCH, SIDE, SIDE, CHANNELS))
    layer = jax.jit(jax.grad(lambda x, w: jnp.sum(depthwise(x, w) ** 2), argnums=(0, 1)))
    jax.block_until_ready(layer(x, params["blocks"][0]["depth"]))
    t = time.perf_counter()
    for _ in range(4):
        jax.block_until_ready(layer(x, params["blocks"][0]["depth"]))
    lost = (time.perf_counter() - t) / 4 * BLOCKS * STEPS
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
