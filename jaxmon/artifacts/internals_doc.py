"""`docs/jax-internals.md`: the names of JAX from inside that jaxmon uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

from jaxmon.artifacts.reference import page, table
from jaxmon.artifacts.write import HEADER
from jaxmon.catalog import HOOK_ACTIVE, Metric


PATH = "docs/jax-internals.md"


class NameLike(Protocol):
    """A name of JAX; see `jaxmon.agent.jaxlink.names.Name`."""

    @property
    def path(self) -> str:
        """The name."""
        ...

    @property
    def serves(self) -> str:
        """What it is used for."""
        ...

    @property
    def costs(self) -> Sequence[Metric | str]:
        """What is lost without it."""
        ...

    @property
    def seen(self) -> str:
        """``y`` for each release that has it."""
        ...

    @property
    def group(self) -> str:
        """What it stands for together with others."""
        ...

    @property
    def hook(self) -> str:
        """The hook that needs it."""
        ...


Sections: TypeAlias = Sequence[tuple[str, Sequence[NameLike]]]


def render(sections: Sections, releases: Sequence[str]) -> str:
    """Return the page: how to read it, then one table for each of *sections*."""
    tables = [
        part
        for title, names in sections
        for part in (
            f"## {title}",
            table(("Name", "Serves", "Without it", *releases), _rows(names)),
        )
    ]
    return page(HEADER, "# JAX from inside", _INTRODUCTION, *tables)


def _rows(names: Sequence[NameLike]) -> Iterator[tuple[str, ...]]:
    for name in names:
        alternatives = f"<br>*one of: {name.group}*" if name.group else ""
        costs = ", ".join(
            f"`{cost.name}`" if isinstance(cost, Metric) else cost
            for cost in name.costs
        )
        hook = f"<br>*hook `{name.hook}` stays off*" if name.hook else ""
        marks = ["✓" if mark == "y" else "" for mark in name.seen]
        yield f"`{name.path}`{alternatives}", name.serves, f"{costs}{hook}", *marks


_INTRODUCTION = f"""
JAX has no public way to most of what jaxmon reports. So jaxmon uses names that JAX may
change with any release. All of them are in `jaxmon/agent/jaxlink/`, and `make lint`
refuses them elsewhere. `make compat` compares this page with every supported JAX.

`jaxmon doctor` names what the JAX that is installed lacks, and what that costs. A hook
that cannot attach says so once in the log and by `{HOOK_ACTIVE.name}`; everything else
goes on.

- `jax._src.pjit._infer_params` is an attribute of a module or a class, or a field.
- `jax._src.pjit:_cpp_pjit.cache_miss` is a function whose frames are looked at; with
  `(fun)` behind it, it is a variable of theirs.
- `<jitted>._cache_size` is an attribute of an object that JAX makes.
- `/jax/core/...` is an event of `jax.monitoring`.
- What stands in quotes is part of a text.
- Of names that say *one of*, with the same words, one suffices.
"""
