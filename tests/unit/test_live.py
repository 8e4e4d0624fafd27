"""What live arrays are, while they come and go."""

import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent.memory.part import group_arrays


class Sharding:
    """A sharding over three devices, two of them here, that divides nothing evenly."""

    device_set = frozenset("abc")
    addressable_devices = frozenset("ab")

    def shard_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        msg = f"{shape} is not divisible"
        raise ValueError(msg)


class Array:
    """Ten numbers of four bytes."""

    shape, nbytes, dtype = (10,), 40, np.dtype("f4")

    def __init__(self, sharding: Any, *, gone: bool = False) -> None:
        self.sharding = sharding
        self.gone = gone

    def is_deleted(self) -> bool:
        return self.gone

    def on_device_size_in_bytes(self) -> int:
        return self.nbytes


@pytest.mark.ground_truth
def test_arrays_alike_are_of_one_kind() -> None:
    """Each array is reported once, with the bytes that JAX reports."""
    arrays = [jnp.ones((3, 5), jnp.int16), jnp.zeros((3, 5), jnp.int16), jnp.ones(7)]
    sizes = [array.nbytes for array in arrays]
    found = list(group_arrays(arrays))[::-1]

    assert found[0] is found[1]
    assert [kind.shard_bytes for kind in found] == sizes
    assert [kind.shape for kind in found] == [(3, 5), (3, 5), (7,)]
    assert arrays == []


def test_shards_that_are_not_equal_share_the_bytes() -> None:
    """JAX knows no shape of a shard then; those of other processes are not ours."""
    [kind] = group_arrays([Array(Sharding())])

    assert (kind.shard_bytes, len(kind.devices)) == (13, 2)


class Device:
    """A device whose own memory is called *kind*."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def default_memory(self) -> Any:
        return self


@pytest.mark.parametrize(
    ("memory", "own", "offloaded"),
    [
        (None, "device", False),
        ("device", "device", False),
        ("pinned_host", "device", True),
        ("unpinned_host", "tpu_hbm", True),
        ("unpinned_host", "unpinned_host", False),
        ("pinned_host", "unpinned_host", True),
    ],
)
def test_memory_of_the_host_is_none_of_the_device(memory, own, offloaded):
    """Unless it is the device's own, as older releases call that of a CPU."""
    sharding: Any = Sharding()
    sharding.memory_kind = memory
    sharding.addressable_devices = [Device(own), Device(own)]
    [kind] = group_arrays([Array(sharding)])

    assert kind.offloaded is offloaded


def test_what_was_deleted_is_left_out() -> None:
    """Before the look, or in the middle of it."""

    class Donated(Array):
        @property
        def sharding(self) -> Any:
            msg = "Array has been deleted"
            raise RuntimeError(msg)

        @sharding.setter
        def sharding(self, value: Any) -> None:
            pass

    arrays = [Array(Sharding(), gone=True), Donated(None), Array(Sharding())]

    assert len(list(group_arrays(arrays))) == 1


def test_no_array_is_kept() -> None:
    """What the program drops between two arrays is gone, although the look goes on."""
    array = Array(Sharding())
    reference, arrays = weakref.ref(array), [Array(Sharding()), array]
    del array
    looking = group_arrays(arrays)
    next(looking)

    assert reference() is None
    assert len(arrays) == 1


SMALL = [
    getattr(jnp, name)
    for name in (
        *("int4", "uint4", "int2", "uint2", "int1", "uint1", "float4_e2m1fn"),
        *("float8_e4m3fn", "bool_", "int8"),
    )
    if hasattr(jnp, name)
]


@pytest.mark.ground_truth
@pytest.mark.parametrize("dtype", SMALL, ids=lambda one: one.__name__)
@pytest.mark.parametrize("shape", [(1000,), (3, 5), (0, 4), ()], ids=str)
def test_types_of_less_than_a_byte_take_what_the_device_says(dtype, shape):
    """Packed or not, which may differ between what is sent and what is computed."""
    sent = jax.device_put(np.zeros(shape, dtype))
    arrays = [sent]
    if not dtype.__name__.endswith("int1"):  # which XLA knows, and cannot make
        arrays.append(jax.jit(lambda: jnp.ones(shape, dtype))())
    sizes = [array.on_device_size_in_bytes() for array in arrays]
    found = [kind.shard_bytes for kind in group_arrays([*arrays])][::-1]

    assert found == sizes
    assert max(sizes) <= sent.nbytes
