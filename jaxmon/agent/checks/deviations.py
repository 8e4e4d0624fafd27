"""
Bitwise comparison of two results.

Results are pytrees of arrays or other objects. Arrays are compared on the host; of
distributed arrays, only this process's shards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jaxmon.agent.inspection import name_of


_MAX_SHOWN = 10

# Floating-point formats, including those of ml_dtypes, are a sign and a magnitude.
_FLOATS = ("float", "bfloat")


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

    def __str__(self) -> str:
        where = f"output{self.path}: {self.dtype}{list(self.shape)}"
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
        function: its label.
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
        return max((one.max_relative for one in self.deviations), default=0.0)

    def __bool__(self) -> bool:
        return self.identical

    def __str__(self) -> str:
        if self.identical:
            outputs = "output" if self.leaves == 1 else f"{self.leaves} outputs"
            return f"{self.function} gave the same {outputs} in {self.runs} runs"
        shown = [f"  {one}" for one in self.deviations[:_MAX_SHOWN]]
        if len(self.deviations) > _MAX_SHOWN:
            shown.append(f"  and {len(self.deviations) - _MAX_SHOWN} more")
        first = f"{self.function} gave different outputs in {self.runs} runs:"
        return "\n".join([first, *shown])


class HostResult:
    """
    A result copied to the host, for comparison.

    Blocks until the devices are done and copies; keeps no reference to the arrays.
    """

    def __init__(self, jax: Any, tree: Any) -> None:
        self._jax = jax
        paths, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._paths = [jax.tree_util.keystr(path) for path, _ in paths]
        # The program's transfer guard is meant for its own code.
        with jax.transfer_guard_device_to_host("allow"):
            self._leaves = [_leaf(jax, leaf) for _, leaf in paths]

    def __len__(self) -> int:
        return len(self._leaves)

    def deviations(self, other: HostResult) -> list[Deviation]:
        """Return the deviations of *other*."""
        if self._structure != other._structure:
            reason = f"has a different tree structure, {_short(str(other._structure))}"
            structure = _short(str(self._structure))
            return [
                Deviation("", structure, max_relative=math.inf, reason=reason),
            ]
        found = (
            leaf.deviation(path, counterpart)
            for path, leaf, counterpart in zip(
                self._paths, self._leaves, other._leaves, strict=True
            )
        )
        return [one for one in found if one is not None]


class _Leaf:
    """A leaf on the host: parts of an array, or the object itself."""

    def __init__(
        self, dtype: str, shape: tuple[int, ...], parts: list[Any], value: object
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.parts = parts
        self.value = value

    def deviation(self, path: str, other: _Leaf) -> Deviation | None:
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            reason = f"became {other.dtype}{list(other.shape)}"
            return self._other(path, reason)
        if not self.parts:
            same = _same(self.value, other.value)
            return None if same else self._other(path, "a different value")
        if [part.shape for part in self.parts] != [p.shape for p in other.parts]:
            return self._other(path, "a different sharding")
        found = [
            one for one in map(_compare, self.parts, other.parts) if one is not None
        ]
        if not found:
            return None
        ulps = [one[3] for one in found if one[3] is not None]
        return Deviation(
            path,
            self.dtype,
            self.shape,
            differing=sum(one[0] for one in found),
            size=sum(part.size for part in self.parts),
            max_abs=max(one[1] for one in found),
            max_relative=max(one[2] for one in found),
            max_ulp=max(ulps, default=None),
        )

    def _other(self, path: str, reason: str) -> Deviation:
        return Deviation(
            path, self.dtype, self.shape, max_relative=math.inf, reason=reason
        )


def merge_deviations(first: list[Deviation], more: list[Deviation]) -> list[Deviation]:
    """Merge two lists of deviations, keeping the larger for each leaf."""
    worst = {one.path: one for one in first}
    for one in more:
        known = worst.get(one.path)
        if known is None or one.max_relative > known.max_relative:
            worst[one.path] = one
    return list(worst.values())


def _leaf(jax: Any, leaf: Any) -> _Leaf:
    import numpy as np  # noqa: PLC0415 - this package loads without it

    if isinstance(leaf, jax.Array):
        name = str(leaf.dtype)
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
            leaf = jax.random.key_data(leaf)
        if leaf.is_fully_addressable:
            return _Leaf(name, leaf.shape, [np.asarray(leaf)], None)
        shards = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        return _Leaf(name, leaf.shape, shards, None)
    if isinstance(leaf, (np.ndarray, np.generic)):
        # A copy: the function may return the same array repeatedly.
        copied = np.array(leaf, leaf.dtype.newbyteorder("="))
        if copied.dtype.hasobject:
            return _Leaf(str(leaf.dtype), leaf.shape, [], copied)
        return _Leaf(str(leaf.dtype), leaf.shape, [copied], None)
    if isinstance(leaf, (bool, int, float, complex)):
        found = np.asarray(leaf)
        if found.dtype.kind != "O":
            return _Leaf(name_of(type(leaf)), (), [found], None)
    return _Leaf(name_of(type(leaf)), (), [], leaf)


def _compare(one: Any, other: Any) -> tuple[int, float, float, int | None] | None:
    """
    Return the number of differing elements and the largest absolute difference,
    relative difference and distance in ulp; `None` if every bit is the same.
    """
    import numpy as np  # noqa: PLC0415 - this package loads without it

    if one.tobytes() == other.tobytes():
        return None
    one, other = np.atleast_1d(one), np.atleast_1d(other)
    if not _is_number(one.dtype):
        # Padding bits, in records and long doubles, mean nothing.
        differing = int(((one != other) & ((one == one) | (other == other))).sum())  # noqa: PLR0124 - a NaN
        return (differing, math.inf, math.inf, None) if differing else None
    if one.dtype.kind == "c":
        return _compare_complex(one, other)
    bits = np.dtype(f"u{one.dtype.itemsize}")
    mask = np.ascontiguousarray(one).view(bits) != np.ascontiguousarray(other).view(
        bits
    )
    one, other = one[mask], other[mask]
    absolute, relative = _distances(one, other)
    ulp = None
    if one.dtype.name.startswith(_FLOATS):
        ulp = _ulp(one.view(bits), other.view(bits))
    return int(mask.sum()), absolute, relative, ulp


def _is_number(dtype: Any) -> bool:
    """Return whether *dtype* is numeric, with at most 64 bits (complex: 128)."""
    import numpy as np  # noqa: PLC0415 - this package loads without it

    if dtype.kind == "V":  # ml_dtypes are numeric, records are not
        return dtype.type is not np.void
    return dtype.kind in "biufcmM" and dtype.itemsize <= (
        16 if dtype.kind == "c" else 8
    )


def _same(one: Any, other: Any) -> bool:
    """Return whether two objects, or two arrays of objects, are equal."""
    equal: Any = one is other or one == other
    return bool(equal.all() if hasattr(equal, "all") else equal)


def _compare_complex(
    one: Any, other: Any
) -> tuple[int, float, float, int | None] | None:
    import numpy as np  # noqa: PLC0415 - this package loads without it

    bits = np.dtype(f"u{one.dtype.itemsize // 2}")
    parts = [
        _compare(np.ascontiguousarray(part(one)), np.ascontiguousarray(part(other)))
        for part in (np.real, np.imag)
    ]
    first, second = (
        np.ascontiguousarray(each).view(bits).reshape(-1, 2) for each in (one, other)
    )
    mask = (first != second).any(axis=1)
    absolute, relative = _distances(one.ravel()[mask], other.ravel()[mask])
    ulps = [part[3] for part in parts if part is not None and part[3] is not None]
    return int(mask.sum()), absolute, relative, max(ulps, default=None)


def _distances(one: Any, other: Any) -> tuple[float, float]:
    import numpy as np  # noqa: PLC0415 - this package loads without it

    if one.dtype.kind in "iu" and one.dtype.itemsize == 8:  # noqa: PLR2004 - bytes
        # Their difference may overflow their type.
        larger = np.maximum(one, other).astype(np.float64)
        apart = np.abs(one.astype(np.longdouble) - other.astype(np.longdouble))
        scale = np.maximum(np.abs(larger), np.abs(np.minimum(one, other).astype(float)))
    else:
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            one, other = one.astype(wide), other.astype(wide)
            apart = np.abs(one - other)
            scale = np.maximum(np.abs(one), np.abs(other))
    with np.errstate(all="ignore"):
        relative = np.where(apart == 0, 0.0, apart / scale)
    # NaNs with different bits count as equal; a NaN and a number do not.
    both = np.isnan(one) & np.isnan(other) if one.dtype.kind in "fc" else False
    apart = np.where(both, 0.0, np.where(np.isnan(apart), np.inf, apart))
    relative = np.where(both, 0.0, np.where(np.isnan(relative), np.inf, relative))
    return float(apart.max(initial=0)), float(relative.max(initial=0))


def _ulp(one: Any, other: Any) -> int:
    """Return the largest distance between two arrays of sign-magnitude bit patterns."""
    import numpy as np  # noqa: PLC0415 - this package loads without it

    sign = np.uint64(1 << (one.dtype.itemsize * 8 - 1))

    def ordered(bits: Any) -> Any:
        bits = bits.astype(np.uint64)
        magnitude = bits & (sign - np.uint64(1))
        return np.where(bits & sign, sign - magnitude, sign + magnitude)

    first, second = ordered(one), ordered(other)
    return int((np.maximum(first, second) - np.minimum(first, second)).max(initial=0))


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
