"""What is known of loaded programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.jaxlink import profiler
from jaxmon.agent.loaded import LoadedPrograms, copy_bytes
from jaxmon.profile import xspace
from tests import inside
from tests.instrumented import instrumented


@pytest.fixture
def agent(run_dir: Path) -> Iterator[Agent]:
    jax.clear_caches()
    with instrumented(socket=True) as running:
        yield running


def shift(x: Any) -> Any:
    return x + 5


@pytest.mark.ground_truth
def test_what_a_copy_takes_is_not_underestimated(agent: Agent) -> None:
    """
    A program's constants count, which may be most of it; so do programs compiled before
    jaxmon was started, of which nothing is known.
    """
    weights = np.arange(1 << 18, dtype=np.float32).reshape(512, 512) ** 0.5  # 1 MiB
    product = jax.jit(lambda x: x @ jnp.asarray(weights))
    product(np.ones((2, 512), np.float32))
    inside.programs(agent).finish(60)
    for loaded in (inside.programs(agent).loaded, LoadedPrograms(jax)):
        expected = loaded.copy_bytes()
        assert expected is not None
        copied = len(profiler.programs(jax))
        assert 1 << 20 < copied < expected < 100 * copied


def test_constants_are_counted_by_their_type() -> None:
    """Small ones are part of the text."""
    text = (
        "\n  %c.1 = f32[10,20]{1,0} constant({...})\n  %d = pred[7]{0} constant({...})"
    )
    text += "\n  %e = bf16[4]{0} constant({1, 2, 3, 4})\n  %f = s4[3] constant({...})"

    assert copy_bytes([text]) == 20 * len(text) + 2 * (4 * 200 + 7 + 3)


def test_a_trace_of_programs_has_nothing_else(agent: Agent) -> None:
    """It is what is added to a profile that was recorded without them."""
    shifting = jax.jit(shift)
    shifting(np.ones(3, np.float32))
    space = xspace.parse(profiler.programs(jax))

    assert space.programs
    assert not any(line.events for plane in space.planes for line in plane.lines)
