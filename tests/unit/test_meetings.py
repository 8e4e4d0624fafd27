"""What is a barrier of all processes, by the functions of JAX on a stack."""

from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest
from jax._src import callback, distributed, xla_bridge
from jax.experimental import multihost_utils

from jaxmon.agent.jaxlink.other_threads import Position, Stack, barrier, calls_back


def stack(*functions: Callable[..., Any]) -> Stack:
    """Return the stack of a test that calls these, innermost first."""

    def code(one: Callable[..., Any]) -> CodeType:
        found: CodeType = getattr(one, "__wrapped__", one).__code__
        return found

    return [Position(code(one), 0, {}) for one in (*functions, stack)]


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        ((multihost_utils.sync_global_devices,), "sync_global_devices"),
        # Of several, what the program has called.
        (
            (
                multihost_utils.process_allgather,
                multihost_utils.assert_equal,
            ),
            "assert_equal",
        ),
        ((distributed.State.initialize,), "jax.distributed.initialize"),
        (
            (distributed.State.shutdown, distributed.shutdown),
            "jax.distributed.shutdown",
        ),
        ((xla_bridge._init_backend,), "the initialisation of devices"),
        ((), ""),
    ],
)
def test_barriers_are_known_by_what_the_program_calls(functions, expected):
    """All processes have to come to these."""
    assert barrier(stack(*functions)) == expected


def test_copying_to_and_from_global_arrays_is_no_barrier() -> None:
    """Each process does that for itself, unless a barrier does it for all."""
    to_global = multihost_utils.host_local_array_to_global_array
    to_local = multihost_utils.global_array_to_host_local_array
    inner = multihost_utils.host_local_array_to_global_array_impl
    assert barrier(stack(inner, to_global)) == ""
    assert barrier(stack(to_local)) == ""
    gather = multihost_utils.process_allgather
    assert barrier(stack(inner, to_global, gather)) == "process_allgather"


def test_callbacks_are_known() -> None:
    """An XLA program waits for what runs there."""
    assert calls_back(stack(callback._FlatCallback.__call__))
    assert not calls_back(stack(multihost_utils.sync_global_devices))
