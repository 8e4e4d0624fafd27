"""
Six programs that are slow to compile, each for another reason, at the line that ends
with its name. ``python -m tests.programs.slow_compiles`` runs them all.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


TABLE = np.random.default_rng(0).random((300, 300)).astype(np.float32)


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def forward(weights: Any, x: Any) -> Any:
    for w in weights:
        x = layer(w, x)
        x = x - x.mean(-1, keepdims=True)  # forward
    return x.sum()


def score(x: Any) -> Any:
    y = jnp.sin(x) * 2
    basis = jnp.asarray(TABLE)
    gram = jnp.cumsum(jnp.exp(basis) @ basis.T, axis=1)  # score
    return (gram @ y).sum()


def energy(q: Any) -> Any:
    d = q[:, None] - q[None]
    return (1 / (1 + (d * d).sum(-1))).sum()


def leapfrog(q: Any, p: Any) -> Any:
    p = p - 0.01 * jax.grad(energy)(q)
    q = q + 0.01 * p
    return q, p


def trajectory(q: Any, p: Any, turns: int = 60) -> Any:
    for _ in range(turns):
        q, p = leapfrog(q, p)  # trajectory
    return q, energy(q)


def positions(n: int) -> Any:
    out = []
    for i in range(n):
        total = sum(((i * k) % 97) / 97 for k in range(90_000))  # encode
        out.append(total)
    return jnp.array(out)


def encode(x: Any) -> Any:
    x = x * 2
    return (x + positions(300)).sum()


def sort_rows(x: Any, turns: int) -> Any:
    for axis in (0, 1):
        for _ in range(turns):
            x = jnp.sort(x, axis=axis) + 0.1  # net
    return x


def net(x: Any, k: Any, turns: int = 150) -> Any:
    x = jax.nn.relu(jax.lax.conv_general_dilated(x, k, (1, 1), "SAME"))
    return jax.nn.softmax(sort_rows(x.mean((0, 1)), turns)).sum()


def loss(params: Any, x: Any) -> Any:
    for w, b in params:
        x = jax.nn.gelu(x @ w + b)
    return (x**2).mean()


def update(params: Any, x: Any) -> Any:
    grads = jax.grad(loss)(params, x)
    pairs = zip(params, grads, strict=True)
    return [(w - 0.1 * gw, b - 0.1 * gb) for (w, b), (gw, gb) in pairs]


def train(params: Any, x: Any, turns: int = 30) -> Any:
    for _ in range(turns):
        params = update(params, x)  # train
    return params, loss(params, x)


PROGRAMS: dict[Any, tuple[Any, ...]] = {
    forward: ([np.ones((16, 16), np.float32)] * 700, np.ones((4, 16), np.float32)),
    score: (np.ones(300, np.float32),),
    trajectory: (np.ones((12, 3), np.float32), np.zeros((12, 3), np.float32)),
    encode: (np.ones(300, np.float32),),
    net: (np.ones((2, 4, 16, 16), np.float32), np.ones((4, 4, 3, 3), np.float32)),
    train: (
        [(np.ones((8, 8), np.float32), np.zeros(8, np.float32))] * 12,
        np.ones((4, 8), np.float32),
    ),
}


if __name__ == "__main__":
    # Looks know which function a line calls: one for each.
    jax.jit(forward)(*PROGRAMS[forward])
    jax.jit(score)(*PROGRAMS[score])
    jax.jit(trajectory)(*PROGRAMS[trajectory])
    jax.jit(encode)(*PROGRAMS[encode])
    jax.jit(net)(*PROGRAMS[net])
    jax.jit(train)(*PROGRAMS[train])
