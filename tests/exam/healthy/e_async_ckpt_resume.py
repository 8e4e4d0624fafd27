"""Language-model-like training which checkpoints with orbax's CheckpointManager (asynchronous, keeps 2), stops half way as if preempted, and resumes in the same process from the newest checkpoint. Waits for the writer on purpose before the restore and at the end."""
import time
T0 = time.perf_counter()
import json
import tempfile
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

V, D, B, STEPS, STOP = 128, 192, 128, 500, 250
tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 2e-3, 50, STEPS))


def init(key):
    a, b, c = jax.random.split(key, 3)
    params = {"emb": jax.random.normal(a, (V, D)) * 0.1, "mix": jax.random.normal(b, (8 * D, D)) / (8 * D) ** 0.5, "out": jax.random.normal(c, (D, V)) / D ** 0.5}
    return {"params": params, "opt": tx.init(params), "step": jnp.zeros((), jnp.int32)}


@partial(jax.jit, donate_argnums=0)
def train_step(state, tok):
    def loss_fn(p):
        h = jax.nn.gelu(p["emb"][tok[:, :8]].reshape(tok.shape[0], -1) @ p["mix"])
        return optax.softmax_cross_entropy_with_integer_labels(h @ p["out"], tok[:, 8]).mean()
    loss, g = jax.value_and_grad(loss_fn)(state["params"])
    up, opt = tx.update(g, state["opt"], state["params"])
    return {"params": optax.apply_updates(state["params"], up), "opt": opt, "step": state["step"] + 1}, loss


def batch_at(text, step):
    i = np.random.default_rng((7, step)).integers(0, len(text) - 9, B)      # resumable: a function of the step
    return text[i[:, None] + np.arange(9)]


def train(manager, state, start, stop, text):
    losses = []
    for step in range(start, stop):
        state, loss = train_step(state, batch_at(text, step))
        losses.append(loss)
        if (step + 1) % 50 == 0:
            manager.save(step + 1, args=ocp.args.StandardSave(state))
            print(f"step {step + 1} loss {np.mean(jax.device_get(losses)):.4f}", flush=True)
            losses.clear()
    return state


def main():
    rng = np.random.default_rng(0)
    text = (np.cumsum(rng.integers(1, 4, 60_000)) % V).astype(np.int32)
    with tempfile.TemporaryDirectory() as folder:
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=True)
        with ocp.CheckpointManager(folder, options=options) as manager:
            train(manager, jax.jit(init)(jax.random.key(0)), 0, STOP, text)
            manager.wait_until_finished()
            abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, jax.eval_shape(init, jax.random.key(0)))
            sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            abstract = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding), abstract)
            state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract))
            train(manager, state, int(state["step"]), STEPS, text)
            manager.wait_until_finished()
            print("kept", sorted(manager.all_steps()))


main()
print(json.dumps({"wall": time.perf_counter() - T0}))
