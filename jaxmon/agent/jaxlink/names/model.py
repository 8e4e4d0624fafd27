"""What is known of one name of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from jaxmon.catalog import Metric


RELEASES = ("0.4.35", "0.6.2", "0.8.2", "0.10.2", "0.12")
"""Releases of JAX on which each name was looked for, oldest first."""

Costs: TypeAlias = tuple[Metric | str, ...]


class Name(NamedTuple):
    """
    A name of JAX that jaxmon depends on, and that JAX may change at any time.

    How *path* is written says what it is:

    | Path | What it is |
    |---|---|
    | ``jax._src.pjit._infer_params`` | an attribute, or a field of a class |
    | ``jax._src.pjit:_cpp_pjit.cache_miss`` | a function whose frames are known |
    | ``jax._src.pjit:_cpp_pjit.cache_miss(fun)`` | a variable of such a frame |
    | ``<jitted>._cache_size`` | an attribute of an object that JAX makes |
    | ``/jax/core/compile/...`` | an event of `jax.monitoring` |
    | ``"Leaked trace"`` | part of a text |

    Attributes:
        path: the name.
        serves: what it is used for.
        costs: what is lost without it: metrics, or words.
        seen: ``y`` for each of `RELEASES` that has it.
        group: what several names stand for of which one suffices.
        hook: the hook that does not attach without it.
        replaced: jaxmon puts something of its own in its place.
    """

    path: str
    serves: str
    costs: Costs
    seen: str = "y" * len(RELEASES)
    group: str = ""
    hook: str = ""
    replaced: bool = False

    @property
    def word(self) -> str:
        """What code that uses the name has in it."""
        path = self.path
        if path.startswith('"'):
            return path.strip('"')
        if path.startswith("/"):
            return path
        return path.rstrip(")").replace("(", ".").replace(":", ".").rpartition(".")[2]


def each(  # noqa: PLR0913 - those of a name
    pattern: str,
    words: str,
    serves: str,
    costs: Costs,
    *,
    seen: str = "y" * len(RELEASES),
    group: str = "",
    hook: str = "",
    replaced: bool = False,
) -> Sequence[Name]:
    """Return a name for each of *words*, which stands for the ``*`` in *pattern*."""
    return [
        Name(pattern.replace("*", word), serves, costs, seen, group, hook, replaced)
        for word in words.split()
    ]
