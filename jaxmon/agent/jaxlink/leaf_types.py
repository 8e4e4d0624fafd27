"""Types of the leaves of a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxmon.agent.inspection import package_of
from jaxmon.agent.jaxlink.ownership import is_class


_SHARED = 10_000


class Leaf(NamedTuple):
    """
    The type of one leaf; *placement* describes its sharding if the array is committed,
    otherwise `None`.
    """

    shape: tuple[Any, ...]
    dtype: Any
    weak: bool
    placement: Any


class LeafTypes:
    """
    Creates leaf types, a quarter of a microsecond each. Equal ones are one object.

    Args:
        jax: the module.
        place: returns the placement for a sharding.
    """

    def __init__(self, jax: Any, place: Callable[[Any], object]) -> None:
        self._array, self._tracer = jax.Array, jax._src.core.Tracer  # noqa: SLF001 - deprecated where it was public
        self._place = place
        self._abstract = _abstract(jax)
        self._known: dict[Leaf, Leaf] = {}

    def of(self, leaves: Sequence[Any], avals: Sequence[Any]) -> tuple[Leaf, ...]:
        """
        Return the types of *leaves*.

        Args:
            leaves: arrays, numbers, and other objects that JAX accepts.
            avals: their abstract values, empty if JAX has not kept them.
        """
        if len(avals) != len(leaves):
            avals = [
                self._abstract(leaf) if package_of(type(leaf)) else None
                for leaf in leaves
            ]
        if len(self._known) > _SHARED:
            self._known.clear()
        shared, found = self._known, []
        # By abstract value and sharding, of which many leaves share few.
        alike: dict[tuple[int, int], Leaf] = {}
        kinds: dict[int, bool] = {}
        for leaf, aval in zip(leaves, avals, strict=True):
            kind = id(type(leaf))
            known = kinds.get(kind)
            if known is None:
                known = kinds[kind] = self._is_array(leaf)
            # The public attribute costs a call.
            sharding = leaf.sharding if known and leaf._committed else None  # noqa: SLF001
            key = id(aval), id(sharding)
            one = alike.get(key)
            if one is None:
                one = Leaf(
                    getattr(aval, "shape", ()),
                    getattr(aval, "dtype", None),
                    bool(getattr(aval, "weak_type", False)),
                    None if sharding is None else self._place(sharding),
                )
                one = alike[key] = shared.setdefault(one, one)
            found.append(one)
        return tuple(found)

    def _is_array(self, leaf: Any) -> bool:
        """Return whether *leaf* is a JAX array, which has a sharding."""
        return (
            is_class(type(leaf))
            and isinstance(leaf, self._array)
            and not isinstance(leaf, self._tracer)
        )


def plain(path: str) -> str:
    """Return the *path* of a leaf as users write it: JAX 0.4 has ``<flat index 1>``."""
    if "<flat index " not in path:
        return path
    return re.sub(r"\[<flat index (\d+)>\]", r"[\1]", path)


def _abstract(jax: Any) -> Callable[[Any], Any]:
    """Return JAX's function for the abstract value of a leaf."""
    for home in ("core", "api_util"):  # the latter in 0.4
        module = getattr(jax._src, home, None)  # noqa: SLF001 - no public way
        found: Callable[[Any], Any] | None = getattr(module, "shaped_abstractify", None)
        if found is not None:
            return found
    return lambda _: None
