"""Arrays in other places."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import numpy as np

from tests.programs.recompiles.cases import (
    CASES,
    DEVICES,
    Again,
    another_memory,
    array,
    case,
    mesh,
    on,
    plus_one,
    spread,
    twice,
)


@case
def mesh_in_another_order() -> Again:
    backwards = jax.sharding.Mesh(np.array(DEVICES[::-1]), ("d",))
    return plus_one(spread("d"), spread("d", over=backwards))


@case
def mesh_of_other_devices() -> Again:
    first, second = (
        jax.sharding.Mesh(np.array(devices), ("d",))
        for devices in (DEVICES[:4], DEVICES[4:])
    )
    return plus_one(spread("d", over=first), spread("d", over=second))


@case
def mesh_of_fewer_devices() -> Again:
    half = jax.sharding.Mesh(np.array(DEVICES[:4]), ("d",))
    return plus_one(spread("d"), spread("d", over=half))


@case
def mesh_with_axes_in_the_type() -> Again:
    kinds = jax.sharding.AxisType
    return plus_one(
        spread("d", over=mesh(axis_types=(kinds.Auto,))),
        spread("d", over=mesh(axis_types=(kinds.Explicit,))),
    )


@case
def mesh_of_one_device() -> Again:
    _ = jax.sharding.AxisType  # before, one device was like another
    alone = jax.sharding.Mesh(np.array(DEVICES[:1]), ("d",))
    return plus_one(on(0, 8, 8), spread("d", over=alone))


@case
def committed_by_a_result() -> Again:
    out = jax.sharding.SingleDeviceSharding(DEVICES[0])
    made = jax.jit(lambda x: x + 1, out_shardings=out)(array(3))
    return plus_one(array(3), made)


@case
def memory_of_one_device() -> Again:
    there = jax.sharding.SingleDeviceSharding(DEVICES[0], memory_kind=another_memory())
    return plus_one(on(0, 8, 8), jax.device_put(on(0, 8, 8), there))


@case
def memory_of_a_mesh() -> Again:
    before = spread("d")
    there = before.sharding.with_memory_kind(another_memory())
    return plus_one(before, jax.device_put(before, there))


@case
def memory_and_devices() -> Again:
    backwards = jax.sharding.Mesh(np.array(DEVICES[::-1]), ("d",))
    after = spread("d", over=backwards)
    there = after.sharding.with_memory_kind(another_memory())
    return plus_one(spread("d"), jax.device_put(after, there))


def calls_of_two_kinds() -> list[Callable[[], object]]:
    """
    Return calls with a state and a batch of four sizes; then all of it is spread over
    the devices.
    """

    @jax.jit
    def f(state, batch):
        return jax.tree_util.tree_map(lambda one: one + batch.sum(), state)

    def call(axis: str | None, size: int) -> object:
        place = jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec(axis))
        state = {name: np.zeros((8, 8), np.float32) for name in ("w", "b", "m")}
        return f(*jax.device_put((state, np.zeros((size, 8), np.float32)), place))

    kinds = [(axis, size) for axis in (None, "d") for size in (8, 16, 24, 32)]
    return [functools.partial(call, *kind) for kind in kinds]


@case
def shapes_then_shardings() -> Again:
    first, *others = calls_of_two_kinds()
    first()
    return lambda: [call() for call in others]


@case
def shapes_then_shardings_again() -> Again:
    calls = calls_of_two_kinds()
    for call in calls:
        call()
    return lambda: [call() for call in calls]


CASES.update(
    committed=lambda: plus_one(array(3), on(1, 3)),
    committed_no_more=lambda: plus_one(on(0, 3), array(3)),
    device=lambda: plus_one(on(0, 3), on(1, 3)),
    device_of_one_argument=lambda: twice(
        lambda batch: batch["x"] + 1, ({"x": on(2, 3)},), ({"x": on(3, 3)},)
    ),
    sharding=lambda: plus_one(spread("d"), spread()),
    sharding_of_another_axis=lambda: plus_one(spread("d"), spread(None, "d")),
    sharding_on_another_mesh=lambda: plus_one(
        spread("d"), spread("a", "b", over=mesh(("a", "b"), (2, 4)))
    ),
    sharding_from_one_device=lambda: plus_one(array(8, 8), spread("d")),
)
