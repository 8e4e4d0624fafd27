"""
Servers that keep their users waiting, or fail them, by one mistake each.

The lines to blame end with ``# here``.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon
from tests.programs.verdicts.harness import arrive, batch, step, weights


@jax.jit  # type: ignore[untyped-decorator]
def score(prompt: Any) -> Any:
    return jnp.mean(jnp.tanh(prompt) ** 3)


def unpadded_prompts() -> None:
    def answer(number: int) -> None:
        with jaxmon.request("score"):
            float(score(np.ones((number + 1, 256), np.float32)))  # here

    arrive(answer, 0.2)


@jax.jit  # type: ignore[untyped-decorator]
def attention(prompt: Any) -> Any:
    return jnp.tanh(prompt[:, None] * prompt[None, :]) @ prompt


def long_prompts() -> None:
    prompt = jnp.ones(1 << 22)

    def answer(_: int) -> None:
        with suppress(RuntimeError), jaxmon.request("attend"):
            attention(prompt).block_until_ready()  # here

    arrive(answer, 0.1)


def unusable_cache() -> None:
    def answer(_: int) -> None:
        with jaxmon.request("answer"):
            float(step(weights, batch)[1])

    with tempfile.NamedTemporaryFile() as file:
        jax.config.update("jax_compilation_cache_dir", file.name)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        arrive(answer, 0.05)
