"""Arrays of the program: which are ready, read without blocking inside JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from jaxmon import interrupts
from jaxmon.agent.jaxlink.arrays import is_ready_or_deleted, underlying_array
from jaxmon.clocks import monotonic
from jaxmon.threads import Event


_FIRST_LOOK, _LAST_LOOK, _LOOKS = 0.002, 1.0, 3600


class Pending:
    """Arrays of one call, for a `Watcher`, to be *read* once they are ready."""

    def __init__(self, arrays: Sequence[Any], read: Callable[[], None]) -> None:
        self._arrays = arrays
        self._read = read
        self._delay = _FIRST_LOOK
        self._looks = 0

    def look(self) -> float | None:
        """Read them if they are ready; return when to look again, if at all."""
        if all([is_ready_or_deleted(array) for array in self._arrays]):
            self._read()
            return None
        self._looks += 1
        self._delay = min(self._delay * 1.5, _LAST_LOOK)
        return self._delay if self._looks < _LOOKS else None


@contextmanager
def reading(jax: Any) -> Iterator[None]:
    """Allow this thread to read: a guard of the program is meant for its own lines."""
    with jax.transfer_guard_device_to_host("allow"):
        yield


def array_of(leaf: Any) -> Any:
    """
    Return a ready array as a NumPy array, one shard if it has several; 3 µs on a CPU.

    Raises:
        Exception: it was deleted meanwhile, or what computed it failed.
    """
    # A new array object: the program's own would cache the copy.
    return np.asarray(leaf.addressable_data(0))


def address_of(leaf: Any) -> int:
    """Return where a ready array is, which its views share; 0 if it was deleted."""
    try:
        return int(leaf.addressable_data(0).unsafe_buffer_pointer())
    except Exception as error:  # noqa: BLE001 - deleted, or what computed it failed
        interrupts.pass_on(error)
        return 0


_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1


def arrays_in(jax: Any, tree: Any) -> list[Any]:
    """Return the arrays in *tree*; of PRNG keys, those that they wrap."""
    leaves = jax.tree_util.tree_leaves(tree)
    return [underlying_array(leaf) for leaf in leaves if isinstance(leaf, jax.Array)]


def unready_until(jax: Any, tree: Any, stopped: Event) -> float | None:
    """
    Wait for *tree*; return when it was last seen unready, `None` if *stopped*.

    A thread that is blocked inside JAX at interpreter exit crashes the process.
    """
    arrays, pause, unready = arrays_in(jax, tree), _FIRST_PAUSE, 0.0
    while not all(map(is_ready_or_deleted, arrays)):
        unready = monotonic()
        if stopped.wait(pause):
            return None
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return unready
