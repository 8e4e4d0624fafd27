"""The shapes of a call's arguments, which tell the programs of a function apart."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2s
from typing import TYPE_CHECKING, Any

from jaxmon.agent.context import Shapes
from jaxmon.agent.inspection import name_of


if TYPE_CHECKING:
    from jaxmon.agent.jaxlink.arrays import LeafKinds

_LONGEST = 80
# A state comes before the batch, whose shapes are the ones that change.
_LEAVES = 256


def array_classes(jax: Any) -> tuple[Any, ...]:
    """Return the classes of arrays that have a shape: JAX's and NumPy's."""
    import numpy as np  # noqa: PLC0415 - this package loads without it

    return jax.Array, np.ndarray


def shapes_of(leaves: Sequence[Any], arrays: tuple[Any, ...]) -> Shapes:
    """
    Return what identifies the shapes of *leaves*: equal if shapes and types are. Costs
    0.3 µs per leaf; of very many, only their number and the last are read.

    Values are left out, those of static arguments too: a step number passed as an
    integer is another one on each call.

    Args:
        leaves: of a call's arguments.
        arrays: JAX's and NumPy's array classes.
    """
    # By their types: `isinstance` may run code of the program.
    found = [
        (leaf.dtype, leaf.shape)
        if issubclass(type(leaf), arrays)
        else name_of(type(leaf))
        for leaf in leaves[-_LEAVES:]
    ]
    return (*found, f"{len(leaves)} leaves") if len(leaves) > _LEAVES else (*found,)


def shapes_of_kinds(kinds: LeafKinds, array: type) -> Shapes | None:
    """Return the same as `shapes_of` by kinds; `None` if some are no *array*."""
    words: dict[Hashable, Hashable] = {}
    for key, (leaf, aval, _) in kinds.kinds.items():
        if aval is None or not issubclass(type(leaf), array):
            return None
        words[key] = aval.dtype, aval.shape
    keys = kinds.keys
    found = map(words.__getitem__, keys[-_LEAVES:])
    return (*found, f"{len(keys)} leaves") if len(keys) > _LEAVES else (*found,)


def text_of(shapes: Sequence[Any]) -> str:
    """Return *shapes* as text, ``float32[8,4], int32[]``; if long, with a digest."""
    text = ", ".join(map(_word, shapes))
    if len(text) > _LONGEST:
        digest = blake2s(text.encode(), digest_size=4).hexdigest()
        text = f"{text[: _LONGEST - 13]}... {digest}"
    return text


def _word(shape_or_type: Any) -> str:
    if isinstance(shape_or_type, str):
        return shape_or_type
    dtype, shape = shape_or_type
    return f"{dtype}[{','.join(map(str, shape))}]"
