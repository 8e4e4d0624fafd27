"""Internal names of JAX, and how the table has them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from jaxmon.catalog import Metric


RELEASES = ("0.4.35", "0.6.2", "0.8.2", "0.10.2", "0.12")
"""Releases of JAX in which each name was checked, oldest first."""

Costs: TypeAlias = tuple[Metric | str, ...]


class Name(NamedTuple):
    """
    A name of JAX that jaxmon depends on and that JAX may change at any time.

    The form of *path* shows its type:

    | Path | Type |
    |---|---|
    | ``jax._src.pjit._infer_params`` | an attribute, or a field of a class |
    | ``jax._src.pjit:_cpp_pjit.cache_miss`` | a function whose frames are recognised |
    | ``jax._src.pjit:_cpp_pjit.cache_miss(fun)`` | a variable of such a frame |
    | ``<jitted>._cache_size`` | an attribute of an object created by JAX |
    | ``/jax/core/compile/...`` | an event of `jax.monitoring` |
    | ``"Leaked trace"`` | part of a text |

    Attributes:
        path: the name.
        costs: what is missing without it: metric names or a description.
        seen: ``y`` for each of `RELEASES` that has it.
        group: shared by alternatives, of which one suffices.
        hook: the hook that does not attach without it.
        replaced: whether jaxmon replaces it.
    """

    path: str
    costs: Costs
    seen: str
    group: str = ""
    hook: str = ""
    replaced: bool = False

    @property
    def word(self) -> str:
        """The word that appears in code using the name."""
        path = self.path
        if path.startswith('"'):
            return path.strip('"')
        if path.startswith("/"):
            return path
        return path.rstrip(")").replace("(", ".").replace(":", ".").rpartition(".")[2]


def names(
    costs: Costs, *rows: str, group: str = "", hook: str = "", replaced: bool = False
) -> list[Name]:
    """
    Return the names in *rows*: each has the marks of the releases and a path, in which
    ``a.{b c}`` stands for ``a.b`` and ``a.c``.
    """
    found = []
    for row in rows:
        seen, path = row.split(" ", 1)
        before, _, rest = path.partition("{")
        words, _, after = rest.partition("}")
        found += [
            Name(f"{before}{word}{after}", costs, seen, group, hook, replaced)
            for word in words.split() or [""]
        ]
    return found
