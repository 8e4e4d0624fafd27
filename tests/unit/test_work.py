"""Which outputs of a program are inspected, and the results."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent.jaxlink.arrays import underlying_array
from jaxmon.agent.sampling.window import DeviceWork, queues, smallest_outputs, unready


def kept(*sizes: int) -> list[int]:
    """Return the positions of the outputs, of these sizes, that are kept."""
    leaves = [jnp.zeros(size) for size in sizes]
    found = smallest_outputs(leaves, jax.Array)
    return [next(n for n, leaf in enumerate(leaves) if leaf is one) for one in found]


def test_the_smallest_comes_first_and_what_is_large_is_not_kept() -> None:
    """Of large outputs only one is kept from being freed."""
    assert kept(5000, 3, 7000) == [1]
    assert kept(9000, 5000, 7000) == [1]
    assert kept(5, 4, 3) == [2, 1, 0]


@pytest.mark.parametrize("count", [1, 2, 3, 31, 32, 33, 34, 500])
def test_of_equals_those_at_either_end_are_kept(count: int) -> None:
    """Each once, the last and the first before others."""
    found = kept(*[1] * count)

    assert len(found) == len(set(found)) == min(count, 6)
    assert found[:2] == [count - 1, 0][:count]


def test_what_cannot_tell_is_not_kept() -> None:
    """Empty arrays only without others, deleted ones and objects never."""
    gone = jnp.ones(2)
    gone.delete()
    array, empty = jnp.ones(3), jnp.ones(0)

    assert smallest_outputs([gone, np.ones(1), 1.0, None, empty, array], jax.Array) == [
        array
    ]
    assert smallest_outputs([empty], jax.Array) == [empty]
    assert (
        smallest_outputs([gone, 1.0], jax.Array)
        == smallest_outputs([], jax.Array)
        == []
    )


def test_where_one_output_goes_another_tells() -> None:
    """Only when all are gone is the end lost."""
    outputs = jax.block_until_ready([jnp.ones(2), jnp.ones(2)])
    outputs[0].delete()
    work = DeviceWork(outputs)

    assert work.look()
    assert work.finished is not None
    assert not work.lost
    outputs[1].delete()
    work = DeviceWork(outputs)
    assert work.look()
    assert work.look()
    assert (work.finished, work.lost) == (None, True)


def test_inputs_that_are_there_are_not_waited_for() -> None:
    """Nor deleted ones, nor what is no array."""
    ready = jax.block_until_ready(jnp.ones(2))
    gone = jnp.ones(2)
    gone.delete()
    leaves: list[Any] = [ready, gone, 1.0, "text"]

    assert unready(leaves, jax.Array, limit=16) == []
    assert unready(leaves * 20, jax.Array, limit=16) == []


def test_a_key_is_looked_at_by_its_numbers() -> None:
    """It cannot report readiness on every JAX."""
    key = jax.random.key(0)

    (leaf,) = smallest_outputs([key], jax.Array)
    assert leaf is underlying_array(key)
    assert DeviceWork([leaf]).look()


class Spread:
    """An array of which one part is on a device of this process, as in a job."""

    def __init__(self) -> None:
        self.addressable_devices = set(jax.local_devices()[:1])

    @property
    def sharding(self) -> Spread:
        return self


def test_work_waits_in_the_queues_of_this_process() -> None:
    """What other processes have dispatched before is unknown, and does not matter."""
    own = queues(jnp.ones(2), across=False)
    assert own == queues(Spread(), across=False)
    assert len(own) == 1
