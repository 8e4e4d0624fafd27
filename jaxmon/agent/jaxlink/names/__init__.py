"""
Every internal name of JAX that jaxmon uses, and what is missing without it.

Data only, for people and tools: ``docs/contributors/jax-internals.md``, `jaxmon
doctor`, the lint rule and the tests read it. The agent does not: the other modules of
`jaxlink` use the names directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.table import TABLE
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


def _sections() -> Iterator[tuple[str, list[Name]]]:
    # A line that is indented twice continues the one before.
    for section in re.sub(r"\n {8}", " ", TABLE).split("\n# ")[1:]:
        title, *lines = section.splitlines()
        names: list[Name] = []
        head = Name("", (), "")
        for line in lines:
            if not line.startswith(" "):
                head = _head(line)
                continue
            seen, path = line.strip().split(" ", 1)
            before, _, rest = path.partition("{")
            words, _, after = rest.partition("}")
            names += [
                head._replace(path=f"{before}{word}{after}", seen=seen)
                for word in words.split() or [""]
            ]
        yield title, names


def _head(line: str) -> Name:
    costs, *options = line.split(" | ")
    given = dict(option.split(" ", 1) for option in options if option != "replaced")
    return Name(
        "",
        tuple([getattr(catalog, cost, cost) for cost in costs.split(" + ")]),
        "",
        given.get("group", ""),
        given.get("hook", ""),
        "replaced" in options,
    )


SECTIONS = tuple(_sections())
"""The names by purpose, in the order of the page."""

NAMES = tuple([name for _, names in SECTIONS for name in names])
