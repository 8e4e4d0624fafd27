"""Object detector with post-processing. "The network takes 5 ms per picture, the selection of the boxes behind it a quarter of a second."

Truth: the boxes are selected with boolean masks on jax arrays outside of jit; the number of boxes differs from picture to picture, so each new number compiles gather, sort and the rest anew.
Advice: a fixed number of boxes (top_k and a mask, nonzero(size=...)) within jit, or NumPy for the small post-processing after one device_get.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"shape|size|number|mask|boolean|dynamic|length|eager|outside")
xp = np if FIXED else jnp


@jax.jit
def detect(params, picture):
    x = picture[None, :, :, None]
    for kernel in params["convs"]:
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    x = x[0].reshape(-1, x.shape[-1])
    raw = x @ params["head"]
    scores = jax.nn.sigmoid(4 * (raw[:, 0] - raw[:, 0].mean()) / raw[:, 0].std() - 5)
    center = jnp.stack(jnp.unravel_index(jnp.arange(len(x)), (32, 32)), -1) * 8.0
    size = 8 + 8 * jax.nn.softplus(raw[:, 1:3])
    return jnp.concatenate([center - size / 2, center + size / 2], -1), scores


def select(boxes, scores):
    boxes, scores = xp.asarray(boxes), xp.asarray(scores)
    good = scores > 0.5
    boxes, scores = boxes[good], scores[good]  # fault
    order = xp.argsort(-scores)
    boxes = boxes[order]
    lo = xp.maximum(boxes[:, None, :2], boxes[None, :, :2])  # fault
    hi = xp.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    inter = xp.prod(xp.clip(hi - lo, 0, None), -1)
    area = xp.prod(boxes[:, 2:] - boxes[:, :2], -1)
    iou = np.asarray(inter / (area[:, None] + area[None] - inter))
    keep = []
    for i in range(len(iou)):
        if not any(iou[i, j] > 0.4 for j in keep):
            keep.append(i)
    return keep


def main():
    k = jax.random.split(jax.random.key(0), 4)
    params = {"convs": [jax.random.normal(k[0], (3, 3, 1, 16)) / 3, jax.random.normal(k[1], (3, 3, 16, 32)) / 12, jax.random.normal(k[2], (3, 3, 32, 64)) / 17],
              "head": jax.random.normal(k[3], (64, 3)) / 8}
    rng = np.random.default_rng(0)
    pictures = rng.random((8, 256, 256)).astype(np.float32)
    jax.block_until_ready(detect(params, pictures[0]))
    lost, found = 0.0, []
    for picture in pictures:
        boxes, scores = jax.block_until_ready(detect(params, picture))
        t = time.perf_counter()
        found.append(len(select(boxes, scores)))  # fault
        lost += time.perf_counter() - t
    print("boxes", found)
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))


main()
