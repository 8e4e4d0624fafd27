"""
Work that a device was given, and when it was done as far as anybody looked.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import chain
from operator import call
from threading import get_ident
from time import perf_counter
from typing import Any


# Leaves at either end of a program's outputs among which the smallest is chosen.
_LEAVES = 16


class Work:
    """
    One run of a program, known by one of its outputs: all are ready together.

    Nothing here waits. The end lies between two looks, the last that found the output
    not ready and the first that found it ready.

    Attributes:
        unfinished: `time.perf_counter` when the work was last seen unfinished.
        finished: the same when it was first seen finished, `None` before that.
        lost: the output was deleted, donated, or holds an error: the end will
            never be known.
    """

    __slots__ = ("_leaf", "finished", "lost", "unfinished")

    def __init__(self, leaf: Any) -> None:
        self._leaf = leaf
        self.unfinished = -math.inf
        self.finished: float | None = None
        self.lost = False

    def look(self) -> bool:
        """
        Look now; return whether there is nothing more to learn. Costs 0.3 µs.
        """
        leaf = self._leaf
        if leaf is None:
            return True
        before = perf_counter()
        try:
            ready = is_over(leaf)
            after = perf_counter()
            if ready:
                # Returns at once, with an error where the work failed or is deleted.
                leaf.block_until_ready()
        except Exception:  # noqa: BLE001 - the user meets the error where he reads
            self.lost = True
            self._leaf = None
            return True
        if not ready:
            self.unfinished = before
            return False
        self.finished = after
        self._leaf = None
        return True


def is_over(array: Any) -> bool:
    """
    Tell whether *array* is ready, or deleted.

    To 0.10 JAX crashes when a deleted array is asked whether it is ready, and its owner
    may delete it at any time. Both questions are asked from C, within one bytecode,
    so that no other thread runs between them.
    """
    return any(map(call, (array.is_deleted, array.is_ready)))


def smallest(leaves: Sequence[Any], array: Any) -> Any | None:
    """
    Return a small leaf of type *array* that exists and holds something; few are
    looked at.
    """
    if len(leaves) > 2 * _LEAVES:
        leaves = (*leaves[:_LEAVES], *leaves[-_LEAVES:])
    best, best_size = None, math.inf
    for output in leaves:
        if not isinstance(output, array):
            continue
        leaf = numbers(output)
        if leaf.is_deleted():
            continue
        size = leaf.size or math.inf
        if best is None or size < best_size:
            best, best_size = leaf, size
    return best


def queues(leaf: Any, *, across: bool) -> tuple[Hashable, ...]:
    """
    Return the queues in which the work that makes *leaf* waits its turn.

    An accelerator runs programs in the order of their dispatch. The CPU keeps that
    order for each dispatching thread only.

    Args:
        leaf: an output.
        across: the CPU may keep it across devices, as JAX 0.4 does: work has a second
            queue then, and must be the next one in both.
    """
    found: list[Hashable] = []
    for device in leaf.devices():
        if device.platform != "cpu":
            found.append(device)
            continue
        thread = get_ident()
        found += [(device, thread), thread] if across else [(device, thread)]
    return tuple(found)


def unready(leaves: Sequence[Any], array: Any, *, limit: int) -> list[Work]:
    """
    Return the work behind those of *leaves* that are still being made.
    """
    found = []
    ends = leaves if len(leaves) <= limit else chain(leaves[:8], leaves[8 - limit :])
    for leaf in ends:
        if isinstance(leaf, array) and not is_over(made := numbers(leaf)):
            work = Work(made)
            work.look()
            found.append(work)
    return found


def numbers(array: Any) -> Any:
    """
    Return what *array* is made of: PRNG keys are arrays that cannot tell whether they
    are ready, nor JAX 0.4 their size, around one that can.
    """
    return getattr(array, "_base_array", array)
