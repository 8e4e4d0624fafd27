"""Questions to arrays of JAX that not every release answers."""

from __future__ import annotations

from operator import call
from typing import Any


# What NumPy says of a type that another library has added to it.
_REGISTERED = 2


def is_over(array: Any) -> bool:
    """
    Tell whether *array* is ready, or deleted.

    To 0.10 JAX crashes when a deleted array is asked whether it is ready, and its owner
    may delete it at any time. Both questions are asked from C, within one bytecode,
    so that no other thread runs between them.
    """
    return any(map(call, (array.is_deleted, array.is_ready)))


def numbers(array: Any) -> Any:
    """
    Return what *array* is made of: PRNG keys are arrays that cannot tell whether they
    are ready, nor JAX 0.4 their size, around one that can.
    """
    return getattr(array, "_base_array", array)


def packed_bytes(array: Any, dtype: Any) -> int | None:
    """
    Return the bytes of *array* on all devices of this process if its *dtype* may be
    packed, as int4, of which each element counts as a byte elsewhere.

    Whether it is depends on the release, the device, and on how the array was made.
    """
    if dtype.itemsize != 1 or getattr(dtype, "isbuiltin", 0) != _REGISTERED:
        return None
    size: int = array.on_device_size_in_bytes()
    return size
