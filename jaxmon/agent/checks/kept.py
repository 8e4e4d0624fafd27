"""
Copies of a call's outputs, from which its next call can be re-run.

A training step donates the state that its previous call returned. After the call that
state is gone, and nothing of ours runs between the evaluation of the arguments and the
call. So the outputs of one call are copied, each shard on its device, and if the next
call donates them, its re-run gets the copies.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import (
    copied_on_devices,
    underlying_array,
    with_underlying,
)
from jaxmon.clocks import monotonic


class KeptOutputs:
    """
    Copies of *arrays*, which must not wrap others; dispatches them, waits for none.

    Attributes:
        function: the function that returned the arrays.
        since: `time.monotonic` when they were made.
    """

    def __init__(self, jax: Any, function: Function, arrays: Sequence[Any]) -> None:
        self._jax = jax
        self.function = function
        self.since = monotonic()
        # By identity; the program's own arrays are not kept alive.
        self._copies = {
            id(array): (weakref.ref(array), copy)
            for array, copy in zip(arrays, copied_on_devices(jax, arrays), strict=True)
        }

    def free(self) -> None:
        """Free the copies."""
        self._copies.clear()

    def arguments(
        self, leaves: Sequence[Any], donated: frozenset[int] | None
    ) -> list[Any] | None:
        """
        Return the *leaves* of a call that has been made, with copies in place of the
        *donated* ones, of all arrays if it is not known which; `None` if one is gone
        that was not an output. Each copy is returned once.
        """
        found = list(leaves)
        alive = []
        for number, leaf in enumerate(leaves):
            if not isinstance(leaf, self._jax.Array):
                continue
            array = underlying_array(leaf)
            if donated is not None and number not in donated:
                if array.is_deleted():
                    return None
                continue
            original, copy = self._copies.pop(id(array), (None, None))
            if original is not None and original() is array:
                found[number] = with_underlying(leaf, copy)
            elif array.is_deleted():
                return None
            else:
                alive.append(number)
        arrays = [underlying_array(leaves[number]) for number in alive]
        for number, copy in zip(
            alive, copied_on_devices(self._jax, arrays), strict=True
        ):
            found[number] = with_underlying(leaves[number], copy)
        return found
