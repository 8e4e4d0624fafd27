"""
Comparison of two results, bit by bit, and how they deviate.

Results are pytrees of arrays or other objects, compared on the host, leaf by leaf.

One leaf of a result on the host. Arrays are compared shard by shard, of distributed
ones only this process's shards: a failing device shows in its own. Shards that are
replicas of each other must be equal without a second run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxmon.agent.checks.arrays import reading
from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.arrays import underlying_array


_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Deviation:
    """
    Deviation of one leaf of a result.

    Attributes:
        path: its path in the result, such as ``['loss']``; empty for a single array.
        dtype: of the first result; the type's name if it is not an array.
        shape: of the first result.
        differing: number of elements whose bits differ.
        size: number of elements.
        max_abs: largest absolute difference; infinite if a number was compared with a
            NaN or an infinity.
        max_relative: largest difference relative to the larger of the two values.
        max_ulp: largest number of representable values between the two; `None` for
            other than floating-point types.
        reason: why no elements could be compared; empty if they could.
        devices: ids of the devices that alone have other values, if some have not.
        replicas: whether replicas within one run were compared, not two runs.
    """

    path: str
    dtype: str
    shape: tuple[int, ...] = ()
    differing: int = 0
    size: int = 0
    max_abs: float = 0.0
    max_relative: float = 0.0
    max_ulp: int | None = None
    reason: str = ""
    devices: tuple[int, ...] = ()
    replicas: bool = False

    def __str__(self) -> str:
        where = f"output{self.path}: {self.dtype}{list(self.shape)}"
        if self.devices:
            devices = "device" if len(self.devices) == 1 else "devices"
            where += f" on {devices} {', '.join(map(str, self.devices))} only"
        if self.replicas:
            where += ", between its replicas"
        if self.reason:
            return f"{where}: {self.reason}"
        ulp = "" if self.max_ulp is None else f", {self.max_ulp:,} ulp"
        return (
            f"{where}: {self.differing:,} of {self.size:,} elements differ, by up "
            f"to {self.max_abs:.3g} ({self.max_relative:.3g} relative{ulp})"
        )


@dataclass(frozen=True, slots=True)
class DeterminismCheck:
    """
    Result of running a function several times on the same input.

    Truthy if all runs were bit-identical.

    Attributes:
        runs: how often it ran.
        leaves: leaves of a result that were compared.
        deviations: leaves that differed, each with its largest deviation.
    """

    function: str
    runs: int
    leaves: int
    deviations: tuple[Deviation, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether all runs gave the same outputs."""
        return not self.deviations

    @property
    def max_relative(self) -> float:
        """The largest relative deviation of any element."""
        return max((of.max_relative for of in self.deviations), default=0.0)

    @property
    def devices(self) -> tuple[int, ...]:
        """Ids of the devices that alone had other values in some output."""
        return tuple(
            sorted({id_ for deviation in self.deviations for id_ in deviation.devices})
        )

    def __bool__(self) -> bool:
        return self.identical

    def __str__(self) -> str:
        if self.identical:
            outputs = "output" if self.leaves == 1 else f"{self.leaves} outputs"
            return f"{self.function} gave the same {outputs} in {self.runs} runs"
        shown = [f"  {deviation}" for deviation in self.deviations[:_MAX_SHOWN]]
        if len(self.deviations) > _MAX_SHOWN:
            shown.append(f"  and {len(self.deviations) - _MAX_SHOWN} more")
        first = f"{self.function} gave different outputs in {self.runs} runs:"
        return "\n".join([first, *shown])


def merge_deviations(first: list[Deviation], more: list[Deviation]) -> list[Deviation]:
    """Merge two lists of deviations, keeping the larger for each leaf and kind."""
    worst = {(deviation.path, deviation.replicas): deviation for deviation in first}
    for deviation in more:
        larger = worst.get((deviation.path, deviation.replicas))
        if larger is None or deviation.max_relative > larger.max_relative:
            worst[deviation.path, deviation.replicas] = deviation
    return list(worst.values())


# Floating-point formats, including those of ml_dtypes, are a sign and a magnitude.
_FLOATS = ("float", "bfloat")


def compare(first: Any, other: Any) -> tuple[int, float, float, int | None] | None:
    """Return how many elements differ, and by how much: absolute, relative, ulp."""
    if first.tobytes() == other.tobytes():
        return None
    first, other = np.atleast_1d(first), np.atleast_1d(other)
    if not _is_number(first.dtype):
        # Padding bits, in records and long doubles, mean nothing.
        numbers = (first == first) | (other == other)  # noqa: PLR0124 - a NaN
        differing = int(((first != other) & numbers).sum())
        return (differing, math.inf, math.inf, None) if differing else None
    parts = 2 if first.dtype.kind == "c" else 1
    bits = np.dtype(f"u{first.dtype.itemsize // parts}")
    arrays = [np.ascontiguousarray(array).ravel() for array in (first, other)]
    patterns = [array.view(bits).reshape(-1, parts) for array in arrays]
    mask = (patterns[0] != patterns[1]).any(axis=1)
    absolute, relative = _distances(*[array[mask] for array in arrays])
    ulp = None
    if parts > 1 or first.dtype.name.startswith(_FLOATS):
        ulp = _ulp(*[pattern[mask] for pattern in patterns])
    return int(mask.sum()), absolute, relative, ulp


def _is_number(dtype: Any) -> bool:
    """Return whether *dtype* is numeric, with at most 64 bits (complex: 128)."""
    if dtype.kind == "V":  # ml_dtypes are numeric, records are not
        return dtype.type is not np.void
    return dtype.kind in "biufcmM" and dtype.itemsize <= (
        16 if dtype.kind == "c" else 8
    )


def _distances(first: Any, other: Any) -> tuple[float, float]:
    if first.dtype.kind in "iu" and first.dtype.itemsize == 8:  # noqa: PLR2004 - bytes
        # Their difference may overflow their type.
        larger = np.maximum(first, other).astype(np.float64)
        apart = np.abs(first.astype(np.longdouble) - other.astype(np.longdouble))
        scale = np.maximum(
            np.abs(larger), np.abs(np.minimum(first, other).astype(float))
        )
    else:
        wide = np.complex128 if first.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            first, other = first.astype(wide), other.astype(wide)
            apart = np.abs(first - other)
            scale = np.maximum(np.abs(first), np.abs(other))
    with np.errstate(all="ignore"):
        relative = np.where(apart == 0, 0.0, apart / scale)
    # NaNs with different bits count as equal; a NaN and a number do not.
    both = np.isnan(first) & np.isnan(other) if first.dtype.kind in "fc" else False
    apart = np.where(both, 0.0, np.where(np.isnan(apart), np.inf, apart))
    relative = np.where(both, 0.0, np.where(np.isnan(relative), np.inf, relative))
    return float(apart.max(initial=0)), float(relative.max(initial=0))


def _ulp(array: Any, other: Any) -> int:
    """Return the largest distance between two arrays of sign-magnitude bit patterns."""
    sign = np.uint64(1 << (array.dtype.itemsize * 8 - 1))

    def ordered(bits: Any) -> Any:
        bits = bits.astype(np.uint64)
        magnitude = bits & (sign - np.uint64(1))
        return np.where(bits & sign, sign - magnitude, sign + magnitude)

    first, second = ordered(array), ordered(other)
    return int((np.maximum(first, second) - np.minimum(first, second)).max(initial=0))


class _Part(NamedTuple):
    """What a device holds of an array, at a *place*; of others, all of it."""

    device: int | None
    place: Hashable
    data: Any


class HostLeaf(NamedTuple):
    """A leaf on the host: *parts* of an array, by device, or the object itself."""

    dtype: str
    shape: tuple[int, ...]
    parts: tuple[_Part, ...]
    value: object = None

    def deviations(self, path: str, other: HostLeaf) -> Iterator[Deviation]:
        """Yield the deviation of *other*, and that between the replicas in either."""
        reason = self._incomparable(other)
        if reason:
            yield Deviation(
                path, self.dtype, self.shape, max_relative=math.inf, reason=reason
            )
            return
        pairs = [
            (part, other_part.data)
            for part, other_part in zip(self.parts, other.parts, strict=True)
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
        found = [
            (part, distances) for part, distances in compared if distances is not None
        ]
        if not found:
            return None
        # Of replicas, the one with most differences counts.
        differing: dict[Hashable, int] = {}
        for part, distances in found:
            differing[part.place] = max(differing.get(part.place, 0), distances[0])
        sizes = {part.place: part.data.size for part in self.parts}
        ulps = [distances[3] for _, distances in found if distances[3] is not None]
        devices = [part.device for part, _ in found if part.device is not None]
        some = named and len(devices) < len(self.parts)
        return Deviation(
            path,
            self.dtype,
            self.shape,
            differing=sum(differing.values()),
            size=sum(sizes.values()),
            max_abs=max(distances[1] for _, distances in found),
            max_relative=max(distances[2] for _, distances in found),
            max_ulp=max(ulps, default=None),
            devices=tuple(sorted(devices)) if some else (),
            replicas=replicas,
        )


def host_leaf(jax: Any, leaf: Any) -> HostLeaf:
    """Return *leaf* on the host; blocks until its devices are done."""
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
    return tuple([(dimension.start, dimension.stop) for dimension in index])


def _majority(values: Sequence[bytes]) -> int | None:
    """Return the number of a value that more than half have, `None` without one."""
    [(value, count)] = Counter(values).most_common(1)
    return values.index(value) if count * 2 > len(values) else None


def _same(first: Any, other: Any) -> bool:
    """Return whether two objects, or two arrays of objects, are equal."""
    equal: Any = first is other or first == other
    return bool(equal.all() if hasattr(equal, "all") else equal)


class HostResult:
    """
    A result copied to the host, for comparison.

    Blocks until the devices are done and copies; keeps no reference to the arrays.
    """

    def __init__(self, jax: Any, tree: Any) -> None:
        self._jax = jax
        paths, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._paths = [jax.tree_util.keystr(path) for path, _ in paths]
        with reading(jax):
            self._leaves = [host_leaf(jax, leaf) for _, leaf in paths]

    def __len__(self) -> int:
        return len(self._leaves)

    def deviations(self, other: HostResult) -> list[Deviation]:
        """Return the deviations of *other*."""
        if self._structure != other._structure:
            reason = f"has a different tree structure, {_short(str(other._structure))}"
            structure = _short(str(self._structure))
            return [Deviation("", structure, max_relative=math.inf, reason=reason)]
        return [
            deviation
            for path, leaf, counterpart in zip(
                self._paths, self._leaves, other._leaves, strict=True
            )
            for deviation in leaf.deviations(path, counterpart)
        ]


def compare_leaves(
    jax: Any, names: Sequence[str], first: list[Any], again: list[Any]
) -> list[Deviation]:
    """
    Return the deviations of *again* from *first*. Both are emptied: what has been
    compared frees its device memory, and one leaf of each is on the host at a time.
    """
    found: list[Deviation] = []
    first.reverse()
    again.reverse()
    with reading(jax):
        for name in names:
            leaf = host_leaf(jax, first.pop())
            found += leaf.deviations(name, host_leaf(jax, again.pop()))
    return found


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
