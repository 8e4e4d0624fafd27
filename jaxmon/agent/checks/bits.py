"""Bitwise comparison of two NumPy arrays."""

from __future__ import annotations

import math
from typing import Any


# Floating-point formats, including those of ml_dtypes, are a sign and a magnitude.
_FLOATS = ("float", "bfloat")


def compare(one: Any, other: Any) -> tuple[int, float, float, int | None] | None:
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


def _compare_complex(
    one: Any, other: Any
) -> tuple[int, float, float, int | None] | None:
    import numpy as np  # noqa: PLC0415 - this package loads without it

    bits = np.dtype(f"u{one.dtype.itemsize // 2}")
    parts = [
        compare(np.ascontiguousarray(part(one)), np.ascontiguousarray(part(other)))
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
