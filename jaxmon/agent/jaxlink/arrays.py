"""Properties of JAX arrays that depend on the release."""

from __future__ import annotations

from operator import call
from typing import Any


# NumPy's kind of a dtype added by another library.
_REGISTERED = 2


def is_ready_or_deleted(array: Any) -> bool:
    """
    Return whether *array* is ready, or deleted.

    Up to 0.10 `is_ready` of a deleted array crashes, and the owner may delete the array
    at any time. Both properties are read from C, within one bytecode, so that no other
    thread runs in between.
    """
    return any(map(call, (array.is_deleted, array.is_ready)))


def is_pollable(array: Any) -> bool:
    """
    Return whether *array* is one on a device. Values being traced count as arrays too,
    and so do PRNG keys.
    """
    return hasattr(array, "is_ready")


def deleted_message(array: Any) -> str:
    """Return how JAX's error for a deleted *array* begins."""
    return f"Array has been deleted with shape={array.aval.str_short()}."


def underlying_array(array: Any) -> Any:
    """
    Return the array underlying *array*: arrays of PRNG keys wrap one, and have no
    `is_ready`, nor, on JAX 0.4, a size.
    """
    return getattr(array, "_base_array", array)


def packed_bytes(array: Any, dtype: Any) -> int | None:
    """
    Return the bytes of *array* on all devices of this process if its *dtype* may be
    packed, such as int4, whose elements otherwise count as a byte each.

    Whether it is packed depends on the release, the device and how the array was
    created.
    """
    if dtype.itemsize != 1 or getattr(dtype, "isbuiltin", 0) != _REGISTERED:
        return None
    size: int = array.on_device_size_in_bytes()
    return size
