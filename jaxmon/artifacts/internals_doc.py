"""`docs/jax-internals.md`: the JAX internals that jaxmon uses."""

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
    def costs(self) -> Sequence[Metric | str]:
        """What is lost without it."""
        ...

    @property
    def seen(self) -> str:
        """``y`` for each release that has it."""
        ...

    @property
    def group(self) -> str:
        """The alternatives it belongs to; one of them suffices."""
        ...

    @property
    def hook(self) -> str:
        """The hook that needs it."""
        ...


Sections: TypeAlias = Sequence[tuple[str, Sequence[NameLike]]]


def render(sections: Sections, releases: Sequence[str]) -> str:
    """Return the document: how to read it, then one table for each of *sections*."""
    tables = [
        part
        for title, names in sections
        for part in (
            f"## {title}",
            table(("Name", "Without it", *releases), _rows(names)),
        )
    ]
    return page(HEADER, "# JAX internals", _INTRODUCTION, *tables)


def _rows(names: Sequence[NameLike]) -> Iterator[tuple[str, ...]]:
    for name in names:
        alternatives = f"<br>*one of: {name.group}*" if name.group else ""
        costs = ", ".join(
            f"`{cost.name}`" if isinstance(cost, Metric) else cost
            for cost in name.costs
        )
        hook = f"<br>*hook `{name.hook}` is inactive*" if name.hook else ""
        marks = ["✓" if mark == "y" else "" for mark in name.seen]
        yield f"`{name.path}`{alternatives}", f"{costs}{hook}", *marks


_INTRODUCTION = f"""
Most of what jaxmon reports has no public API in JAX, so jaxmon uses names that may
change with any release of JAX. All of them are in `jaxmon/agent/jaxlink/`, and `make
lint` rejects them elsewhere. `make compat` compares this page with every supported JAX.

`jaxmon doctor` lists the names that the installed JAX lacks, and which metrics are
missing because of that. A hook that cannot attach reports so once in the log and by
`{HOOK_ACTIVE.name}`; everything else continues to work.

- `jax._src.pjit._infer_params` is an attribute of a module or a class, or a field.
- `jax._src.pjit:_cpp_pjit.cache_miss` is a function whose frames are inspected;
  `(fun)` after it is a variable in those frames.
- `<jitted>._cache_size` is an attribute of an object that JAX creates.
- `/jax/core/...` is an event of `jax.monitoring`.
- Names in quotes are part of a message.
- Of names with the same *one of* entry, one suffices.
"""
