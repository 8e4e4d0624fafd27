"""Arrays, leaves of a call, meshes, devices, shardings and trees of JAX, by release."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import call
from typing import Any, Literal, TypeAlias, TypeVar

from jaxmon.agent.inspection import name_of, package_of
from jaxmon.agent.jaxlink.jit import is_class
from jaxmon.tuples import NamedTuple


Kind: TypeAlias = Literal[
    "mesh", "device", "spec", "tree", "sharding", "named sharding"
]

# By the names of JAX's classes.
_KINDS: dict[str, Kind] = {
    "AbstractMesh": "mesh",
    "Mesh": "mesh",
    "Device": "device",
    "P": "spec",  # since 0.10
    "PartitionSpec": "spec",
    "PyTreeDef": "tree",
    "GSPMDSharding": "sharding",
    "SingleDeviceSharding": "sharding",
    "NamedSharding": "named sharding",
}


def kind_of(kind: type) -> Kind | None:
    """Return the category of the class *kind*, `None` if it is not JAX's."""
    return _KINDS.get(name_of(kind).rpartition(".")[2]) if is_class(kind) else None


def order_of(sharding: Any) -> int:
    """Return a hash of the devices of JAX's *sharding* and their order."""
    return hash(sharding._internal_device_list)  # noqa: SLF001 - public ones are sets


NO_MESH = "no mesh"
"""Text of a mesh without axes, JAX's default since 0.11."""


def device_text(device: Any) -> str:
    """Return ``cpu:0``."""
    return f"{device.platform}:{device.id}"


def mesh_text(mesh: Any) -> str:
    """Return text such as ``mesh d=8``, with explicit sharding ``d=8 explicit``."""
    kinds = getattr(mesh, "axis_types", None)
    if isinstance(kinds, dict):  # up to 0.5: axes by kind
        kinds = None
    shape = mesh.shape
    axes = [
        f"{_name(axis)}={size}{_kind_text(kind)}"
        for (axis, size), kind in zip(
            shape.items(), kinds or (None,) * len(shape), strict=False
        )
    ]
    return f"mesh {','.join(axes)}" if axes else NO_MESH


def mesh_and_spec(sharding: Any, devices: list[Any]) -> dict[str, Any] | None:
    """
    Return what `sharded` needs, as JSON, if it is over *devices* by names of axes.
    """
    mesh, spec = sharding.mesh, list(sharding.spec)
    kinds = getattr(mesh, "axis_types", None) or ()
    axes = list(map(list, mesh.shape.items()))
    plain = all([type(name) is str for name, _ in axes]) and all(
        [part is None or type(part) is str or type(part) is tuple for part in spec]
    )
    automatic = all([str(kind).endswith("Auto") for kind in kinds])
    if not (plain and automatic and axes) or list(mesh.devices.flat) != devices:
        return None
    return {"axes": axes, "spec": spec}


def sharded(jax: Any, devices: list[Any], found: Mapping[str, Any]) -> Any:
    """Return the sharding over *devices* that `mesh_and_spec` *found*."""
    import numpy as np  # noqa: PLC0415 - as JAX

    names, sizes = zip(*found["axes"], strict=True)
    spec = [tuple(of) if isinstance(of, list) else of for of in found["spec"]]
    mesh = jax.sharding.Mesh(np.array(devices).reshape(sizes), names)
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


def _name(axis: object) -> str:
    return axis if type(axis) is str else name_of(type(axis))


def _kind_text(kind: Any) -> str:
    name = str(getattr(kind, "name", "Auto"))
    return "" if name == "Auto" else f" {name.lower()}"


def is_ready_or_deleted(array: Any) -> bool:
    """
    Return whether *array* is ready, or deleted. Up to 0.10 `is_ready` of a deleted
    array crashes, and the owner may delete it at any time: both are read from C, within
    one bytecode, so that no other thread runs in between.
    """
    return any(map(call, (array.is_deleted, array.is_ready)))


def is_pollable(array: Any) -> bool:
    """Return whether *array* is on a device: traced values and keys are arrays too."""
    return hasattr(array, "is_ready")


def underlying_array(array: Any) -> Any:
    """Return the array in *array*: that of a PRNG key has `is_ready`, and a size."""
    return getattr(array, "_base_array", array)


def shard_bytes(array: Any) -> int:
    """Return the bytes of one shard of *array*, which must not wrap another."""
    shape = array.sharding.shard_shape(array.shape)
    size: int = math.prod(shape) * array.dtype.itemsize
    return size


def can_copy(jax: Any) -> bool:
    """Return whether `copied_on_devices` works: in 0.4 the result shares the memory."""
    return bool(jax.__version_info__ >= (0, 6))


def copied_on_devices(jax: Any, arrays: Sequence[Any]) -> list[Any]:
    """
    Return copies of *arrays*, which must not wrap others: each shard on its device,
    with the same sharding, weak type and commitment, so that JAX compiles nothing for
    them. Returns before they are made.
    """
    # The program's transfer guard is meant for its own code.
    with jax.transfer_guard_device_to_device("allow"):
        places = [array.sharding if array.committed else None for array in arrays]
        made: list[Any] = jax.device_put(list(arrays), places, may_alias=False)
    return made


def with_underlying(array: Any, underlying: Any) -> Any:
    """Return *underlying* as *array* is: as PRNG keys if that wraps an array."""
    if underlying_array(array) is array:
        return underlying
    return type(array)(array._impl, underlying)  # noqa: SLF001 - JAX's own way is a program


def device_bytes(array: Any) -> int:
    """Return the bytes of *array* on all devices of all processes, packed or padded."""
    size: int = array.on_device_size_in_bytes()
    return size


def array_bytes(value: Any) -> int:
    """Return the bytes of an array of JAX or NumPy, 0 for anything else."""
    if package_of(type(value)) not in {"jax", "jaxlib", "numpy"}:
        return 0
    itemsize = getattr(getattr(value, "dtype", None), "itemsize", None)
    return 0 if itemsize is None else int(getattr(value, "size", 0) * itemsize)


_SHARED = 10_000
T = TypeVar("T")


class Leaf(NamedTuple):
    """The type of one leaf; *placement* describes the sharding of a committed array."""

    shape: tuple[Any, ...]
    dtype: Any
    weak: bool
    placement: Any


class LeafKinds(NamedTuple):
    """
    Leaves of a call by kind: a key for each, and by key a leaf, its type, and the
    sharding of a committed array. Must not outlive the call.
    """

    keys: Sequence[tuple[int, int, int]]
    kinds: Mapping[tuple[int, int, int], tuple[Any, Leaf, Any]]

    def mapped(self, of: Callable[[Any, Leaf, Any], T]) -> Iterator[T]:
        """Yield for each leaf what *of* returns for its kind."""
        found = {}
        for key, kind in self.kinds.items():
            found[key] = of(*kind)
        return map(found.__getitem__, self.keys)

    def types(self) -> tuple[Leaf, ...]:
        """Return the type of each leaf."""
        return tuple(self.mapped(lambda _, leaf, __: leaf))


class LeafTypes:
    """Creates leaf types, a quarter of a microsecond each, with *place*'s placement."""

    def __init__(self, jax: Any, place: Callable[[Any], object]) -> None:
        self._array, self._tracer = jax.Array, jax._src.core.Tracer  # noqa: SLF001 - deprecated where it was public
        self._place = place
        self._abstract = _abstract(jax)
        self._shared: dict[Leaf, Leaf] = {}
        # JAX's classes of arrays, by id.
        self._arrays: dict[int, type] = {}

    def kinds(self, leaves: Sequence[Any], avals: Sequence[Any]) -> LeafKinds:
        """Return *leaves* by kind; JAX may not have kept their abstract values."""
        if len(avals) != len(leaves):
            avals = [
                self._abstract(leaf) if package_of(type(leaf)) else None
                for leaf in leaves
            ]
        types = list(map(id, map(type, leaves)))
        arrays = {}
        for kind, leaf in dict(zip(types, leaves, strict=True)).items():
            arrays[kind] = self._is_array(leaf)
        shardings = [
            # The public attribute costs a call.
            leaf.sharding if arrays[kind] and leaf._committed else None  # noqa: SLF001
            for kind, leaf in zip(types, leaves, strict=True)
        ]
        keys = list(zip(types, map(id, avals), map(id, shardings), strict=True))
        if len(self._shared) > _SHARED:
            self._shared.clear()
        kinds = {}
        quads = zip(leaves, avals, shardings, strict=True)
        for key, (leaf, aval, sharding) in dict(zip(keys, quads, strict=True)).items():
            leaf_type = Leaf(
                getattr(aval, "shape", ()),
                getattr(aval, "dtype", None),
                bool(getattr(aval, "weak_type", False)),
                None if sharding is None else self._place(sharding),
            )
            kinds[key] = leaf, self._shared.setdefault(leaf_type, leaf_type), sharding
        return LeafKinds(keys, kinds)

    def _is_array(self, leaf: Any) -> bool:
        kind = type(leaf)
        if id(kind) in self._arrays:
            return True
        found = (
            is_class(kind)
            and isinstance(leaf, self._array)
            and not isinstance(leaf, self._tracer)
        )
        if found:
            self._arrays[id(kind)] = kind
        return found


def plain(path: str) -> str:
    """Return the *path* of a leaf as users write it: JAX 0.4 has ``<flat index 1>``."""
    if "<flat index " not in path:
        return path
    return re.sub(r"\[<flat index (\d+)>\]", r"[\1]", path)


def _abstract(jax: Any) -> Callable[[Any], Any]:
    for home in ("core", "api_util"):  # the latter in 0.4
        module = getattr(jax._src, home, None)  # noqa: SLF001 - no public way
        found: Callable[[Any], Any] | None = getattr(module, "shaped_abstractify", None)
        if found is not None:
            return found
    return lambda _: None
