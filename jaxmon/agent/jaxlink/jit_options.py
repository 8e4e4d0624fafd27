"""Options of `jax.jit` and `jax.pmap` that affect the compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.ownership import is_class


How: TypeAlias = Literal["names", "pairs", "shardings", "value"]
"""Type of an option: several names, names with values, shardings, or anything else."""


class Option(NamedTuple):
    """
    An option that is not the default. Must not be kept: *value* may be a user object.
    """

    name: str
    how: How
    value: Any


class JitOptions(NamedTuple):
    """Options passed to *maker*, ``jax.jit`` or ``jax.pmap``."""

    maker: str
    options: tuple[Option, ...]


_LEAVES = (
    ("in_shardings", "in_shardings_leaves"),
    ("out_shardings", "out_shardings_leaves"),
    ("in_layouts", "in_layouts_leaves"),
    ("out_layouts", "out_layouts_leaves"),
)
# JAX's variables, and our names for them.
_PMAP = {
    "axis_name": "axis_name",
    "in_axes": "in_axes",
    "out_axes": "out_axes",
    "devices": "devices",
    "backend": "backend",
    "axis_size": "axis_size",
    "donate_tuple": "donated arguments",
}


def of_jit(info: Any) -> JitOptions:
    """Return the options of a `jax.jit` with this ``PjitInfo``."""
    found: list[Option] = []
    # JAX derives the names from the positions, if there are names.
    if given := info.donate_argnames or info.donate_argnums:
        found.append(Option("donated arguments", "names", given))
    if given := info.static_argnames or info.static_argnums:
        found.append(Option("static arguments", "names", given))
    if given := getattr(info, "compiler_options_kvs", ()):  # since 0.5
        found.append(Option("compiler_options", "pairs", given))
    for name, attribute in _LEAVES:
        leaves = [_or_none(leaf) for leaf in getattr(info, attribute, ())]
        if any(leaf is not None for leaf in leaves):
            found.append(Option(name, "shardings", leaves))
    for name in ("device", "backend", "keep_unused", "inline"):
        given = getattr(info, name, None)
        if given is not None and given is not False and not _is_auto(given):
            found.append(Option(name, "value", given))
    return JitOptions("jax.jit", tuple(found))


def of_pmap(variables: Mapping[str, Any]) -> JitOptions:
    """
    Return the options of a `jax.pmap`.

    Args:
        variables: the options, by the names of JAX's variables.
    """
    given = dict(variables)
    if "out_axes" not in given and "out_axes_flat" in given:  # since 0.9
        axes = given["out_axes_flat"]
        given["out_axes"] = axes[0] if len(axes) == 1 else axes
    found = [
        Option(shown, "value", value)
        for name, shown in _PMAP.items()
        if not _is_default(value := given.get(name)) and not _is_made_up(value)
    ]
    return JitOptions("jax.pmap", tuple(found))


def _or_none(leaf: Any) -> Any:
    """Return *leaf*, or `None` for JAX's placeholder of an unspecified sharding."""
    if leaf is None or name_of(type(leaf)) == "UnspecifiedValue":
        return None
    return leaf


def _is_auto(given: object) -> bool:
    """Return whether *given* is the default that has replaced `False` since 0.12."""
    return is_class(type(given)) and getattr(given, "name", "") == "AUTO"


def _is_default(value: object) -> bool:
    kind = type(value)
    return (
        value is None or (kind is int and value == 0) or (kind is tuple and not value)
    )


def _is_made_up(value: object) -> bool:
    """Return whether *value* is a name that JAX generated for an unnamed axis."""
    return name_of(type(value)) == "_TempAxisName" or (
        type(value) is str and value.startswith(("<axis 0x", "_internal_"))
    )
