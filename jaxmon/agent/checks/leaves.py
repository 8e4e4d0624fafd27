"""
One leaf of a result on the host.

Arrays are compared shard by shard, of distributed ones only this process's shards: a
failing device shows in its own. Shards that are replicas of each other must be equal
without a second run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxmon.agent.checks.bits import compare
from jaxmon.agent.checks.deviations import Deviation
from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.arrays import underlying_array


class _Part(NamedTuple):
    """
    What one device holds of an array; of other arrays, all of it.

    Attributes:
        device: its id, `None` if no device holds it.
        place: where in the whole array; equal for replicas.
        data: a NumPy array.
    """

    device: int | None
    place: Hashable
    data: Any


class HostLeaf(NamedTuple):
    """
    A leaf on the host: parts of an array, or the object itself.

    Attributes:
        dtype: of an array, else the name of its type.
        shape: of an array.
        parts: of an array, by device.
        value: what is no array.
    """

    dtype: str
    shape: tuple[int, ...]
    parts: tuple[_Part, ...]
    value: object = None

    def deviations(self, path: str, other: HostLeaf) -> Iterator[Deviation]:
        """
        Yield the deviation of *other*, if any, and that between the replicas in either.
        """
        reason = self._incomparable(other)
        if reason:
            yield Deviation(
                path, self.dtype, self.shape, max_relative=math.inf, reason=reason
            )
            return
        pairs = [
            (one, other_part.data)
            for one, other_part in zip(self.parts, other.parts, strict=True)
        ]
        found = self._deviation(path, pairs)
        if found is not None:
            yield found
        replicas = self._between_replicas(path) or other._between_replicas(path)
        if replicas is not None:
            yield replicas

    def _incomparable(self, other: HostLeaf) -> str:
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return f"became {other.dtype}{list(other.shape)}"
        if not self.parts:
            return "" if _same(self.value, other.value) else "a different value"
        ours, theirs = (
            [(part.device, part.place, part.data.shape) for part in leaf.parts]
            for leaf in (self, other)
        )
        return "" if ours == theirs else "a different sharding"

    def _between_replicas(self, path: str) -> Deviation | None:
        """Return how replicas deviate from what most devices have."""
        pairs = []
        for place, count in Counter(part.place for part in self.parts).items():
            if count > 1:
                replicas = [part for part in self.parts if part.place == place]
                most = _majority([part.data.tobytes() for part in replicas])
                pairs += [(part, replicas[most or 0].data) for part in replicas]
                if most is None:
                    # Nothing says which of them is right.
                    return self._deviation(path, pairs, replicas=True, named=False)
        return self._deviation(path, pairs, replicas=True)

    def _deviation(
        self,
        path: str,
        pairs: Sequence[tuple[_Part, Any]],
        *,
        replicas: bool = False,
        named: bool = True,
    ) -> Deviation | None:
        """Return the deviation of parts from what they are paired with, if any."""
        compared = [(part, compare(data, part.data)) for part, data in pairs]
        found = [(part, one) for part, one in compared if one is not None]
        if not found:
            return None
        # Of replicas, the one with most differences counts.
        differing: dict[Hashable, int] = {}
        for part, one in found:
            differing[part.place] = max(differing.get(part.place, 0), one[0])
        sizes = {part.place: part.data.size for part in self.parts}
        ulps = [one[3] for _, one in found if one[3] is not None]
        devices = [part.device for part, _ in found if part.device is not None]
        some = named and len(devices) < len(self.parts)
        return Deviation(
            path,
            self.dtype,
            self.shape,
            differing=sum(differing.values()),
            size=sum(sizes.values()),
            max_abs=max(one[1] for _, one in found),
            max_relative=max(one[2] for _, one in found),
            max_ulp=max(ulps, default=None),
            devices=tuple(sorted(devices)) if some else (),
            replicas=replicas,
        )


def host_leaf(jax: Any, leaf: Any) -> HostLeaf:
    """Return *leaf* on the host; blocks until its devices are done."""
    import numpy as np  # noqa: PLC0415 - this package loads without it

    if isinstance(leaf, jax.Array):
        array = underlying_array(leaf)
        # New array objects: the program's own would cache the copy.
        parts = [
            _Part(shard.device.id, _place(shard.index), np.asarray(shard.data))
            for shard in array.addressable_shards
        ]
        return HostLeaf(str(leaf.dtype), array.shape, tuple(parts))
    if isinstance(leaf, (np.ndarray, np.generic)):
        # A copy: the function may return the same array repeatedly.
        copied = np.array(leaf, leaf.dtype.newbyteorder("="))
        if copied.dtype.hasobject:
            return HostLeaf(str(leaf.dtype), leaf.shape, (), copied)
        return HostLeaf(str(leaf.dtype), leaf.shape, (_Part(None, (), copied),))
    if isinstance(leaf, (bool, int, float, complex)):
        found = np.asarray(leaf)
        if found.dtype.kind != "O":
            return HostLeaf(name_of(type(leaf)), (), (_Part(None, (), found),))
    return HostLeaf(name_of(type(leaf)), (), (), leaf)


def _place(index: tuple[slice, ...]) -> Hashable:
    return tuple([(one.start, one.stop) for one in index])


def _majority(values: Sequence[bytes]) -> int | None:
    """Return the number of a value that more than half have, `None` without one."""
    [(value, count)] = Counter(values).most_common(1)
    return values.index(value) if count * 2 > len(values) else None


def _same(one: Any, other: Any) -> bool:
    """Return whether two objects, or two arrays of objects, are equal."""
    equal: Any = one is other or one == other
    return bool(equal.all() if hasattr(equal, "all") else equal)
