"""Work dispatched to a device, and when it was done, as far as known from polling."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.jaxlink.arrays import is_ready_or_deleted, underlying_array
from jaxmon.clocks import perf_counter
from jaxmon.threads import get_ident


# Number of leaves at either end of a program's outputs among which the smallest are
# chosen.
_LEAVES = 16
# How many are kept, and the maximum number of elements of all but the smallest.
_KEPT = 6
_SMALL = 1024


class DeviceWork:
    """
    One run of a program, identified by some of its outputs: all are ready together.

    Nothing here blocks. The end lies between two polls: the last that found an output
    not ready and the first that found it ready.

    Args:
        leaves: outputs. If one is deleted or donated meanwhile, the next one is polled.

    Attributes:
        unfinished: `time.perf_counter` when the work was last seen unfinished.
        finished: the same when it was first seen finished, `None` before that.
        lost: whether every output was deleted or donated, or has an error, so that the
            end will never be known.
    """

    __slots__ = ("_leaves", "finished", "lost", "unfinished")

    def __init__(self, leaves: Sequence[Any]) -> None:
        self._leaves = tuple(leaves)
        self.unfinished = -math.inf
        self.finished: float | None = None
        self.lost = False

    @property
    def is_small(self) -> bool:
        """Whether it costs next to no memory to keep this until the work is done."""
        return all([leaf.size <= _SMALL for leaf in self._leaves])

    def look(self) -> bool:
        """Poll; return whether polling is finished. Costs 0.3 µs."""
        leaves = self._leaves
        if not leaves:
            return True
        while leaves:
            before = perf_counter()
            try:
                ready = is_ready_or_deleted(leaves[0])
                after = perf_counter()
                if ready:
                    # Returns at once, with an error if the work failed or it is gone.
                    leaves[0].block_until_ready()
            except Exception as error:  # noqa: BLE001 - met where the output is read
                interrupts.pass_on(error)
                leaves = self._leaves = leaves[1:]
                continue
            if ready:
                self.finished = after
                self._leaves = ()
            else:
                self.unfinished = before
            return ready
        self.lost = True
        return True


def smallest_outputs(leaves: Sequence[Any], array: Any) -> list[Any]:
    """
    Return the smallest of *leaves* that are non-empty arrays of type *array* and still
    exist, and a few more small ones; only a few are checked.

    A training step returns its loss along with the state for the next step, some of
    which is as small. So several are kept, those at either end first.
    """
    half = min(_LEAVES, (len(leaves) + 1) // 2)
    last, first = leaves[: -half - 1 : -1], leaves[: min(half, len(leaves) - half)]
    found = [
        (leaf.size or math.inf, leaf)
        for output in chain.from_iterable(zip_longest(last, first))
        if isinstance(output, array)
        and not (leaf := underlying_array(output)).is_deleted()
    ]
    found.sort(key=itemgetter(0))
    return [
        leaf
        for number, (size, leaf) in enumerate(found[:_KEPT])
        if not number or size <= _SMALL
    ]


def queues(leaf: Any, *, across: bool) -> tuple[Hashable, ...]:
    """
    Return the queues in which the work that produces *leaf* waits.

    An accelerator runs programs in the order of their dispatch. The CPU keeps that
    order for each dispatching thread only. What waits on devices of other processes is
    not known here.

    Args:
        leaf: an output.
        across: whether the CPU keeps the order across devices, as JAX 0.4 may: work
            then has a second queue, and must be next in both.
    """
    found: list[Hashable] = []
    for device in leaf.sharding.addressable_devices:
        if device.platform != "cpu":
            found.append(device)
            continue
        thread = get_ident()
        found += [(device, thread), thread] if across else [(device, thread)]
    return tuple(found)


def runs_on_host_cpu(leaf: Any) -> bool:
    """Return whether *leaf* is produced by the processor that runs Python."""
    return any([device.platform == "cpu" for device in leaf.devices()])


def unready(leaves: Sequence[Any], array: Any, *, limit: int) -> list[DeviceWork]:
    """Return the work behind those of *leaves* that are not ready yet."""
    found = []
    ends = leaves if len(leaves) <= limit else chain(leaves[:8], leaves[8 - limit :])
    for leaf in ends:
        if isinstance(leaf, array) and not is_ready_or_deleted(
            made := underlying_array(leaf)
        ):
            work = DeviceWork((made,))
            work.look()
            found.append(work)
    return found
