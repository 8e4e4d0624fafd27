"""Properties of JAX arrays that depend on the release."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import call
from typing import Any


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


def shard_bytes(array: Any) -> int:
    """Return the bytes of one shard of *array*, which must not wrap another."""
    shape = array.sharding.shard_shape(array.shape)
    size: int = math.prod(shape) * array.dtype.itemsize
    return size


def can_copy(jax: Any) -> bool:
    """
    Return whether `copied_on_devices` works. In 0.4 the result shares the memory of the
    array, in spite of ``may_alias=False``; 0.5 has not been tried.
    """
    return bool(jax.__version_info__ >= (0, 6))


def copied_on_devices(jax: Any, arrays: Sequence[Any]) -> list[Any]:
    """
    Return copies of *arrays*, which must not wrap others: each shard on its device,
    with the same sharding, weak type and commitment, so that JAX compiles nothing for
    them. Returns before they are made.
    """
    # The program's transfer guard is meant for its own code.
    with jax.transfer_guard_device_to_device("allow"):
        places = [one.sharding if one.committed else None for one in arrays]
        made: list[Any] = jax.device_put(list(arrays), places, may_alias=False)
    return made


def with_underlying(array: Any, underlying: Any) -> Any:
    """Return *underlying* as *array* is: as PRNG keys if that wraps an array."""
    if underlying_array(array) is array:
        return underlying
    return type(array)(array._impl, underlying)  # noqa: SLF001 - JAX's own way is a program


def device_bytes(array: Any) -> int:
    """
    Return the bytes of *array* on all devices of all processes, as large as there:
    packed or padded.
    """
    size: int = array.on_device_size_in_bytes()
    return size
