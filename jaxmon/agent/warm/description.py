"""
Describes a call so that another process can compile for it; the format is in
docs/warm-starts.md.

Built from what JAX has already computed for the call: no user code runs, and no user
object is kept. Costs about 2 µs per leaf.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from jaxmon.agent.inspection import found_in, module_of, name_of
from jaxmon.agent.jaxlink.arguments import Call
from jaxmon.agent.jaxlink.leaf_types import Leaf, LeafTypes
from jaxmon.agent.jaxlink.shardings import kind_of


_DEEP = 32
_LONGEST = 200
_LARGEST = 1 << 63
_NUMBERS = {bool: "bool", int: "int", float: "float", complex: "complex"}


class NotExportableError(Exception):
    """The call cannot be described; the message says why."""


class Descriptions:
    """
    Describes calls.

    Args:
        jax: the module.
        values: whether values of static arguments may be written to a file.
    """

    def __init__(self, jax: Any, *, values: bool) -> None:
        import numpy as np  # noqa: PLC0415 - as JAX

        self._jax = jax
        self._numpy = np.ndarray
        self._values = values
        self._types = LeafTypes(jax, self._device)

    def of(self, call: Call) -> tuple[list[Any], dict[str, Any]]:
        """
        Return the positional and the keyword arguments of *call*, in JSON types.

        Raises:
            NotExportableError: they cannot be described.
        """
        if call.given.maker != "jax.jit":
            msg = "functions of jax.pmap cannot be compiled ahead"
            raise NotExportableError(msg)
        if call.leaves is None or call.tree is None:
            msg = "JAX does not keep what this call was compiled for"
            raise NotExportableError(msg)
        types = self._types.of(call.leaves, call.avals)
        leaves = iter(map(self._leaf, call.leaves, types))
        positional, named = call.tree.children()
        count = len(call.args)
        numbers = {n + count if n < 0 else n for n in call.static_argnums}
        traced = iter(positional.children())
        args = [
            self._static(one)
            if number in numbers
            else self._node(next(traced), leaves, 0)
            for number, one in enumerate(call.args)
        ]
        data = named.node_data()
        kwargs = {
            str(name): self._node(child, leaves, 0)
            for name, child in zip(
                data[1] if data else (), named.children(), strict=True
            )
        }
        for name in sorted(set(call.static_argnames) & set(call.kwargs) - set(kwargs)):
            kwargs[name] = self._static(call.kwargs[name])
        return args, kwargs

    def _device(self, sharding: Any) -> int:
        """Return the number of the only device of *sharding*, -1 for another one."""
        if kind_of(type(sharding)) != "sharding" or len(sharding.device_set) > 1:
            return -1
        devices = self._jax.local_devices()
        (device,) = sharding.device_set
        usual = sharding.memory_kind in (None, device.default_memory().kind)
        return devices.index(device) if usual and device in devices else -1

    def _leaf(self, leaf: Any, of: Leaf) -> dict[str, Any]:
        kind = _NUMBERS.get(type(leaf))
        if kind is None and type(leaf) is self._numpy:
            kind = "numpy"
        if kind is None and isinstance(leaf, self._jax.Array):
            kind = "jax"
        if kind is None:
            msg = f"an argument contains a {name_of(type(leaf))}"
            raise NotExportableError(msg)
        if of.placement == -1:
            msg = "an argument is sharded, or is not in a device's default memory"
            raise NotExportableError(msg)
        if not all(type(one) is int for one in of.shape):
            msg = "an argument has a symbolic shape"
            raise NotExportableError(msg)
        found: dict[str, Any] = {
            "kind": kind,
            "dtype": str(of.dtype),
            "shape": list(of.shape),
        }
        if of.weak:
            found["weak"] = True
        if of.placement is not None:
            found["device"] = of.placement
        return found

    def _node(self, tree: Any, leaves: Iterator[Any], depth: int) -> Any:
        data = tree.node_data()
        if data is None:
            return next(leaves)
        kind, static = data
        if kind is type(None):
            return None
        if depth > _DEEP:
            msg = f"an argument is nested more than {_DEEP} deep"
            raise NotExportableError(msg)
        inner = [self._node(one, leaves, depth + 1) for one in tree.children()]
        if kind is list or kind is tuple:
            return {kind.__name__: inner}
        if kind is dict:
            return {"dict": _pairs(static, inner)}
        fields = found_in(kind, "_fields")
        if type(fields) is tuple and len(fields) == len(inner):
            name = name_of(kind)
            if "<" not in name:
                return {"class": f"{module_of(kind)}:{name}", "namedtuple": inner}
        msg = f"an argument contains a {name_of(kind)}, which only its program can make"
        raise NotExportableError(msg)

    def _static(self, value: Any) -> dict[str, Any]:
        if not self._values:
            msg = "static arguments are not recorded with event_values=False"
            raise NotExportableError(msg)
        return {"static": _static(value, 0)}


def _pairs(keys: Sequence[Any], inner: Sequence[Any]) -> list[list[Any]]:
    for key in keys:
        if type(key) not in (str, int) or len(str(key)) > _LONGEST:
            msg = "an argument is a dict with keys other than short strings or integers"
            raise NotExportableError(msg)
    return [[key, one] for key, one in zip(keys, inner, strict=True)]


def _static(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is tuple and depth < _DEEP and len(value) <= _LONGEST:
        return [_static(one, depth + 1) for one in value]
    plain = (
        value is None
        or kind is bool
        or (kind is int and abs(value) < _LARGEST)
        or (kind is float and math.isfinite(value))
        or (kind is str and len(value) <= _LONGEST)
    )
    if not plain:
        msg = f"a static argument is a {name_of(kind)}, or too long for a file"
        raise NotExportableError(msg)
    return value
