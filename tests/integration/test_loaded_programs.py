"""What is known of loaded programs, and their HLO on request."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.jaxlink import profiler
from jaxmon.agent.loaded_programs import LoadedPrograms, copy_bytes
from jaxmon.host.http import client
from jaxmon.preflight.profile import xspace
from tests.helpers import inside
from tests.helpers.agents import instrumented


@pytest.fixture
def agent(run_dir: Path) -> Iterator[Agent]:
    jax.clear_caches()
    with instrumented(socket=True) as running:
        yield running


def get(agent: Agent, query: str) -> tuple[int, Any]:
    """Return what the agent responds, once it has analysed all programs."""
    assert agent.socket is not None
    inside.programs(agent).finish(60)
    path = f"/debug/hlo{query}"
    answer = client.get(Path(agent.socket), path, seconds=60, max_bytes=1 << 26)
    body = answer.body.decode()
    return answer.status, json.loads(body) if answer.status == 200 else body


def scale(x: Any) -> Any:
    return x * 3


def shift(x: Any) -> Any:
    return x + 5


@pytest.mark.ground_truth
def test_the_newest_program_of_each_function_comes_first(agent: Agent) -> None:
    """Then older ones; those of JAX's own functions are left out."""
    first, second = jax.jit(scale), jax.jit(shift)
    for size in (2, 3):
        first(np.ones(size, np.float32))
    second(np.ones(4, np.float32))
    jnp.zeros(7)

    status, document = get(agent, "?newest=9")
    assert status == 200
    found = document["programs"]
    assert [one["function"].rpartition(".")[2] for one in found] == [
        "shift",
        "scale",
        "scale",
    ]
    for one, size in zip(found, (4, 3, 2), strict=True):
        assert one["hlo"].startswith("HloModule jit_")
        assert f"->f32[{size}]" in one["hlo"].partition("\n")[0].replace("{0}", "")
        # With source lines, unlike what fingerprints are made from.
        assert Path(__file__).name in one["hlo"]
    assert len(get(agent, "?newest=1")[1]["programs"]) == 1


@pytest.mark.ground_truth
def test_programs_are_not_kept(agent: Agent) -> None:
    """When JAX lets go of them, so has jaxmon; large constants are never printed."""
    weights = np.linspace(0.123, 1.0, 500, dtype=np.float32)
    holder = [jax.jit(lambda x: x * jnp.asarray(weights))]
    holder[0](np.ones(500, np.float32))
    (one,) = get(agent, "")[1]["programs"]
    assert "constant({...})" in one["hlo"]

    holder.clear()
    jax.clear_caches()
    gc.collect()
    assert get(agent, "")[1]["programs"] == []


@pytest.mark.parametrize("newest", ["0", "51", "-1", "x", "", "9" * 5000])
def test_numbers_out_of_range_are_rejected(agent: Agent, newest: str) -> None:
    """The response says what is allowed."""
    status, message = get(agent, f"?newest={newest}")

    assert status == 400
    assert "a number from 1 to 50" in message


@pytest.mark.ground_truth
def test_what_a_copy_takes_is_not_underestimated(agent: Agent) -> None:
    """A program's constants count, and earlier ones."""
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
