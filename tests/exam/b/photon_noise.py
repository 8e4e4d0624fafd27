"""The denoiser for microscope pictures is trained on simulated photon counts. Swapping the Gaussian noise for photon
noise made the run several times longer; the network and the batch did not change.

Truth: `jax.random.poisson` is a rejection sampler in while loops that run until the unluckiest pixel is accepted; drawing the noise takes most of the time.
Advice: draw the counts with NumPy on the host (in the loader), or use a loop-free approximation (a rounded Gaussian at high counts), or draw once and reuse across steps.

Source: jax-ml/jax#39312, bartz-org/bartz#177 (gamma: jax-ml/jax#18984).
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"poisson|sampl|random|noise|draw|simulat", r"while|loop|slow|numpy|host|approx|time|%|share|most|wait")
BATCH, SIDE, STEPS = 64, 64, 60

rng = np.random.default_rng(0)
yy, xx = np.mgrid[:SIDE, :SIDE] / SIDE
centres = rng.uniform(0.2, 0.8, size=(BATCH, 2, 1, 1))
clean = 0.5 + 60.0 * np.exp(-(((xx - centres[:, 0]) ** 2 + (yy - centres[:, 1]) ** 2) / 0.02))
clean = jnp.asarray(clean, jnp.float32)


@jax.jit
def photon_counts(key, intensity):
    return jax.random.poisson(key, intensity).astype(jnp.float32)  # fault


def denoise(params, image):
    """One value per 4x4 tile from the sixteen counts in it."""
    tiles = image.reshape(BATCH, SIDE // 4, 4, SIDE // 4, 4).transpose(0, 1, 3, 2, 4).reshape(BATCH, SIDE // 4, SIDE // 4, 16)
    hidden = jax.nn.relu(jnp.sqrt(tiles + 0.375) @ params["w1"] + params["b1"])
    return (hidden @ params["w2"])[..., 0]


optimizer = optax.adam(1e-3)


@jax.jit
def train_step(params, opt_state, noisy, target):
    small = target.reshape(BATCH, SIDE // 4, 4, SIDE // 4, 4).mean((2, 4))
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((denoise(p, noisy) - jnp.sqrt(small)) ** 2))(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


key = jax.random.key(0)
params = {"w1": 0.2 * jax.random.normal(key, (16, 64)), "b1": jnp.zeros(64), "w2": 0.1 * jax.random.normal(key, (64, 1))}
opt_state = optimizer.init(params)
drawing = 0.0
for step in range(STEPS):
    key, sub = jax.random.split(key)
    t = time.perf_counter()
    if FIXED:
        noisy = jnp.asarray(rng.poisson(np.asarray(clean)), jnp.float32)
    else:
        noisy = photon_counts(sub, clean).block_until_ready()  # fault
    if step:
        drawing += time.perf_counter() - t
    params, opt_state, loss = train_step(params, opt_state, noisy, clean)
    loss.block_until_ready()
print("loss", float(loss))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(drawing, 2)}))
